//! The datapath without its agent: a killed agent loses no packet, a new one takes over what is
//! pinned, and after a minute without an agent the kernel carries everything.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use flannel_common::abi::peer::PeerEntry;
use flannel_tests::{
    Node, Pair, agent::pins, cluster::etcd::CONFIG_KEY, eventually, judged, kernel::hooks,
    throughout,
};
use ipnet::IpNet;

const PPS: u32 = 20_000;
/// The programs trust their maps for a minute without an agent. For this part of it they must not
/// leave any packet to the kernel.
const TRUSTED: Duration = Duration::from_secs(57);

/// Killed, ten seconds gone, back: the same maps, one program per hook, and every datagram.
#[test]
fn ten_seconds_without_an_agent_lose_nothing_and_its_successor_adopts_the_pins() -> Result<()> {
    let pair = Pair::new("killed")?;
    let run = pair.stream(PPS, Duration::from_mins(1))?;
    pair.wait_encapsulated(2_000)?;
    let before = pins::map_ids(&pair.net.a)?;
    pair.sender.kill9()?;
    judged("packets encapsulated without an agent", || {
        let (mut last, mut at) = (0, Instant::now());
        throughout(
            "packets encapsulated without an agent",
            Duration::from_secs(10),
            || {
                let now = pair.encapsulated()?;
                if now > last {
                    (last, at) = (now, Instant::now());
                }
                ensure!(
                    at.elapsed() < Duration::from_secs(1),
                    "still {now} packets for {:?}",
                    at.elapsed()
                );
                Ok(())
            },
        )
    })?;
    pair.sender.restart()?;
    pair.sender.wait_ready()?;
    pair.wait_encapsulated(4_000)?;
    assert_eq!(pins::map_ids(&pair.net.a)?, before, "maps made anew");
    assert_eq!(hooks::misplaced(&pair.net.a)?, [""; 0]);
    let report = run.stop()?;
    println!(
        "{} datagrams, longest gap {:?}",
        report.sent, report.longest_gap
    );
    report.expect_complete()
}

/// Without an agent that confirms the maps, the programs leave all packets to the kernel; a new
/// agent reactivates them.
#[test]
fn a_minute_without_an_agent_hands_all_packets_to_the_kernel_until_one_is_back() -> Result<()> {
    let pair = Pair::new("minute")?;
    let run = pair.stream(1_000, Duration::from_secs(110))?;
    pair.wait_encapsulated(500)?;
    let gone = || pair.sender.counted("to_tunnel", "agent_gone");
    pair.sender.kill9()?;
    throughout("trust in the maps", TRUSTED, || {
        let gone = gone()?;
        ensure!(gone == 0, "{gone} packets left to the kernel");
        Ok(())
    })?;
    eventually("an agent that is gone", Duration::from_secs(8), || {
        let gone = gone()?;
        ensure!(gone > 100, "{gone} packets left to the kernel");
        Ok(())
    })?;
    let encapsulated = pair.encapsulated()?;
    pair.wait_received(2_000)?;
    assert_eq!(
        pair.encapsulated()?,
        encapsulated,
        "encapsulated without an agent"
    );
    pair.sender.restart()?;
    pair.wait_encapsulated(500)?;
    let report = run.stop()?;
    println!(
        "{} datagrams, longest gap {:?}",
        report.sent, report.longest_gap
    );
    report.expect_complete()
}

/// A map of another shape, found where PEERS should be.
fn replaced(name: &str, pin: impl FnOnce(&Node) -> Result<pins::PinnedMap>) -> Result<()> {
    let pair = Pair::new(name)?;
    let ours = pins::map(&pair.net.a, "PEERS")?;
    let run = pair.stream(2_000, Duration::from_mins(1))?;
    pair.wait_encapsulated(1_000)?;
    pair.sender.kill9()?;
    let foreign = pin(&pair.net.a)?;
    pair.sender.restart()?;
    pair.sender.wait_ready()?;
    let now = pins::map(&pair.net.a, "PEERS")?;
    assert_eq!(
        (now.value_size, now.max_entries),
        (ours.value_size, ours.max_entries)
    );
    assert!(
        now.id != foreign.id && now.id != ours.id,
        "{now:?} after {foreign:?} and {ours:?}"
    );
    let log = pair.sender.child().log();
    let line = log
        .lines()
        .find(|line| line.contains("another shape"))
        .with_context(|| log.clone())?;
    assert!(line.contains("PEERS"), "{line}");
    assert_eq!(
        pair.sender.peer_entry("192.168.2.13")?["flags"],
        serde_json::json!(["plain"])
    );
    pair.wait_encapsulated(1_000)?;
    assert_eq!(hooks::misplaced(&pair.net.a)?, [""; 0]);
    run.stop()?.expect_complete()
}

#[test]
fn a_pinned_map_of_another_capacity_is_replaced_and_not_adopted() -> Result<()> {
    replaced("capacity", |node| {
        pins::replace_by_array::<PeerEntry>(node, "PEERS", 7)
    })
}

#[test]
fn a_pinned_map_of_another_value_size_is_replaced_and_not_adopted() -> Result<()> {
    replaced("size", |node| {
        pins::replace_by_array::<u32>(node, "PEERS", 256)
    })
}

/// The peer map is indexed by subnet number: with other subnets the old one would send packets to
/// wrong peers.
#[test]
fn another_subnet_length_replaces_the_peer_map_at_the_next_start() -> Result<()> {
    let mut pair = Pair::new("subnetlen")?;
    assert_eq!(pins::map(&pair.net.a, "PEERS")?.max_entries, 256);
    for agent in [&pair.sender, &pair.receiver] {
        agent.sigterm_and_wait()?;
    }
    let config = r#"{"Network":"10.244.0.0/16","SubnetLen":26,"Backend":{"Type":"vxlan"}}"#;
    pair.etcd.put(CONFIG_KEY, config, None)?;
    for agent in [&pair.sender, &pair.receiver] {
        agent.restart()?;
        agent.wait_ready()?;
    }
    for node in [&pair.net.a, &pair.net.c] {
        assert_eq!(pins::map(node, "PEERS")?.max_entries, 1024);
        assert_eq!(
            node.subnet_env()?
                .subnets
                .iter()
                .map(IpNet::prefix_len)
                .collect::<Vec<_>>(),
            [26]
        );
        // Pods keep addresses of the old subnet until they are recreated, and so does the bridge.
        node.sh("ip link delete cni0")?;
    }
    pair.near.clone().remove()?;
    pair.far.clone().remove()?;
    (pair.near, pair.far) = (pair.net.a.add_pod("p2")?, pair.net.c.add_pod("p2")?);
    let before = pair.encapsulated()?;
    pair.near.ping(pair.far.ip())?;
    assert!(
        pair.encapsulated()? > before,
        "a ping of three packets shows the path and uses it"
    );
    Ok(())
}
