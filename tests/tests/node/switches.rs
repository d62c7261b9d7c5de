//! The sysctls without which the kernel carries no packet of pods: set and recorded, kept so, and
//! named where they cannot be set.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Node, TwoNodes,
    cluster::{self, VXLAN, topology::Stack},
    eventually,
};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(10);
const PORT: u16 = 8471;
const V4: &str = "net.ipv4.ip_forward";
const V6: &str = "net.ipv6.conf.all.forwarding";

fn nodes(name: &str) -> Result<TwoNodes> {
    TwoNodes::with(
        name,
        Stack::Dual,
        &cluster::config(Stack::Dual, r#"{"Type":"vxlan"}"#),
    )
}

fn set(node: &Node, name: &str, value: u32) -> Result<()> {
    node.sh(&format!("sysctl -qw {name}={value}"))?;
    Ok(())
}

fn wait_value(node: &Node, name: &str, value: u32) -> Result<()> {
    eventually(&format!("{name}={value}"), SOON, || {
        let now = node.sh(&format!("sysctl -n {name}"))?.stdout;
        ensure!(now.trim() == value.to_string(), "{now}");
        Ok(())
    })
}

fn recorded(agent: &Agent) -> Result<String> {
    Ok(fs::read_to_string(
        agent.node().outside_path("/run/flannel/sysctls"),
    )?)
}

fn is_problem(status: &Value, name: &str) -> bool {
    status["sysctl_problems"]
        .as_array()
        .is_some_and(|all| all.iter().any(|problem| problem["sysctl"] == name))
}

#[test]
fn forwarding_is_switched_on_recorded_kept_on_and_set_back() -> Result<()> {
    let nodes = nodes("forward")?;
    for name in [V4, V6] {
        set(&nodes.a, name, 0)?;
    }
    let [a, _b] = nodes.agents_with_peers(2)?;
    let (near, far) = (nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?);
    near.wait_ping(far.ip())?;
    for name in [V4, V6] {
        set(&nodes.a, name, 0)?;
        wait_value(&nodes.a, name, 1)?;
    }
    near.wait_ping(far.ip())?;
    let record = recorded(&a)?;
    for name in [V4, V6] {
        ensure!(record.contains(&format!("sysctl {name} 0 1\n")), "{record}");
    }
    a.wait_status("two repairs", |status| {
        ensure!(status["ready"] == true && status["repairs"]["sysctls"].as_u64() >= Some(2));
        Ok(())
    })?;
    a.sigterm_and_wait()?;
    let kept = a.cli(&["cleanup", "--keep-network"])?.stdout;
    ensure!(
        kept.contains(&format!(
            "leave {V4} at 1 (0 before), because the network stays"
        )),
        "{kept}"
    );
    a.cli(&["cleanup"])?;
    for name in [V4, V6] {
        wait_value(&nodes.a, name, 0)?;
    }
    Ok(())
}

#[test]
fn with_the_flag_forwarding_is_only_reported() -> Result<()> {
    let nodes = nodes("noforward")?;
    let options = nodes
        .options()?
        .flags(&["--set-forwarding=false", &format!("--healthz-port={PORT}")]);
    let agent = nodes.a.ready_agent(options)?;
    set(&nodes.a, V4, 0)?;
    let status = agent.wait_ready_is(false)?;
    ensure!(
        is_problem(&status, V4) && !is_problem(&status, V6),
        "{status}"
    );
    let said = agent.cli_any(&["status"])?.stdout;
    ensure!(
        said.contains("net.ipv4.ip_forward is 0: this node forwards no IPv4 packets"),
        "{said}"
    );
    let (code, text) = nodes.a.http_get(PORT, "/readyz")?;
    ensure!(code == 503 && text.contains(V4), "{code} {text}");
    set(&nodes.a, V4, 1)?;
    agent.wait_ready_is(true)?;
    Ok(())
}

/// As in a container, where /proc/sys is read-only.
#[test]
fn what_may_not_be_set_keeps_the_node_from_being_ready() -> Result<()> {
    let nodes = nodes("rosysctl")?;
    let [a, _b] = nodes.agents_with_peers(2)?;
    a.sigterm_and_wait()?;
    set(&nodes.a, V6, 0)?;
    nodes.a.sh("mount --bind /proc/sys /proc/sys")?;
    nodes.a.sh("mount -o remount,ro,bind /proc/sys")?;
    a.restart()?;
    let status = eventually("the problem", Duration::from_secs(30), || {
        let status = a.status()?;
        ensure!(is_problem(&status, V6), "{status}");
        Ok(status)
    })?;
    ensure!(status["ready"] == false, "{status}");
    let text = status["sysctl_problems"][0]["text"]
        .as_str()
        .context("a text")?;
    ensure!(
        text.contains("Read-only file system")
            && text.contains("sysctl -w net.ipv6.conf.all.forwarding=1"),
        "{text}"
    );
    a.sigterm_and_wait()?;
    nodes.a.sh("umount /proc/sys")?;
    a.restart()?;
    a.wait_ready()
}

fn wait_problem(agent: &Agent, name: &str, value: u32) -> Result<()> {
    let begun = Instant::now();
    agent.wait_status(name, |status| {
        let problems = status["sysctl_problems"].as_array().context("problems")?;
        let found = problems
            .iter()
            .find(|problem| problem["sysctl"] == name)
            .context("no such problem")?;
        ensure!(
            status["ready"] == false && found["value"] == value,
            "{found}"
        );
        Ok(())
    })?;
    println!(
        "{name}={value} is reported after {:.1} s",
        begun.elapsed().as_secs_f32()
    );
    Ok(())
}

/// A bridge of pods and the external interface are not ours: what is wrong with them is said.
#[test]
fn forwarding_of_devices_that_are_not_ours_is_reported_and_left() -> Result<()> {
    let nodes = nodes("notours")?;
    let options = nodes.options()?.flag("--ip-masq");
    let [a, b] = [
        nodes.a.ready_agent(options.clone())?,
        nodes.b.ready_agent(options)?,
    ];
    let (near, far) = (nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?);
    near.wait_ping(far.ip())?;
    let outside = "192.168.1.12".parse()?;
    for (name, cut_off) in [
        ("net.ipv4.conf.cni0.forwarding", far.ip()),
        ("net.ipv4.conf.eth0.forwarding", outside),
    ] {
        near.wait_ping(cut_off)?;
        set(&nodes.a, name, 0)?;
        wait_problem(&a, name, 0)?;
        ensure!(
            near.ping(cut_off).is_err(),
            "{name} is 0, and {cut_off} answers"
        );
        wait_value(&nodes.a, name, 0)?;
        let said = a.cli_any(&["status"])?.stdout;
        ensure!(
            said.contains(&format!("{name} is 0: IPv4 packets of pods")),
            "{said}"
        );
        set(&nodes.a, name, 1)?;
        a.wait_ready_is(true)?;
        near.wait_ping(cut_off)?;
    }
    ensure!(b.status()?["ready"] == true);
    Ok(())
}

/// As hardening does on all devices. The kernel removes the addresses of the bridge with it, and
/// pods have no IPv6 gateway.
#[test]
fn a_bridge_of_pods_without_ipv6_is_reported_and_left() -> Result<()> {
    const BRIDGE: &str = "net.ipv6.conf.cni0.disable_ipv6";
    let nodes = nodes("bridge6")?;
    let [a, _b] = nodes.agents_with_peers(2)?;
    let (near, far) = (nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?);
    let far = far.ip6().context("IPv6")?;
    near.wait_ping(far)?;
    let shown = nodes
        .a
        .sh("ip -6 -o address show dev cni0 scope global")?
        .stdout;
    let gateway = shown.split_whitespace().nth(3).context("a gateway")?;
    set(&nodes.a, BRIDGE, 1)?;
    wait_problem(&a, BRIDGE, 1)?;
    ensure!(near.ping(far).is_err(), "{BRIDGE} is 1, and {far} answers");
    wait_value(&nodes.a, BRIDGE, 1)?;
    let said = a.cli_any(&["status"])?.stdout;
    ensure!(
        said.contains(&format!(
            "{BRIDGE} is 1: cni0 carries no IPv6 packets of pods"
        )),
        "{said}"
    );
    set(&nodes.a, BRIDGE, 0)?;
    nodes.a.address("cni0", gateway, None)?;
    a.wait_ready_is(true)?;
    near.wait_ping(far)
}

/// Strict by the device itself or by the setting for all.
#[test]
fn a_strict_rp_filter_of_our_device_is_loosened_and_recorded() -> Result<()> {
    const OWN: &str = "net.ipv4.conf.flannel/1.rp_filter";
    const ALL: &str = "net.ipv4.conf.all.rp_filter";
    let nodes = nodes("strict")?;
    let [a, _b] = nodes.agents_with_peers(2)?;
    let pod = nodes.a.add_pod("p1")?;
    // With an address of its node, which `a` reaches by eth0.
    let reach = || {
        eventually("the pod", SOON, || {
            nodes
                .b
                .sh(&format!("ping -n -c 1 -W 1 -I 192.168.1.12 {}", pod.ip()))
                .map(drop)
        })
    };
    reach()?;
    for (name, own) in [(OWN, 1), (ALL, 0)] {
        set(&nodes.a, OWN, own)?;
        set(&nodes.a, name, 1)?;
        wait_value(&nodes.a, OWN, 2)?;
        reach()?;
        ensure!(
            recorded(&a)?.contains(&format!("sysctl {OWN} {own} 2\n")),
            "{}",
            recorded(&a)?
        );
        set(&nodes.a, ALL, 0)?;
    }
    a.wait_ready_is(true)?;
    Ok(())
}

/// Packets to the peer leave by eth1, and its packets arrive by eth0.
#[test]
fn a_strict_rp_filter_of_the_external_interface_counts_if_packets_leave_by_another() -> Result<()> {
    const EXTERNAL: &str = "net.ipv4.conf.eth0.rp_filter";
    let nodes = nodes("otherway")?;
    let [a, _b] = nodes.agents_with_peers(2)?;
    let (near, far) = (nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?);
    a.set_mode("kernel")?;
    set(&nodes.a, EXTERNAL, 1)?;
    near.wait_ping(far.ip())?;
    a.wait_ready_is(true)?;

    nodes.lab.link(&nodes.a, "eth1", &nodes.b, "eth1")?;
    nodes.a.address("eth1", "192.0.2.11/24", None)?;
    nodes.b.address("eth1", "192.0.2.12/24", None)?;
    nodes
        .a
        .sh("ip route add 192.168.1.12/32 via 192.0.2.12 dev eth1 src 192.168.1.11")?;
    wait_problem(&a, EXTERNAL, 1)?;
    ensure!(
        near.ping(far.ip()).is_err(),
        "a strict eth0 takes packets that it should not"
    );
    let said = a.cli_any(&["status"])?.stdout;
    ensure!(said.contains("packets to a peer leave by eth1"), "{said}");

    set(&nodes.a, EXTERNAL, 2)?;
    a.wait_ready_is(true)?;
    near.wait_ping(far.ip())?;
    set(&nodes.a, EXTERNAL, 1)?;
    wait_problem(&a, EXTERNAL, 1)?;
    nodes.a.sh("ip route del 192.168.1.12/32")?;
    a.wait_ready_is(true)?;
    near.wait_ping(far.ip())
}

/// Packets for an address on `lo` arrive by other devices.
#[test]
fn a_strict_rp_filter_of_lo_does_not_count() -> Result<()> {
    let nodes = TwoNodes::new("onlo", VXLAN)?;
    nodes.a.sh("ip address add 10.255.0.11/32 dev lo")?;
    nodes.b.sh("ip route add 10.255.0.11/32 via 192.168.1.11")?;
    let a = nodes
        .a
        .ready_agent(nodes.options()?.with(&["--iface=lo"]))?;
    let _b = nodes.b.ready_agent(nodes.options()?)?;
    let (near, far) = (nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?);
    near.wait_ping(far.ip())?;
    set(&nodes.a, "net.ipv4.conf.all.rp_filter", 1)?;
    let status = a.wait_status("the tunnel device is loose again", |status| {
        ensure!(status["repairs"]["sysctls"].as_u64() >= Some(1));
        Ok(())
    })?;
    ensure!(
        status["interface"]["name"] == "lo"
            && status["sysctl_problems"] == Value::Array(Vec::new()),
        "{status}"
    );
    near.wait_ping(far.ip())
}

/// As Docker sets the policy. The rules of the agent let pods pass, on one node as well.
#[test]
fn bridged_packets_and_a_dropping_policy_cut_no_pod_off() -> Result<()> {
    let nodes = nodes("bridgenf")?;
    nodes.a.filter_bridged()?;
    nodes.a.sh("iptables -P FORWARD DROP")?;
    nodes.a.sh("ip6tables -P FORWARD DROP")?;
    let [a, _b] = nodes.agents_with_peers(2)?;
    let (near, far) = (nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?);
    let neighbour = nodes.a.add_pod("p2")?;
    near.wait_ping(far.ip())?;
    near.wait_ping(neighbour.ip())?;
    a.wait_ready_is(true)?;
    Ok(())
}

/// Hardening guides set this: new devices get no IPv6.
#[test]
fn ipv6_is_switched_on_for_our_own_device() -> Result<()> {
    let nodes = nodes("noipv6")?;
    set(&nodes.a, "net.ipv6.conf.default.disable_ipv6", 1)?;
    let [a, _b] = nodes.agents_with_peers(2)?;
    let own = "net.ipv6.conf.flannel-v6/1.disable_ipv6";
    wait_value(&nodes.a, own, 0)?;
    ensure!(
        recorded(&a)?.contains(&format!("sysctl {own} 1 0\n")),
        "{}",
        recorded(&a)?
    );
    let reaches = || {
        eventually("IPv6 between the nodes", SOON, || {
            let address = nodes
                .b
                .sh("ip -6 -o address show dev flannel-v6.1 scope global")?
                .stdout;
            let address = address
                .split_whitespace()
                .nth(3)
                .and_then(|prefix| prefix.split('/').next());
            nodes.a.sh(&format!(
                "ping -6 -n -c 1 -W 1 {}",
                address.context("an address")?
            ))?;
            Ok(())
        })
    };
    reaches()?;
    // At run time the kernel removes addresses and routes with it.
    set(&nodes.a, own, 1)?;
    wait_value(&nodes.a, own, 0)?;
    reaches()?;
    let status = a.wait_ready_is(true)?;
    ensure!(status["dirty_total"] == 0, "{status}");
    Ok(())
}
