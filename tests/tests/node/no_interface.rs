//! A node without an external interface at its start, as before DHCP is done: the agent waits.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use flannel_tests::{Agent, TwoNodes, cluster::VXLAN};

const PORT: u16 = 8471;

/// An agent with these flags in the place of `--iface`, once its status has the reason to wait.
fn waiting(pair: &TwoNodes, flags: &[&str], why: &str) -> Result<Agent> {
    let mut options = pair.options()?;
    options.flags.retain(|flag| !flag.starts_with("--iface"));
    let agent = pair
        .a
        .agent(options.flags(flags).flag(&format!("--healthz-port={PORT}")))?;
    agent.wait_status(why, |status| {
        ensure!(
            status["error"]
                .as_str()
                .is_some_and(|error| error.contains(why)),
            "{status}"
        );
        ensure!(
            status["ready"] == false && status["stage"] == "choosing the external interface",
            "{status}"
        );
        Ok(())
    })?;
    Ok(agent)
}

#[test]
fn a_start_without_a_default_route_waits_for_one() -> Result<()> {
    let why = "there is no IPv4 default route; pass --iface with the name or a local address of \
        one of: eth0 (up): 192.168.1.11";
    let pair = TwoNodes::new("noroute", VXLAN)?;
    let agent = waiting(&pair, &[], why)?;
    let (code, text) = pair.a.http_get(PORT, "/readyz")?;
    ensure!(code == 503 && text.contains(why), "{code} {text}");
    ensure!(
        pair.a.http_get(PORT, "/healthz")?.0 == 200,
        "alive, so that nobody restarts it"
    );
    pair.a.sh("ip route add default via 192.168.1.12")?;
    let begun = Instant::now();
    agent.wait_ready()?;
    println!(
        "ready {:.1} s after the default route",
        begun.elapsed().as_secs_f32()
    );
    ensure!(agent.status()?["error"].is_null());
    assert_eq!(
        agent.log_count("no external interface yet"),
        1,
        "said once, tried each second"
    );
    Ok(())
}

#[test]
fn an_interface_that_comes_late_is_taken() -> Result<()> {
    let pair = TwoNodes::new("late", VXLAN)?;
    let agent = waiting(
        &pair,
        &["--iface=eth7", "--iface=192.0.2.7"],
        "eth7: no such interface",
    )?;
    for line in [
        "ip link set eth0 down",
        "ip link set eth0 name eth7",
        "ip link set eth7 up",
    ] {
        pair.a.sh(line)?;
    }
    agent.wait_ready()?;
    assert_eq!(agent.status()?["interface"]["name"], "eth7");
    Ok(())
}

#[test]
fn an_address_that_comes_late_is_taken() -> Result<()> {
    let pair = TwoNodes::new("dhcp", VXLAN)?;
    pair.lab.link(&pair.a, "eth1", &pair.b, "eth1")?;
    let agent = waiting(&pair, &["--iface=eth1"], "eth1: no usable IPv4 address")?;
    pair.a.address("eth1", "192.0.2.11/24", None)?;
    agent.wait_ready()
}

#[test]
fn a_start_that_waits_ends_at_once() -> Result<()> {
    let pair = TwoNodes::new("ends", VXLAN)?;
    for flags in [
        &["--public-ip=192.0.2.7"][..],
        &["--iface-can-reach=203.0.113.1"],
        &["--iface-regex=^eth9$"],
    ] {
        let agent = waiting(&pair, flags, "pass --iface")?;
        let begun = Instant::now();
        agent.sigterm_and_wait()?;
        let took = begun.elapsed();
        println!("{flags:?} ended after {took:?}");
        ensure!(took < Duration::from_secs(5), "{took:?}: not at once");
    }
    Ok(())
}
