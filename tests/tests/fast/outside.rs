//! Flows between pods and hosts outside the pod networks, here the other node's own. They are
//! replayed both ways, and follow the kernel's routes packet by packet.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_common::abi::{program::Program, reason::Reason};
use flannel_tests::{
    Host, eventually,
    fast::{Conversation, Family, FastLab, PORT},
    load::rr::Protocol,
    service_rules::{Backend, Service, ServiceRules},
};

const NODE_PORT: u16 = 30_080;
/// Of another host behind the other node.
const BEHIND: &str = "198.51.100.9";

/// Packets replayed on a node so far: from pods, and from the external interface.
fn replayed_on(lab: &FastLab, node: usize) -> Result<[u64; 2]> {
    let by = |program| {
        Ok::<_, anyhow::Error>(lab.maps[node].stats.get(program, Reason::Replayed)?.packets)
    };
    Ok([by(Program::FromPod)?, by(Program::FromUnderlay)?])
}

/// The same on the first node.
fn replayed(lab: &FastLab) -> Result<[u64; 2]> {
    replayed_on(lab, 0)
}

/// Talks until packets of both directions were replayed on a node. The directions are learned one
/// after the other, so neither count says anything about the other.
fn until_both_replayed_on(lab: &FastLab, node: usize, talk: &mut Conversation) -> Result<()> {
    let before = replayed_on(lab, node)?;
    eventually(
        "packets of both directions replayed",
        Duration::from_secs(15),
        || {
            // A lost message is a failure at once: waiting does not bring it back.
            if let Err(lost) = talk.exchange(100) {
                return Ok(Err(lost));
            }
            let after = replayed_on(lab, node)?;
            ensure!(
                (0..2).all(|side| after[side] - before[side] > 50),
                "{before:?}, {after:?}"
            );
            Ok(Ok(()))
        },
    )?
}

/// The same on the first node.
fn until_both_replayed(lab: &FastLab, talk: &mut Conversation) -> Result<()> {
    until_both_replayed_on(lab, 0, talk)
}

/// Every family with every protocol.
fn each(check: impl Fn(Family, Protocol) -> Result<()>) -> Result<()> {
    for family in Family::ALL {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            check(family, protocol).with_context(|| format!("{family:?}, {protocol:?}"))?;
        }
    }
    Ok(())
}

#[test]
fn flows_of_pods_to_hosts_outside_are_replayed_behind_masquerade() -> Result<()> {
    let lab = FastLab::new("out-masq", &[])?;
    let host: &Host = &lab.nodes.b;
    each(|family, protocol| {
        let at = SocketAddr::new(family.host(12), PORT);
        let mut talk = Conversation::open(protocol, &lab.near, host, at, None)?;
        until_both_replayed(&lab, &mut talk)
    })?;
    let shown = lab.agents[0].cli(&["maps", "dump", "flows"])?.stdout;
    ensure!(shown.contains("outside"), "{shown}");
    let status = lab.agents[0].cli(&["status"])?.stdout;
    ensure!(status.contains("with the outside as well"), "{status}");
    Ok(())
}

#[test]
fn flows_of_hosts_outside_to_ports_of_the_node_are_replayed() -> Result<()> {
    let lab = FastLab::new("out-port", &[])?;
    let host: &Host = &lab.nodes.b;
    each(|family, protocol| {
        let at = family.end(&lab.near)?;
        let service = Service::new(family.service(1), protocol, [at]).at_node_port(NODE_PORT);
        ServiceRules::install(&lab.nodes.a, Backend::Nftables, family.pods())?.set(&[service])?;
        let to = SocketAddr::new(family.host(11), NODE_PORT);
        let mut talk = Conversation::open(protocol, host, &lab.near, at, Some(to))?;
        until_both_replayed(&lab, &mut talk)
    })
}

