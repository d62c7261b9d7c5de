//! A node in mode `fast` next to a stock node, whose vxlan device computes outer UDP checksums, and
//! over IPv6 refuses packets without one. Packets whose checksum is not verified yet go to the
//! kernel, which verifies it; everything arrives.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use etherparse::ip_number;
use flannel_common::abi::{program::Program, reason::Reason};
use flannel_tests::{
    Mixed, Pod,
    cluster::topology::{OFFLOAD, Stack},
    eventually,
    fast::{Counters, FLAGS},
    load::{
        bulk::{Bulk, BulkLoad, transfer},
        segmented::{Segmented, send},
        udp_stream,
    },
    packet::{
        Packet, frame,
        wire::{Capture, inject, inject_frame},
    },
    throughout,
};

/// Blocks each way: 8 MB.
const BLOCKS: u64 = 128;
/// Packets cross the cable as they would a wire, and the receiver's GRO verifies what it takes in.
const VERIFIED: &str = "tso off tx-udp_tnl-segmentation off gro on tx off";
/// Without GRO nothing does.
const UNVERIFIED: &str = "tso off tx-udp_tnl-segmentation off gro off tx off";

fn mixed(name: &str, stack: Stack) -> Result<Mixed> {
    let mixed = Mixed::new(name, stack, &FLAGS)?;
    mixed.agent.wait_pod(&mixed.ours, true, true)?;
    Ok(mixed)
}

fn set_cable(mixed: &Mixed, features: &str) -> Result<()> {
    for node in [&mixed.nodes.a, &mixed.nodes.b] {
        node.sh("ethtool -K eth0 tx on")?;
        node.sh(&format!("ethtool -K eth0 {features}"))?;
    }
    Ok(())
}

/// Returns how many packets `from_underlay` counted for this reason during `work`.
fn counted(mixed: &Mixed, reason: Reason, work: impl FnOnce() -> Result<()>) -> Result<u64> {
    let counters = Counters::of(&mixed.agent)?;
    let before = counters.packets(Program::FromUnderlay, reason)?;
    work()?;
    Ok(counters.packets(Program::FromUnderlay, reason)? - before)
}

fn stream(from: &Pod, to: &Pod) -> Result<()> {
    udp_stream(from, to, 2_000, Duration::from_secs(1))?.expect_complete()
}

/// TCP both ways at once, single datagrams and segmented ones: all arrive as they were sent.
fn everything_arrives(mixed: &Mixed) -> Result<()> {
    let (ours, stocks) = (&mixed.ours, &mixed.stocks);
    transfer(ours, stocks, (stocks.ip(), 0).into(), BLOCKS)?;
    for (from, to) in [(ours, stocks), (stocks, ours)] {
        stream(from, to)?;
        send(
            from,
            to,
            to.ip(),
            Segmented {
                sends: 20,
                segments: 1,
                size: 1200,
            },
        )?;
        let mut numbers = send(
            from,
            to,
            to.ip(),
            Segmented {
                sends: 25,
                segments: 40,
                size: 1200,
            },
        )?;
        numbers.sort_unstable();
        ensure!(numbers.into_iter().eq(0..1000), "lost or repeated");
    }
    Ok(())
}

fn talk_both_ways(name: &str, stack: Stack) -> Result<()> {
    let mixed = mixed(name, stack)?;
    for (cable, features) in [
        ("offload", OFFLOAD),
        ("verified", VERIFIED),
        ("unverified", UNVERIFIED),
    ] {
        set_cable(&mixed, features)?;
        let replayed = mixed.agent.counted("from_pod", "replayed")?;
        everything_arrives(&mixed).context(cable)?;
        let replayed = mixed.agent.counted("from_pod", "replayed")? - replayed;
        // To a stock node IPv6 goes by its own device.
        ensure!(
            (replayed > 1_000) == (stack == Stack::V4),
            "{cable}: {replayed} packets of ours are replayed"
        );
        let reason = if cable == "verified" {
            Reason::Replayed
        } else {
            Reason::OuterChecksum
        };
        let packets =
            counted(&mixed, reason, || stream(&mixed.stocks, &mixed.ours)).context(cable)?;
        // Its first 150 ms a flow is unconfirmed: 300 packets. Who verified an outer checksum is
        // asked before that.
        let least = if reason == Reason::Replayed {
            1_500
        } else {
            1_900
        };
        ensure!(
            packets > least,
            "{cable}: {packets} of 2000 are {}",
            reason.name()
        );
    }
    through_services(&mixed)
}

#[test]
fn a_stock_node_and_ours_talk_both_ways() -> Result<()> {
    talk_both_ways("fm-talk", Stack::V4)
}

#[test]
fn a_stock_node_and_ours_talk_both_ways_over_ipv6() -> Result<()> {
    talk_both_ways("fm-talk6", Stack::V6)
}

