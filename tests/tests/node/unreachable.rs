//! Packets for the pod network that no peer's route matches: the unreachable route ends them on the
//! node. It is kept like any other route, gives precedence to those of other programs, and is not
//! made where the underlay is in the pod network.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    Agent, Node, Pod, StockEnd, StockNode, ThreeNodes, TwoNodes,
    cluster::{self, etcd::CONFIG_KEY, topology::Stack},
    eventually,
    packet::wire::Capture,
};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(10);
const VXLAN: &str = r#"{"Type":"vxlan"}"#;
/// An address of a pod of the peer that leaves, in each family.
const FAR: [&str; 2] = ["10.244.9.5", "fd00:10:244:9::5"];

fn leaving(backend: &str) -> StockNode {
    let end = |address: &str, mac| {
        Some(if backend == VXLAN {
            StockEnd::vxlan(9, address, mac)
        } else {
            StockEnd::host_gw(9, address)
        })
    };
    StockNode {
        v4: end("192.168.1.12", "02:00:00:00:04:09"),
        v6: end("2001:db8:1::12", "02:00:00:00:06:09"),
    }
}

/// A packet for the pods of the peer, without a tunnel.
fn is_bare(frame: &[u8]) -> bool {
    let starts = |at: usize, bytes: &[u8]| frame.get(at..at + bytes.len()) == Some(bytes);
    (starts(12, &[0x08, 0x00]) && starts(30, &[10, 244, 9]))
        || (starts(12, &[0x86, 0xdd]) && starts(38, &[0xfd, 0, 0, 0x10, 2, 0x44]))
}

/// The unreachable routes of a node, as `ip` prints them.
fn unreachable(node: &Node) -> Result<String> {
    Ok(["-4", "-6"]
        .map(|family| {
            node.sh(&format!("ip {family} route show type unreachable"))
                .map(|output| output.stdout)
        })
        .into_iter()
        .collect::<Result<Vec<_>>>()?
        .concat())
}

/// One echo request, and what `ping` prints of its answer.
fn ping(pod: &Pod, to: &str) -> Result<String> {
    Ok(pod
        .command(["ping", "-n", "-c", "1", "-W", "1", to])
        .any_code()
        .run()?
        .stdout)
}

/// Returns the `unreachable_routes` of `status`.
fn said(agent: &Agent) -> Result<Vec<Value>> {
    Ok(agent.status()?["unreachable_routes"]
        .as_array()
        .cloned()
        .unwrap_or_default())
}

fn eventually_said(agent: &Agent, network: &str, in_place: bool, reason: &str) -> Result<()> {
    eventually(
        &format!("{network} in place: {in_place}, {reason:?}"),
        SOON,
        || {
            let said = said(agent)?;
            let of_network = said.iter().find(|route| route["network"] == network);
            let is_so = |route: &Value| {
                route["in_place"] == in_place
                    && route["reason"]
                        .as_str()
                        .unwrap_or_default()
                        .contains(reason)
            };
            ensure!(of_network.is_some_and(is_so), "{said:?}");
            Ok(())
        },
    )
}

fn nodes(name: &str, backend: &str) -> Result<ThreeNodes> {
    ThreeNodes::with(name, Stack::Dual, &cluster::config(Stack::Dual, backend))
}

/// An agent that has seen its peer come and go.
fn bereft(nodes: &ThreeNodes, backend: &str, flags: &[&str]) -> Result<Agent> {
    leaving(backend).put(&nodes.etcd)?;
    let agent = nodes.a.ready_agent(nodes.options()?.flags(flags))?;
    agent.wait_peers(2)?;
    nodes.etcd.delete(&leaving(backend).key())?;
    agent.wait_peers(0)?;
    Ok(agent)
}

fn nothing_leaves(name: &str, backend: &str) -> Result<()> {
    let left = nodes(name, backend)?;
    let agent = bereft(&left, backend, &["--unreachable-route=false"])?;
    let pod = left.a.add_pod("p1")?;
    assert_eq!(unreachable(&left.a)?, "");
    let capture = Capture::start(&left.r, "eth-a", is_bare)?;
    for (number, far) in FAR.iter().enumerate() {
        eventually(&format!("a packet for {far} on the wire"), SOON, || {
            ping(&pod, far)?;
            ensure!(capture.len() > number, "{} packets", capture.len());
            Ok(())
        })?;
    }
    println!(
        "{backend}, --unreachable-route=false: {} packets left by the default route",
        capture.len()
    );
    agent.sigterm_and_wait()?;

    let agent = bereft(&left, backend, &[])?;
    eventually_said(&agent, "10.244.0.0/16", true, "")?;
    eventually_said(&agent, "fd00:10:244::/48", true, "")?;
    let routes = unreachable(&left.a)?;
    assert!(
        routes.contains("10.244.0.0/16 proto 191 metric 4294967295"),
        "{routes}"
    );
    assert!(
        routes.contains("fd00:10:244::/48 dev lo proto 191 metric 4294967295"),
        "{routes}"
    );
    let capture = Capture::start(&left.r, "eth-a", is_bare)?;
    for far in FAR {
        let answer = ping(&pod, far)?;
        ensure!(
            answer.to_lowercase().contains("unreachable"),
            "{far}: {answer}"
        );
    }
    assert_eq!(capture.len(), 0, "packets left by the default route");
    let text = agent.cli_any(&["status"])?.stdout;
    assert!(
        text.contains("unrouted   10.244.0.0/16 unreachable"),
        "{text}"
    );
    agent.sigterm_and_wait()?;
    let printed = agent.cli(&["cleanup"])?.stdout;
    assert!(
        printed.contains("remove the unreachable route fd00:10:244::/48"),
        "{printed}"
    );
    assert_eq!(unreachable(&left.a)?, "");
    Ok(())
}