#[test]
fn a_route_that_changes_holds_for_the_next_packet() -> Result<()> {
    let lab = FastLab::new("out-route", &[])?;
    let (node, host) = (&lab.nodes.a, &lab.nodes.b);
    host.sh(&format!("ip address add {BEHIND}/32 dev lo"))?;
    node.sh(&format!("ip route add {BEHIND} via 192.168.1.12"))?;
    let at = SocketAddr::new(BEHIND.parse::<IpAddr>()?, PORT);
    let mut talk = Conversation::open(Protocol::Udp, &lab.near, host, at, None)?;
    until_both_replayed(&lab, &mut talk)?;
    node.sh(&format!("ip route replace unreachable {BEHIND}"))?;
    let other = || {
        Ok::<_, anyhow::Error>(
            lab.maps[0]
                .stats
                .get(Program::FromPod, Reason::OtherRoute)?
                .packets,
        )
    };
    let before = (replayed(&lab)?, other()?);
    ensure!(
        talk.exchange(1).is_err(),
        "the message went where no route leads"
    );
    let after = (replayed(&lab)?, other()?);
    ensure!(
        after.0 == before.0 && after.1 > before.1,
        "{before:?}, {after:?}"
    );
    node.sh(&format!("ip route replace {BEHIND} via 192.168.1.12"))?;
    until_both_replayed(&lab, &mut talk)
}

/// Packets of the node itself have an address of the tunnel device; in any scope.
#[test]
fn flows_of_a_node_itself_with_pods_of_another_are_replayed_on_the_node_of_the_pod() -> Result<()> {
    let lab = FastLab::new("out-node", &["--fast-scope=cluster"])?;
    each(|family, protocol| {
        let at = family.end(&lab.far)?;
        let mut talk = Conversation::open(protocol, &lab.nodes.a, &lab.far, at, None)?;
        until_both_replayed_on(&lab, 1, &mut talk)
    })
}

#[test]
fn without_the_scope_packets_to_the_outside_are_the_kernels() -> Result<()> {
    let lab = FastLab::new("out-cluster", &["--fast-scope=cluster"])?;
    let at = SocketAddr::new(Family::V4.host(12), PORT);
    let mut talk = Conversation::open(Protocol::Tcp, &lab.near, &lab.nodes.b, at, None)?;
    talk.exchange(100)?;
    ensure!(replayed(&lab)? == [0, 0], "{:?}", replayed(&lab)?);
    Ok(())
}

/// An address of the node may be a pod's before it is translated, so any policy counts.
#[test]
fn with_an_ipsec_policy_flows_between_pods_alone_are_replayed() -> Result<()> {
    let lab = FastLab::new("out-ipsec", &[])?;
    let at = SocketAddr::new(Family::V4.host(12), PORT);
    let mut outward = Conversation::open(Protocol::Udp, &lab.near, &lab.nodes.b, at, None)?;
    until_both_replayed(&lab, &mut outward)?;
    let elsewhere = "src 192.168.1.11/32 dst 198.51.100.9/32 dir out index 25";
    lab.nodes.a.sh(&format!(
        "ip xfrm policy add {elsewhere} tmpl proto esp mode transport level use"
    ))?;
    eventually(
        "the outside left to the kernel",
        Duration::from_secs(10),
        || {
            let text = lab.agents[0].cli(&["status"])?.stdout;
            let reason = "flows with the outside take the kernel's path: IPsec policy 25 may cover \
                packets of pods";
            ensure!(
                text.contains(reason) && !text.contains("with the outside as well"),
                "{text}"
            );
            Ok(())
        },
    )?;
    let before = replayed(&lab)?;
    outward.exchange(100)?;
    ensure!(
        replayed(&lab)? == before,
        "{before:?}, {:?}",
        replayed(&lab)?
    );
    let mut inward = Conversation::open(
        Protocol::Udp,
        &lab.near,
        &lab.far,
        Family::V4.end(&lab.far)?,
        None,
    )?;
    until_both_replayed(&lab, &mut inward)
}
