//! The agent writes flannel's policies, restores them, and does not touch those of others.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, TwoNodes, cluster::LEASES, eventually, packet::wire::Capture};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{ADDRESSES, agents, has_esp, policies, process::is_icmp_of_pods, two_nodes};

const FOREIGN: [&str; 2] = [
    // Another number inside the pod network, and flannel's number outside.
    "src 10.244.7.0/24 dst 10.244.8.0/24 dir out priority 7 tmpl src 192.0.2.1 dst 192.0.2.2 proto \
     esp reqid 5 mode tunnel",
    "src 10.77.1.0/24 dst 10.77.2.0/24 dir out tmpl src 192.0.2.1 dst 192.0.2.2 proto esp reqid 11 \
     mode tunnel",
];
const STALE: &str = "src 10.244.9.0/24 dst 10.244.80.0/24 dir in tmpl src 192.0.2.9 dst 192.0.2.1 \
    proto esp reqid 11 mode tunnel";

#[test]
fn explain_finds_missing_keys_and_a_missing_policy() -> Result<()> {
    let nodes = two_nodes("ipsec-explain")?;
    let [agent, _other] = agents(&nodes)?;
    let (near, far) = (nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?);
    let step = |wanted: &str| {
        let (source, destination) = (near.ip().to_string(), far.ip().to_string());
        let story = agent.cli_any(&["explain", "-o", "json", &source, &destination])?;
        let found: Value = serde_json::from_str(&story.stdout)?;
        let steps = found["steps"].as_array().context("steps")?;
        let step = steps
            .iter()
            .find(|step| step["topic"] == "policy")
            .with_context(|| format!("{found:#}"))?;
        ensure!(
            step["text"]
                .as_str()
                .is_some_and(|text| text.contains(wanted)),
            "{wanted}: {step}"
        );
        Ok(story.code)
    };
    if !has_esp(&nodes.a)? {
        ensure!(
            step("there are no keys with the node 192.168.1.12")? == 1,
            "packets are dropped"
        );
    }
    agent.child().signal(Signal::SIGSTOP)?;
    let status = nodes.a.sh("ip xfrm policy list dir out")?.stdout;
    ensure!(status.contains("dst 192.168.1.12"), "{status}");
    nodes.a.sh("ip xfrm policy flush")?;
    ensure!(
        step("no IPsec policy covers")? == 1,
        "packets leave without a tunnel"
    );
    agent.child().signal(Signal::SIGCONT)?;
    Ok(())
}

/// A policy of flannel with this direction, between these subnets and these tunnel ends.
fn wanted(direction: &str, src: &str, dst: &str, [from, to]: [&str; 2]) -> String {
    format!(
        "src {src} dst {dst} dir {direction} priority 0 tmpl src {from} dst {to} proto esp reqid \
         11 mode tunnel"
    )
}

/// The policies of a node with this subnet and this peer, and those of others, in order.
fn policies_with(own: &str, peer: &str) -> Vec<String> {
    let [here, there] = ADDRESSES;
    let mut expected = vec![
        wanted("out", own, peer, [here, there]),
        wanted("in", peer, own, [there, here]),
        wanted("fwd", peer, own, [there, here]),
    ];
    expected.extend([
        FOREIGN[0].to_owned(),
        FOREIGN[1].replace("dir out", "dir out priority 0"),
    ]);
    expected.sort();
    expected
}

