//! One device for each family, or one for both.

use std::path::Path;

use anyhow::{Result, ensure};
use flannel_tests::{cluster::topology::Stack, not_run, packet::wire::Capture};

use super::{DEVICES, cluster, device, shown};

/// The content of the pods' packets. The underlay must not carry it.
const TEXT: &[u8; 16] = b"not to be read!!";

/// Frames with the text in them.
fn is_readable(frame: &[u8]) -> bool {
    frame.windows(TEXT.len()).any(|window| window == TEXT)
}

/// Frames of a WireGuard tunnel: UDP to one of its ports, over IPv4 or IPv6.
fn is_encrypted(frame: &[u8]) -> bool {
    let port = match frame.get(12..14) {
        Some([0x08, 0x00]) if frame.get(23) == Some(&17) => frame.get(36..38),
        Some([0x86, 0xdd]) if frame.get(20) == Some(&17) => frame.get(56..58),
        _ => None,
    };
    port.and_then(|port| port.try_into().ok())
        .map(u16::from_be_bytes)
        .is_some_and(|port| matches!(port, 51820 | 51821))
}

#[test]
fn each_family_has_a_device_of_its_own_and_nothing_crosses_the_underlay_in_the_clear() -> Result<()>
{
    let cluster = cluster("wg-separate", Stack::Dual, "")?;
    let [agent, ..] = &cluster.agents;
    let status = agent.status()?;
    let names: Vec<_> = (0..2)
        .map(|at| status["devices"][at]["name"].clone())
        .collect();
    assert_eq!(names, DEVICES);
    assert_eq!(status["devices"][0]["mtu"], 1420);
    assert_eq!(status["mode"]["effective"], "fast");
    for (name, port) in DEVICES.iter().zip(["51820", "51821"]) {
        assert_eq!(
            cluster
                .a
                .sh(&format!("wg show {name} listen-port"))?
                .stdout
                .trim(),
            port
        );
        for (_, allowed) in shown(agent.node(), name, "allowed-ips")? {
            assert_eq!(allowed.split(' ').count(), 1, "{allowed}");
        }
    }
    let routes = cluster.a.sh("ip route show 10.244.0.0/16")?.stdout;
    assert_eq!(routes.trim(), "10.244.0.0/16 dev flannel-wg scope link");
    let [near, _, far] = &cluster.pods;
    let readable = Capture::start(&cluster.c, "eth0", is_readable)?;
    let encrypted = Capture::start(&cluster.c, "eth0", is_encrypted)?;
    let hex = format!("{:032x}", u128::from_be_bytes(*TEXT));
    for (at, address) in far.addresses().iter().enumerate() {
        let before = encrypted.len();
        near.sh(&format!("ping -c 3 -i 0.2 -w 20 -s 200 -p {hex} {address}"))?;
        ensure!(
            encrypted.len() >= before + 3,
            "family {at}: {} frames",
            encrypted.len() - before
        );
    }
    assert_eq!(readable.len(), 0, "frames that can be read");
    Ok(())
}

/// A process does it only on a kernel without WireGuard. The directory is there once the module is.
#[test]
fn the_kernel_encrypts_where_it_can() -> Result<()> {
    if !Path::new("/sys/module/wireguard").exists() {
        not_run(
            "WireGuard of the kernel",
            "the module wireguard is not loaded",
        );
        return Ok(());
    }
    let cluster = cluster("wg-kernel", Stack::V4, "")?;
    let device = device(&cluster.agents[0])?;
    assert_eq!(device["wireguard"]["implementation"], "kernel", "{device}");
    let kind = cluster
        .a
        .sh(&format!("ip -details -json link show {}", DEVICES[0]))?
        .stdout;
    ensure!(kind.contains(r#""info_kind":"wireguard""#), "{kind}");
    Ok(())
}

#[test]
fn one_device_carries_both_families_by_the_addresses_of_its_mode() -> Result<()> {
    for (mode, of_v6) in [("ipv4", false), ("ipv6", true), ("auto", true)] {
        let cluster = cluster(
            &format!("wg-{mode}"),
            Stack::Dual,
            &format!(r#","Mode":"{mode}""#),
        )?;
        let [agent, ..] = &cluster.agents;
        assert_eq!(device(agent)?["name"], DEVICES[0]);
        ensure!(
            cluster.a.sh("ip link show flannel-wg-v6").is_err(),
            "a second device"
        );
        for (_, allowed) in shown(agent.node(), DEVICES[0], "allowed-ips")? {
            assert_eq!(allowed.split(' ').count(), 2, "{mode}: {allowed}");
        }
        for (_, endpoint) in shown(agent.node(), DEVICES[0], "endpoints")? {
            assert_eq!(endpoint.starts_with('['), of_v6, "{mode}: {endpoint}");
            ensure!(endpoint.ends_with(":51820"), "{mode}: {endpoint}");
        }
    }
    Ok(())
}
