//! An offload that an operator switches off, or a limit that is lowered, on a device that packets
//! skip: the kernel does what was asked for, until the setting is back.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Pair, Pod,
    cluster::topology::Stack,
    eventually,
    fast::fast_pair,
    load::{
        bulk::{Bulk, BulkLoad},
        iperf::tcp_stream,
    },
    packet::{frame, wire::Capture},
};

/// The reason for the best known remedy against NICs that break inner checksums.
const CHECKSUM_OFF: &str = "tx-checksum-ip-generic of flannel.1 is off";
/// The receiving node.
const FAR: &str = "192.168.2.13";
/// Features are announced, limits are read every five seconds.
const FOUND: Duration = Duration::from_secs(10);
/// The largest frame of a pod: MTU 1450 and the Ethernet header.
const POD_FRAME: usize = 1464;

/// Switches features of a device of the sending node.
fn switch(pair: &Pair, device: &str, features: &str) -> Result<()> {
    pair.sender
        .node()
        .sh(&format!("ethtool -K {device} {features}"))
        .map(drop)
}

/// Waits until the peer's packets go this way, for this reason.
fn wait_way(agent: &Agent, way: &str, reason: Option<&str>) -> Result<Duration> {
    let start = Instant::now();
    eventually(&format!("way {way} because of {reason:?}"), FOUND, || {
        let peer = agent.peer_status(FAR)?;
        ensure!(
            peer["way"] == way && reason.is_none_or(|reason| peer["reason"] == reason),
            "{peer}"
        );
        Ok(())
    })?;
    Ok(start.elapsed())
}

/// Expects the reason in all that an operator reads.
fn is_named(agent: &Agent, topic: &str, reason: &str) -> Result<()> {
    let text = agent.cli_any(&["status"])?.stdout;
    ensure!(text.contains(reason), "{text}");
    let findings = agent.cli_json(&["check", "-o", "json"])?["findings"].clone();
    let named = |finding: &&serde_json::Value| {
        finding["topic"] == topic
            && finding["text"]
                .as_str()
                .is_some_and(|text| text.contains(reason))
    };
    let finding = findings.as_array().context("findings")?.iter().find(named);
    ensure!(
        finding.is_some_and(|finding| finding["level"] == "warn"),
        "{findings}"
    );
    Ok(())
}

/// Inner TCP segments with data that crossed the cable with a whole checksum, and those that were
/// left to the NIC, to be cut or summed.
fn inner_sums(frames: &[Vec<u8>]) -> [usize; 2] {
    let mut sums = [0; 2];
    for frame in frames
        .iter()
        .filter(|frame| frame[frame::V4.inner + 9] == 6)
    {
        let inner = &frame[frame::V4.inner..];
        let length = u16::try_from(inner.len() - 20).unwrap_or(0).to_be_bytes();
        let pseudo = [&inner[12..20], &[0, 6], &length, &inner[20..]].concat();
        sums[usize::from(frame.len() > 1514 || frame::checksum(&pseudo) != 0)] += 1;
    }
    sums
}

/// Sends a stream and sorts what crosses the cable.
fn crossing(pair: &Pair) -> Result<[usize; 2]> {
    let capture = Capture::tunnel(&pair.net.r, "eth-a")?;
    tcp_stream(&pair.near, &pair.far, pair.far.ip(), 1, None)?;
    Ok(inner_sums(&capture.frames()))
}

/// A connection that carries data over the whole change loses nothing.
#[test]
fn inner_checksums_are_whole_once_the_tunnel_device_does_not_offload_them() -> Result<()> {
    for mode in ["encap", "fast"] {
        let pair = Pair::with(
            &format!("fa-sums-{mode}"),
            Stack::V4,
            &[&format!("--datapath={mode}"), "--ip-masq=true"],
        )?;
        pair.wait_encapsulated_while_pinging()?;
        let [whole, left] = crossing(&pair)?;
        println!("{mode}: offloaded: {whole} whole, {left} left to the NIC");
        ensure!(
            left > whole,
            "{mode}: {whole} whole, {left} left to the NIC before the change"
        );

        let load = Bulk::start(
            &pair.near,
            &pair.far,
            (pair.far.ip(), 0).into(),
            None,
            BulkLoad::steady(50),
        )?;
        switch(&pair, "flannel.1", "tx-checksum-ip-generic off")?;
        println!(
            "{mode}: found after {:?}",
            wait_way(&pair.sender, "kernel", Some(CHECKSUM_OFF))?
        );
        is_named(&pair.sender, "offload", CHECKSUM_OFF)?;
        let taken = || {
            Ok::<_, anyhow::Error>([
                pair.encapsulated()?,
                pair.sender.counted("from_pod", "encapsulated")?,
            ])
        };
        let before = taken()?;
        let [whole, left] = crossing(&pair)?;
        println!("{mode}: switched off: {whole} whole, {left} left to the NIC");
        ensure!(
            whole > 100 && left == 0,
            "{mode}: {whole} whole, {left} left to the NIC"
        );
        ensure!(
            taken()? == before,
            "{mode}: the programs took packets past the device"
        );

        switch(&pair, "flannel.1", "tx-checksum-ip-generic on")?;
        println!(
            "{mode}: lifted after {:?}",
            wait_way(&pair.sender, "tunnel", None)?
        );
        load.stop()?;
        pair.wait_encapsulated_while_pinging()?;
    }
    Ok(())
}

