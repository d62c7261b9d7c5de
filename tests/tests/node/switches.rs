//! The sysctls without which the kernel carries no packet of pods: set and recorded, kept so, and
//! named where they cannot be set.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, Node, TwoNodes, cluster, eventually, topology::Stack};
use serde_json::Value;

const SOON: Duration = Duration::from_secs(10);
const PORT: u16 = 8471;
const V4: &str = "net.ipv4.ip_forward";
const V6: &str = "net.ipv6.conf.all.forwarding";

fn nodes(name: &str) -> Result<TwoNodes> {
    TwoNodes::with(name, Stack::Dual, &cluster::config(Stack::Dual, r#"{"Type":"vxlan"}"#))
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
    Ok(fs::read_to_string(agent.node().outside_path("/run/flannel/sysctls"))?)
}

fn is_problem(status: &Value, name: &str) -> bool {
    status["sysctl_problems"].as_array().is_some_and(|all| all.iter().any(|problem| problem["sysctl"] == name))
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
    ensure!(kept.contains(&format!("leave {V4} at 1 (0 before), because the network stays")), "{kept}");
    a.cli(&["cleanup"])?;
    for name in [V4, V6] {
        wait_value(&nodes.a, name, 0)?;
    }
    Ok(())
}

#[test]
fn with_the_flag_forwarding_is_only_reported() -> Result<()> {
    let nodes = nodes("noforward")?;
    let options = nodes.options()?.flags(&["--set-forwarding=false", &format!("--healthz-port={PORT}")]);
    let agent = nodes.a.ready_agent(options)?;
    set(&nodes.a, V4, 0)?;
    let status = agent.wait_ready_is(false)?;
    ensure!(is_problem(&status, V4) && !is_problem(&status, V6), "{status}");
    let said = agent.cli_any(&["status"])?.stdout;
    ensure!(said.contains("net.ipv4.ip_forward is 0: this node forwards no IPv4 packets"), "{said}");
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
    let text = status["sysctl_problems"][0]["text"].as_str().context("a text")?;
    ensure!(
        text.contains("Read-only file system") && text.contains("sysctl -w net.ipv6.conf.all.forwarding=1"),
        "{text}"
    );
    a.sigterm_and_wait()?;
    nodes.a.sh("umount /proc/sys")?;
    a.restart()?;
    a.wait_ready()
}

/// Hardening guides set this: new devices get no IPv6.
#[test]
fn ipv6_is_switched_on_for_our_own_device() -> Result<()> {
    let nodes = nodes("noipv6")?;
    set(&nodes.a, "net.ipv6.conf.default.disable_ipv6", 1)?;
    let [a, _b] = nodes.agents_with_peers(2)?;
    let own = "net.ipv6.conf.flannel-v6/1.disable_ipv6";
    wait_value(&nodes.a, own, 0)?;
    ensure!(recorded(&a)?.contains(&format!("sysctl {own} 1 0\n")), "{}", recorded(&a)?);
    let reaches = || {
        eventually("IPv6 between the nodes", SOON, || {
            let address = nodes.b.sh("ip -6 -o address show dev flannel-v6.1 scope global")?.stdout;
            let address = address.split_whitespace().nth(3).and_then(|prefix| prefix.split('/').next());
            nodes.a.sh(&format!("ping -6 -n -c 1 -W 1 {}", address.context("an address")?))?;
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
