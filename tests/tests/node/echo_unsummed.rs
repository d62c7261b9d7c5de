//! A device between two nodes that drops UDP over IPv6 without a checksum ([RFC 8200, section
//! 8.1](https://www.rfc-editor.org/rfc/rfc8200#section-8.1), lets receivers do that, and firewalls
//! do it): the kernel carries the packets then.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    Agent, ThreeNodes,
    cluster::{config, nodes::ready_agents, topology::Stack},
    eventually,
    fast::{Family, PORT},
    load::datagrams::Datagrams,
};
use serde_json::Value;

/// Rules of the bridge between the nodes.
const FIREWALL: &str = "table bridge firewall {
    chain forward {
        type filter hook forward priority 0;
        ether type ip6 udp dport 8472 udp checksum 0 counter drop
    }
}";

/// The peer whose way has this family.
fn peer(agent: &Agent, family: Family) -> Result<Value> {
    let status = agent.status()?;
    let is_of_family = |peer: &&Value| {
        peer["subnet"]
            .as_str()
            .is_some_and(|subnet| subnet.contains(':') == (family == Family::V6))
    };
    let peer = status["peers"]
        .as_array()
        .into_iter()
        .flatten()
        .find(is_of_family)
        .cloned();
    Ok(peer.unwrap_or_default())
}

#[test]
fn a_path_that_drops_packets_without_a_checksum_is_the_kernels() -> Result<()> {
    let nodes = ThreeNodes::with(
        "echo-unsummed",
        Stack::Dual,
        &config(Stack::Dual, r#"{"Type":"vxlan"}"#),
    )?;
    let options = nodes.options()?.flag("--peer-echo-interval=1");
    let agents = ready_agents([&nodes.a, &nodes.b], &options)?;
    let (near, far) = (nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?);
    for agent in &agents {
        agent.wait_peers(2)?;
    }
    near.wait_ping(Family::V6.of(&far)?)?;
    // A path without a firewall passes its trials.
    for agent in &agents {
        ensure!(
            peer(agent, Family::V6)?["way"] == "tunnel",
            "{}",
            agent.status()?["peers"]
        );
    }
    nodes.r.nft(FIREWALL)?;
    for agent in &agents {
        eventually("the kernel's way", Duration::from_mins(1), || {
            let peer = peer(agent, Family::V6)?;
            let reason = peer["reason"].as_str().unwrap_or_default();
            ensure!(
                peer["way"] == "kernel" && reason.contains("without an outer UDP checksum"),
                "{peer}"
            );
            Ok(())
        })?;
        ensure!(
            peer(agent, Family::V4)?["way"] == "tunnel",
            "{}",
            agent.status()?["peers"]
        );
    }
    let at = (Family::V6.of(&far)?, PORT).into();
    Datagrams::open(&near, &far, at, None)?.exchange(500)?;
    Ok(())
}