/// Each limit and feature counts. The other family has another device.
#[test]
fn other_settings_of_the_tunnel_device_count_for_its_family() -> Result<()> {
    let pair = Pair::with("fa-limits", Stack::Dual, &[])?;
    for (change, undo, reason) in [
        (
            "ethtool -K flannel.1 tso off",
            "ethtool -K flannel.1 tso on",
            "tx-tcp-segmentation of flannel.1 is off",
        ),
        (
            "ethtool -K flannel.1 sg off",
            "ethtool -K flannel.1 sg on",
            "tx-scatter-gather of flannel.1 is off",
        ),
        (
            "ip link set flannel.1 gso_max_size 30000",
            "ip link set flannel.1 gso_max_size 65536",
            "gso_max_size of flannel.1 is 30000",
        ),
        (
            "ip link set flannel.1 gso_max_segs 7",
            "ip link set flannel.1 gso_max_segs 65535",
            "gso_max_segs of flannel.1 is 7",
        ),
    ] {
        pair.sender.node().sh(change)?;
        wait_way(&pair.sender, "kernel", Some(reason))?;
        let v6 = pair.sender.peer_status("2001:db8:2::13")?;
        ensure!(v6["way"] == "tunnel", "{v6}");
        pair.sender.node().sh(undo)?;
        wait_way(&pair.sender, "tunnel", None)?;
    }
    pair.wait_encapsulated_while_pinging()
}

#[test]
fn a_tunnel_device_that_must_not_merge_packets_gets_them_all() -> Result<()> {
    let pair = fast_pair("fa-gro", &[])?;
    let node = pair.sender.node();
    let wait = |reasons: &[&str]| {
        eventually(&format!("{reasons:?}"), FOUND, || {
            let shown = pair.sender.status()?["fast"]["underlay_reasons"].clone();
            ensure!(shown == serde_json::json!(reasons), "{shown}");
            Ok(())
        })
    };
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 100)?;
    node.sh("ethtool -K flannel.1 gro off")?;
    let reason = "rx-gro of flannel.1 is off";
    wait(&[reason])?;
    is_named(&pair.sender, "ingress", reason)?;
    let replayed = || pair.sender.counted("from_underlay", "replayed");
    let before = replayed()?;
    talk.exchange(1_000)?;
    ensure!(
        replayed()? == before,
        "packets were put into the pod past flannel.1"
    );
    wait_way(&pair.sender, "tunnel", None)?;
    node.sh("ethtool -K flannel.1 gro on")?;
    wait(&[])?;
    node.sh("ip link set flannel.1 gro_max_size 9000")?;
    wait(&["gro_max_size of flannel.1 is 9000"])?;
    node.sh("ip link set flannel.1 gro_max_size 65536")?;
    wait(&[])?;
    pair.talk_until_replayed(&mut talk, 100)
}

/// The longest frame of a stream between two pods of a node, as the receiver sees it.
fn longest(from: &Pod, to: &Pod) -> Result<usize> {
    let capture = Capture::start(to, "eth0", frame::is_ipv4)?;
    tcp_stream(from, to, to.ip(), 1, None)?;
    capture
        .frames()
        .iter()
        .map(Vec::len)
        .max()
        .context("no frame")
}

#[test]
fn a_pod_whose_veth_must_not_offload_gets_packets_of_its_mtu() -> Result<()> {
    let pair = fast_pair("fa-veth", &[])?;
    let reader = pair.net.a.add_pod("p2")?;
    pair.sender.wait_pod(&reader, true, true)?;
    pair.near.wait_ping(reader.ip())?;
    let before = longest(&pair.near, &reader)?;
    ensure!(
        before > POD_FRAME,
        "the longest frame has {before} bytes before the change"
    );
    switch(&pair, "vethp2", "tx off tso off gso off")?;
    pair.sender.wait_pod(&reader, true, false)?;
    let status = pair.sender.pod_status(&reader)?;
    ensure!(
        status["reasons"] == serde_json::json!(["tx-checksum-ip-generic of vethp2 is off"]),
        "{status}"
    );
    let other = pair.sender.pod_status(&pair.near)?;
    ensure!(
        other["receives"] == true,
        "another pod of the bridge: {other}"
    );
    let after = longest(&pair.near, &reader)?;
    println!("longest frame {before}, then {after}");
    ensure!(after <= POD_FRAME, "the longest frame has {after} bytes");
    switch(&pair, "vethp2", "tx on tso on gso on")?;
    pair.sender.wait_pod(&reader, true, true)
}
