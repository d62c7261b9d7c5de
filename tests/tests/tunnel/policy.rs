//! IPsec policies, firewall rules and routing rules that affect the host's own tunnel packets also
//! affect those of the programs; otherwise the programs leave the peer to the kernel.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use flannel_tests::{
    Node, Pair, eventually,
    load::UdpRun,
    packet::{frame::is_encapsulated_by_us, wire::Capture},
    throughout,
};

/// The public address of the receiving node.
const C: &str = "192.168.2.13";
/// The time for which one observation of the kernel's own packets validates the path.
const INTERVAL: Duration = Duration::from_secs(2);
/// The coarse clock, the programs that run to add a rule, and the time between two readings.
const READING: Duration = Duration::from_millis(300);

/// Returns the time from the end of `block` to the last packet that came out of the tunnel. Watches
/// for twice the interval.
fn time_to_silence(pair: &Pair, block: impl FnOnce() -> Result<()>) -> Result<Duration> {
    block()?;
    let start = Instant::now();
    let (mut last, mut at) = (pair.received()?, start);
    throughout("watch", 2 * INTERVAL, || {
        let now = pair.received()?;
        if now != last {
            (last, at) = (now, Instant::now());
        }
        Ok(())
    })?;
    Ok(at - start)
}

/// A settled pair with a stream that the programs carry.
fn streaming(name: &str) -> Result<(Pair, UdpRun)> {
    let pair = Pair::new(name)?;
    pair.wait_dad()?;
    let run = pair.stream(2_000, Duration::from_mins(1))?;
    pair.wait_encapsulated(500)?;
    Ok((pair, run))
}

/// Blocks the tunnel, and checks that the last packet leaves within the interval. Runs the given
/// step, unblocks the tunnel, and checks that the programs go on.
fn is_cut_and_freed(
    (pair, run): (Pair, UdpRun),
    block: impl FnOnce(&Node) -> Result<()>,
    meanwhile: impl FnOnce(&Pair) -> Result<()>,
    unblock: &str,
) -> Result<()> {
    let silent = time_to_silence(&pair, || block(&pair.net.a))?;
    println!("silent after {silent:?}");
    assert!(silent <= INTERVAL + READING, "packets left for {silent:?}");
    meanwhile(&pair)?;
    pair.net.a.sh(unblock)?;
    pair.wait_encapsulated(500)?;
    let report = run.stop()?;
    assert!(report.lost_count() > 0 && report.received > 0, "{report:?}");
    Ok(())
}

/// The selector of an IPsec policy for tunnel packets.
const SELECTOR: &str = "src 0.0.0.0/0 dst 0.0.0.0/0 proto udp dport 8472 dir out";

fn cut_by_ipsec(
    streaming: (Pair, UdpRun),
    meanwhile: impl FnOnce(&Pair) -> Result<()>,
) -> Result<()> {
    let block = |node: &Node| {
        node.sh(&format!("ip xfrm policy add {SELECTOR} action block"))
            .map(drop)
    };
    is_cut_and_freed(
        streaming,
        block,
        meanwhile,
        &format!("ip xfrm policy delete {SELECTOR}"),
    )
}

#[test]
fn an_ipsec_policy_that_blocks_the_tunnel_blocks_the_programs() -> Result<()> {
    cut_by_ipsec(streaming("ipsec")?, |pair| {
        let peer = pair.sender.peer_status(C)?;
        assert!(
            peer["way"] == "kernel" && peer["reason"].to_string().contains("IPsec"),
            "{peer}"
        );
        let capture = Capture::tunnel(&pair.net.r, "eth-a")?;
        throughout("nothing on the underlay", Duration::from_secs(3), || {
            ensure!(capture.is_empty(), "{} tunnel packets", capture.len());
            Ok(())
        })
    })
}

/// No agent reads the policies then; what the programs see of the kernel's own packets must
/// suffice.
#[test]
fn an_ipsec_policy_blocks_the_programs_of_a_dead_agent_too() -> Result<()> {
    let streaming = streaming("ipsec-dead")?;
    streaming.0.sender.kill9()?;
    cut_by_ipsec(streaming, |_| Ok(()))
}

#[test]
fn a_firewall_rule_against_the_tunnel_cuts_within_the_interval_and_frees_when_removed() -> Result<()>
{
    let rules = "table ip cut \
        { chain o { type filter hook output priority 0; policy accept; udp dport 8472 drop; }; }";
    let block = |node: &Node| node.nft(rules);
    is_cut_and_freed(
        streaming("output")?,
        block,
        |_| Ok(()),
        "nft delete table ip cut",
    )
}

/// The programs' packets would not carry the mark, so the kernel must send all packets.
#[test]
fn what_the_firewall_changes_of_outer_packets_it_changes_of_all() -> Result<()> {
    let (pair, run) = streaming("dscp")?;
    let rules = "table ip class \
        { chain o { type filter hook postrouting priority 0; policy accept; \
        udp dport 8472 ip dscp set ef; }; }";
    pair.net.a.nft(rules)?;
    let capture = Capture::tunnel(&pair.net.r, "eth-a")?;
    eventually("no packet of the programs", INTERVAL + READING, || {
        let before = pair.encapsulated()?;
        pair.wait_received(200)?;
        ensure!(pair.encapsulated()? == before, "encapsulated");
        Ok(())
    })?;
    capture.clear();
    pair.wait_received(4_000)?;
    let frames = capture.frames();
    let unclassed = frames.iter().filter(|frame| frame[15] >> 2 != 46).count();
    assert!(
        frames.len() >= 4_000 && unclassed == 0,
        "{unclassed} of {} without the class",
        frames.len()
    );
    assert!(!frames.iter().any(|frame| is_encapsulated_by_us(frame)));
    pair.net.a.sh("nft delete table ip class")?;
    pair.wait_encapsulated(500)?;
    run.stop()?.expect_complete()
}

#[test]
fn a_routing_rule_on_marks_leaves_the_peer_to_the_kernel_until_it_goes() -> Result<()> {
    let (pair, run) = streaming("rule")?;
    let by = |way: &str| {
        eventually(&format!("way {way}"), Duration::from_secs(5), || {
            let peer = pair.sender.peer_status(C)?;
            ensure!(peer["way"] == way, "{peer}");
            Ok(peer["reason"].clone())
        })
    };
    pair.net
        .a
        .sh("ip rule add fwmark 0x1 table 100 priority 100")?;
    let reason = by("kernel")?;
    assert_eq!(reason, "routing rule 100 looks at the firewall mark");
    let before = pair.encapsulated()?;
    pair.wait_received(2_000)?;
    assert_eq!(pair.encapsulated()?, before);
    pair.net.a.sh("ip rule delete priority 100")?;
    assert!(by("tunnel")?.is_null());
    pair.wait_encapsulated(500)?;
    run.stop()?.expect_complete()
}