/// On either node a Service that leads to the other's pod, as kube-proxy would make it.
fn through_services(mixed: &Mixed) -> Result<()> {
    let is_v4 = mixed.ours.ip().is_ipv4();
    let (family, address): (_, IpAddr) = if is_v4 {
        ("ip", "10.96.0.1".parse()?)
    } else {
        ("ip6", "fd00:10:96::1".parse()?)
    };
    for (from, to) in [(&mixed.ours, &mixed.stocks), (&mixed.stocks, &mixed.ours)] {
        let target = SocketAddr::new(to.ip(), 8080);
        let chain = "type nat hook prerouting priority -100;";
        let rule = format!("{family} daddr {address} tcp dport 80 dnat to {target}");
        let script =
            format!("table {family} service {{\n chain pre {{\n {chain}\n {rule}\n }}\n }}\n");
        from.node().nft(&script)?;
        let before = mixed.agent.replayed()?;
        let service = SocketAddr::new(address, 80);
        // More than half a second, of which the flow is unconfirmed for a tenth.
        let load = BulkLoad {
            rate: Some(200),
            ..BulkLoad::blocks(BLOCKS)
        };
        Bulk::start(from, to, target, Some(service), load)?
            .wait()
            .context(from.node().name().to_owned())?;
        ensure!(
            mixed.agent.replayed()? - before > 50 || !is_v4,
            "from {}: nothing is replayed",
            from.name()
        );
    }
    Ok(())
}

/// Returns a datagram with this DSCP and ECN, from port 4242 to port 4243.
fn datagram(from: IpAddr, to: IpAddr, number: u16, class: u8) -> Packet {
    Packet {
        class,
        ..Packet::udp(from, to, number, 64)
    }
}

fn is_datagram(frame: &[u8]) -> bool {
    frame::ip(frame).is_some_and(|ip| ip.payload_ip_number() == ip_number::UDP)
}

/// From each pod to the other, in the middle of a flow.
fn classes_arrive(mixed: &Mixed) -> Result<()> {
    for (from, to) in [(&mixed.ours, &mixed.stocks), (&mixed.stocks, &mixed.ours)] {
        let _listener = to.enter(|| UdpSocket::bind((to.ip(), 4243)))??;
        let capture = Capture::start(to, "eth0", is_datagram)?;
        for sent in [0, 1, 2, 3, 0xb8, 0xba, 0xbb] {
            capture.clear();
            (0..20).try_for_each(|_| inject(from, &datagram(from.ip(), to.ip(), 1, sent)))?;
            eventually("twenty datagrams", Duration::from_secs(5), || {
                ensure!(
                    capture.len() == 20,
                    "{} of 20 with class {sent:#x}",
                    capture.len()
                );
                Ok(())
            })?;
            let frames = capture.frames();
            let classes: Vec<_> = frames
                .iter()
                .filter_map(|frame| Some(frame::class(&frame::ip(frame)?)))
                .collect();
            ensure!(
                classes == [sent; 20],
                "{sent:#x} from {}: {classes:x?}",
                from.name()
            );
        }
    }
    Ok(())
}

/// Checks that frames of the stock node that were damaged on their way do not arrive. Only the
/// outer checksum shows the damage to the inner packet.
fn damaged_frames_do_not_arrive(mixed: &Mixed) -> Result<()> {
    let (from, to) = (&mixed.stocks, &mixed.ours);
    let is_tunnel = if to.ip().is_ipv4() {
        frame::is_tunnel
    } else {
        frame::is_tunnel_v6
    };
    let _listener = to.enter(|| UdpSocket::bind((to.ip(), 4243)))??;
    let wire = Capture::start(&mixed.nodes.a, "eth0", is_tunnel)?;
    let packet = datagram(from.ip(), to.ip(), 2, 0);
    eventually("the flow to be replayed", Duration::from_secs(10), || {
        let replayed = counted(mixed, Reason::Replayed, || {
            (0..50).try_for_each(|_| inject(from, &packet))
        })?;
        ensure!(replayed > 10, "{replayed} of 50 are replayed");
        Ok(())
    })?;
    let frame = wire
        .frames()
        .into_iter()
        .rev()
        .find(|frame| frame.ends_with(&packet.bytes()[12..]))
        .context("no frame")?;
    let mut damaged = frame.clone();
    *damaged.last_mut().context("bytes")? ^= 0x5a;
    let pod = Capture::start(to, "eth0", is_datagram)?;
    let arrived = |frame: &[u8]| {
        pod.frames()
            .iter()
            .filter(|seen| seen.last() == frame.last())
            .count()
    };
    let unverified = counted(mixed, Reason::OuterChecksum, || {
        (0..20).try_for_each(|_| inject_frame(&mixed.nodes.b, "eth0", &damaged))?;
        inject_frame(&mixed.nodes.b, "eth0", &frame)?;
        eventually("the intact frame", Duration::from_secs(5), || {
            (arrived(&frame) > 0).then_some(())
        })
    })?;
    ensure!(unverified >= 20, "{unverified} of 20 were found unverified");
    throughout(
        "no damaged frame arrives",
        Duration::from_millis(200),
        || {
            ensure!(arrived(&damaged) == 0, "{} did", arrived(&damaged));
            Ok(())
        },
    )
}

#[test]
fn what_a_stock_node_sends_is_carried_as_it_is_or_not_at_all() -> Result<()> {
    for stack in [Stack::V4, Stack::V6] {
        let mixed = mixed(
            if stack == Stack::V4 {
                "fm-as"
            } else {
                "fm-as6"
            },
            stack,
        )?;
        set_cable(&mixed, VERIFIED)?;
        classes_arrive(&mixed).with_context(|| format!("{stack:?}"))?;
        damaged_frames_do_not_arrive(&mixed).with_context(|| format!("{stack:?}"))?;
    }
    Ok(())
}
