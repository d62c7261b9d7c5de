//! Addresses on dummy devices: those of nodes, as routing daemons announce them, and one at which a
//! node serves its pods, as a cache of DNS does. These tests run on kernels of Debian, by `cargo
//! xtask test --kernel`.

use std::{net::SocketAddr, path::Path};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Node, TwoNodes,
    cluster::{config, topology::Stack},
    fast::{Conversation, Family, FastLab, arrivals::Arrivals},
    load::rr::Protocol,
    not_run,
};

/// The port at which a node serves its pods.
const CACHE: [&str; 2] = ["169.254.20.10:53", "[fd00:53::10]:53"];

#[test]
fn addresses_on_dummy_devices_are_served_as_in_mode_kernel() -> Result<()> {
    if !Path::new("/sys/module/dummy").exists() {
        not_run(
            "addresses on dummy devices",
            "the module dummy is not loaded",
        );
        return Ok(());
    }
    let nodes = TwoNodes::with(
        "fast-dummy",
        Stack::Dual,
        &config(Stack::Dual, r#"{"Type":"vxlan"}"#),
    )?;
    announce(&nodes.a, [11, 12])?;
    announce(&nodes.b, [12, 11])?;
    let lab = FastLab::on(nodes, &["--iface=dummy0"])?;
    for (agent, number) in lab.agents.iter().zip([11, 12]) {
        let interface = &agent.status()?["interface"];
        ensure!(
            interface["public_ip"] == format!("10.255.0.{number}"),
            "{interface}"
        );
    }
    serve(&lab.nodes.a)?;
    for family in Family::ALL {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            modes_agree(&lab, family, protocol)
                .with_context(|| format!("{family:?}, {protocol:?}"))?;
        }
    }
    Ok(())
}

/// Gives a node addresses on a dummy device, and routes to those of the other.
fn announce(node: &Node, [own, other]: [u8; 2]) -> Result<()> {
    node.sh("ip link add dummy0 type dummy")?;
    node.sh("ip link set dummy0 up")?;
    node.address("dummy0", &format!("10.255.0.{own}/32"), None)?;
    node.address("dummy0", &format!("2001:db8:ff::{own}/128"), None)?;
    node.sh(&format!(
        "ip route add 10.255.0.{other} via 192.168.1.{other}"
    ))?;
    node.sh(&format!(
        "ip -6 route add 2001:db8:ff::{other} via 2001:db8:1::{other}"
    ))
    .map(drop)
}

fn serve(node: &Node) -> Result<()> {
    node.sh("ip link add nodelocaldns type dummy")?;
    node.sh("ip link set nodelocaldns up")?;
    node.address("nodelocaldns", "169.254.20.10/32", None)?;
    node.address("nodelocaldns", "fd00:53::10/128", None)
}

/// A pod talks to a pod of the other node and to an address of the local node; both see the same
/// packets in each mode.
fn modes_agree(lab: &FastLab, family: Family, protocol: Protocol) -> Result<()> {
    let cache: SocketAddr = CACHE[usize::from(family == Family::V6)].parse()?;
    let arrivals = Arrivals::capture(lab, family)?;
    let mut seen = Vec::new();
    for mode in ["kernel", "encap", "fast"] {
        lab.set_mode(mode)?;
        arrivals.take();
        let mut far =
            Conversation::open(protocol, &lab.near, &lab.far, family.end(&lab.far)?, None)?;
        let mut own = Conversation::open(protocol, &lab.near, &lab.nodes.a, cache, None)?;
        if mode == "fast" {
            lab.until_replayed(|messages| far.exchange(messages))
                .context(mode)?;
        } else {
            far.exchange(200).context(mode)?;
        }
        own.exchange(200)
            .with_context(|| format!("{cache}, mode {mode}"))?;
        seen.push(arrivals.take());
    }
    ensure!(
        !seen[0].is_empty() && seen.iter().all(|arrived| *arrived == seen[0]),
        "kernel, encap, fast: {seen:#?}"
    );
    Ok(())
}