#[test]
fn policies_lease_and_mtu_are_flannels_and_policies_come_back() -> Result<()> {
    let nodes = two_nodes("ipsec-policies")?;
    for policy in FOREIGN.iter().chain([&STALE]) {
        nodes.a.sh(&format!("ip xfrm policy add {policy}"))?;
    }
    let [agent, _] = agents(&nodes)?;
    let status = agent.status()?;
    let subnet = |value: &Value| {
        value["subnet"]
            .as_str()
            .map(str::to_owned)
            .context("a subnet")
    };
    let (own, peer) = (subnet(&status["lease"])?, subnet(&status["peers"][0])?);
    let expected = policies_with(&own, &peer);
    let expect = || {
        let found: Vec<String> = policies(&nodes.a)?
            .iter()
            .map(|policy| policy.replace("ptype main ", ""))
            .collect();
        ensure!(found == expected, "{found:#?}, not {expected:#?}");
        Ok(())
    };
    eventually(
        "three policies, and those of others",
        Duration::from_secs(10),
        expect,
    )?;

    for change in [
        format!("delete src {own} dst {peer} dir out"),
        format!(
            "update {}",
            wanted("fwd", &peer, &own, ["192.0.2.7", ADDRESSES[0]])
                .replace("priority 0", "priority 9")
        ),
        format!("delete src {peer} dst {own} dir in"),
    ] {
        nodes.a.sh(&format!("ip xfrm policy {change}"))?;
        eventually(
            &format!("the policies after {change}"),
            Duration::from_secs(10),
            expect,
        )?;
    }
    ensure!(
        agent.status()?["repairs"]["policies"].as_u64() >= Some(3),
        "{}",
        agent.status()?["repairs"]
    );

    expect_flannels_lease(&nodes, &agent)
}

fn expect_flannels_lease(nodes: &TwoNodes, agent: &Agent) -> Result<()> {
    assert_eq!(nodes.a.subnet_env()?.mtu, 1423);
    let (_, lease) = nodes
        .etcd
        .list(LEASES)?
        .into_iter()
        .next()
        .context("a lease")?;
    let lease: Value = serde_json::from_str(&lease)?;
    assert_eq!(
        (&lease["BackendType"], lease.get("BackendData")),
        (&json!("ipsec"), None),
        "{lease}"
    );
    let status = agent.status()?;
    assert_eq!(
        (&status["peers"][0]["way"], &status["mode"]["effective"]),
        (&json!("ipsec"), &json!("kernel"))
    );
    Ok(())
}

/// With `disable_xfrm` 1 packets of pods leave in clear, past the policies: said, and not changed.
/// With 0 they leave encrypted, or, on a kernel without ESP, not at all.
#[test]
fn a_device_that_bypasses_the_policies_is_reported() -> Result<()> {
    const SYSCTL: &str = "net.ipv4.conf.eth0.disable_xfrm";
    let nodes = two_nodes("ipsec-bypass")?;
    nodes
        .a
        .sh(&format!("ip route add default via {}", ADDRESSES[1]))?;
    let [agent, other] = agents(&nodes)?;
    let pod = nodes.a.add_pod("p1")?;
    let status = other.status()?;
    let subnet = status["lease"]["subnet"].as_str().context("a subnet")?;
    let there = subnet.split('/').next().context("an address")?.parse()?;
    let clear = Capture::start(&nodes.b, "eth0", is_icmp_of_pods)?;
    ensure!(
        pod.ping(there).is_err() && clear.is_empty(),
        "{} packets in clear",
        clear.len()
    );

    nodes.a.sh(&format!("sysctl -qw {SYSCTL}=1"))?;
    let is_reported = |problem: &Value| problem["sysctl"] == SYSCTL && problem["value"] == 1;
    agent.wait_status(SYSCTL, |status| {
        let problems = status["sysctl_problems"].as_array().context("problems")?;
        ensure!(status["ready"] == false && problems.iter().any(is_reported));
        Ok(())
    })?;
    eventually("packets in clear", Duration::from_secs(20), || {
        ensure!(pod.ping(there).is_err() && !clear.is_empty());
        Ok(())
    })?;

    nodes.a.sh(&format!("sysctl -qw {SYSCTL}=0"))?;
    agent.wait_status("no problem", |status| {
        ensure!(status["sysctl_problems"] == Value::Array(Vec::new()));
        Ok(())
    })?;
    Ok(())
}