#[test]
fn packets_to_a_peer_that_left_are_answered_and_do_not_leave() -> Result<()> {
    nothing_leaves("unreach", VXLAN)
}

#[test]
fn nor_do_they_without_a_tunnel() -> Result<()> {
    nothing_leaves("unreachgw", cluster::HOST_GW)
}

#[test]
fn the_route_comes_back_and_goes_with_the_option() -> Result<()> {
    let pair = TwoNodes::with(
        "unreachback",
        Stack::Dual,
        &cluster::config(Stack::Dual, VXLAN),
    )?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    eventually_said(&agent, "fd00:10:244::/48", true, "")?;
    let wanted = unreachable(&pair.a)?;
    for change in [
        "ip route del unreachable 10.244.0.0/16",
        "ip -6 route del unreachable fd00:10:244::/48",
    ] {
        pair.a.sh(change)?;
        eventually(&format!("recovery from `{change}`"), SOON, || {
            let routes = unreachable(&pair.a)?;
            ensure!(routes == wanted, "{routes}");
            Ok(())
        })?;
    }
    agent.kill9()?;
    assert_eq!(
        unreachable(&pair.a)?,
        wanted,
        "it does not depend on the agent"
    );
    let agent = pair
        .a
        .ready_agent(pair.options()?.flag("--unreachable-route=false"))?;
    eventually_said(&agent, "10.244.0.0/16", false, "--unreachable-route=false")?;
    eventually_said(
        &agent,
        "fd00:10:244::/48",
        false,
        "--unreachable-route=false",
    )?;
    assert_eq!(unreachable(&pair.a)?, "");
    Ok(())
}

#[test]
fn a_route_of_another_program_to_the_pod_network_stays_and_none_is_made() -> Result<()> {
    let pair = TwoNodes::new("unreachbird", cluster::VXLAN)?;
    let foreign = || {
        pair.a
            .sh("ip route show proto bird")
            .map(|output| output.stdout)
    };
    pair.a
        .sh("ip route add blackhole 10.244.0.0/16 proto bird")?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    eventually_said(&agent, "10.244.0.0/16", false, "protocol 12")?;
    assert_eq!(unreachable(&pair.a)?, "");
    let before = foreign()?;
    pair.a
        .sh("ip route del blackhole 10.244.0.0/16 proto bird")?;
    eventually_said(&agent, "10.244.0.0/16", true, "")?;
    pair.a
        .sh("ip route add blackhole 10.244.0.0/16 proto bird")?;
    eventually_said(&agent, "10.244.0.0/16", false, "protocol 12")?;
    assert_eq!(
        (foreign()?, unreachable(&pair.a)?),
        (before.clone(), String::new())
    );
    agent.sigterm_and_wait()?;
    agent.cli(&["cleanup"])?;
    assert_eq!(foreign()?, before, "cleanup leaves it");
    Ok(())
}

/// Hosts of the underlay may be reached by the default route.
#[test]
fn none_is_made_for_a_pod_network_that_has_addresses_of_the_underlay() -> Result<()> {
    let config =
        r#"{"Network":"192.168.0.0/16","SubnetMin":"192.168.100.0","Backend":{"Type":"vxlan"}}"#;
    let pair = TwoNodes::new("unreachwide", config)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    eventually_said(
        &agent,
        "192.168.0.0/16",
        false,
        "192.168.1.12 of the store is in it",
    )?;
    assert_eq!(unreachable(&pair.a)?, "");
    let inside =
        "the address 192.168.1.11 of the external interface is in the pod network 192.168.0.0/16";
    agent.wait_log(&[inside])?;
    let text = agent.cli_any(&["status"])?.stdout;
    ensure!(
        text.contains("1 address in the pod network") && text.contains(&format!("\n{inside}: ")),
        "{text}"
    );
    let checked = agent.cli_any(&["check"])?.stdout;
    ensure!(checked.contains(inside), "{checked}");
    Ok(())
}

#[test]
fn the_route_of_a_former_pod_network_is_removed() -> Result<()> {
    let pair = TwoNodes::new("unreachformer", cluster::VXLAN)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    eventually_said(&agent, "10.244.0.0/16", true, "")?;
    agent.sigterm_and_wait()?;
    pair.etcd.put(
        CONFIG_KEY,
        r#"{"Network":"10.55.0.0/16","Backend":{"Type":"vxlan"}}"#,
        None,
    )?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    eventually_said(&agent, "10.55.0.0/16", true, "")?;
    let routes = unreachable(&pair.a)?;
    assert!(!routes.contains("10.244.0.0/16"), "{routes}");
    Ok(())
}
