//! Packets that pods send arrive: in mode `encap` as in mode `kernel`, over a cable with offloads
//! and over one without. The assertions are the same in all four cases.

use std::{net::Ipv4Addr, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Host, Pair, TwoNodes,
    agent::Tally,
    cluster::{
        self,
        topology::{OFFLOAD, Stack, WIRE},
    },
    eventually,
    load::{
        UdpLoad, UdpRun,
        iperf::tcp_stream,
        rr::{Protocol, rr},
        segmented::{Segmented, send},
    },
    packet::{
        Packet,
        frame::{self, is_encapsulated_by_us},
        wire::{Capture, inject},
    },
};
use ipnet::IpNet;

/// The receiving node over IPv6.
const FAR_V6: &str = "2001:db8:2::13";

/// Runs `check` over IPv4 in both modes and over both kinds of cable, and sees to it that the
/// packets went the way they should. What `check` returns must be the same each time.
fn in_every_way<T: PartialEq + std::fmt::Debug>(
    name: &str,
    check: impl Fn(&Pair) -> Result<T>,
) -> Result<T> {
    in_every_way_of(name, Stack::V4, check)
}

/// The same over IPv4, and over IPv6. Each has its own result.
fn over_each_family<T: PartialEq + std::fmt::Debug>(
    name: &str,
    check: impl Fn(&Pair) -> Result<T>,
) -> Result<[T; 2]> {
    let v4 = in_every_way_of(name, Stack::V4, &check).context("IPv4")?;
    Ok([
        v4,
        in_every_way_of(&format!("{name}6"), Stack::V6, &check).context("IPv6")?,
    ])
}

fn in_every_way_of<T: PartialEq + std::fmt::Debug>(
    name: &str,
    stack: Stack,
    check: impl Fn(&Pair) -> Result<T>,
) -> Result<T> {
    let pair = Pair::with(name, stack, &[])?;
    let mut results = Vec::new();
    for (cable, features) in [("offload", OFFLOAD), ("wire", WIRE)] {
        pair.set_offloads(features)?;
        for mode in ["kernel", "encap"] {
            let way = format!("mode {mode}, cable {cable}");
            pair.set_mode(mode)?;
            let before = pair.encapsulated()?;
            results.push((way.clone(), check(&pair).with_context(|| way.clone())?));
            let taken = pair.encapsulated()? - before;
            ensure!(
                (taken > 0) == (mode == "encap"),
                "{way}: {taken} packets encapsulated by the programs"
            );
        }
    }
    for (way, result) in &results[1..] {
        assert_eq!(result, &results[0].1, "{way} against {}", results[0].0);
    }
    Ok(results.swap_remove(0).1)
}

/// The last CPU: both ends of a stream on one, or the veth cables reorder by themselves.
fn cpu() -> Result<usize> {
    Ok(thread::available_parallelism()?.get() - 1)
}

/// A node's subnet with the gateway's address.
fn subnet(node: &flannel_tests::Node) -> Result<IpNet> {
    node.subnet_env()?
        .subnets
        .first()
        .copied()
        .context("a subnet")
}

#[test]
fn bulk_tcp_travels_in_large_packets_and_hardly_repeats_itself() -> Result<()> {
    over_each_family("tcp", |pair| {
        let left = || -> Result<Tally> {
            let [a, b] = ["encapsulated", "mode_kernel"]
                .map(|reason| pair.sender.tally("to_tunnel", reason));
            let (a, b) = (a?, b?);
            Ok(Tally {
                packets: a.packets + b.packets,
                bytes: a.bytes + b.bytes,
            })
        };
        let segments = |name: &str| pair.near.counter("Tcp", name);
        let wire = || -> Result<Tally> {
            let of = |name: &str| pair.net.r.device_counter("eth-a", name);
            Ok(Tally {
                packets: of("rx_packets")?,
                bytes: of("rx_bytes")?,
            })
        };
        let before = [left()?, wire()?];
        let (sent, again) = (segments("OutSegs")?, segments("RetransSegs")?);
        let stream = tcp_stream(&pair.near, &pair.far, pair.far.ip(), 2, Some(cpu()?))?;
        let after = [left()?, wire()?];
        let (sent, again) = (
            segments("OutSegs")? - sent,
            segments("RetransSegs")? - again,
        );
        println!(
            "{:.2} Gbit/s, {again} of {sent} segments again",
            stream.bits_per_second / 1e9
        );
        ensure!(stream.bits_per_second > 0.0, "{stream:?}");
        ensure!(
            again * 100 <= sent,
            "{again} of {sent} segments were sent again"
        );
        // Full segments of 1500 bytes, or several in one; smaller ones would show that the size of
        // segments was changed.
        for (place, at, least) in [("sender", 0, 3 * 1430), ("underlay", 1, 1490)] {
            let Tally { packets, bytes } = after[at].since(before[at]);
            let mean = bytes / packets.max(1);
            ensure!(
                mean >= least,
                "packets of {mean} bytes on average at the {place}, not of {least}"
            );
        }
        Ok(())
    })
    .map(drop)
}

/// Outer checksums of 0 do not keep the receiving device from merging segments. On one cable: a
/// router hands them on one by one.
#[test]
fn the_receiver_gets_bulk_tcp_over_ipv6_in_large_packets() -> Result<()> {
    let config = cluster::config(Stack::V6, r#"{"Type":"vxlan"}"#);
    let nodes = TwoNodes::with("merged6", Stack::V6, &config)?;
    let [sender, receiver] = nodes.agents()?;
    let (near, far) = (nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?);
    near.wait_ping(far.ip())?;
    for (cable, features) in [("offload", OFFLOAD), ("wire", WIRE)] {
        for mode in ["kernel", "encap"] {
            for agent in [&sender, &receiver] {
                agent.node().sh(&format!("ethtool -K eth0 {features}"))?;
                agent.set_mode(mode)?;
            }
            let came = || receiver.tally("from_underlay", "tunnel_good");
            let before = came()?;
            tcp_stream(&near, &far, far.ip(), 2, Some(cpu()?))?;
            let Tally { packets, bytes } = came()?.since(before);
            let mean = bytes / packets.max(1);
            ensure!(
                mean > 3 * 1430,
                "mode {mode}, cable {cable}: packets of {mean} bytes on average"
            );
        }
    }
    Ok(())
}

#[test]
fn datagrams_cut_by_the_kernel_arrive_whole_and_in_order() -> Result<()> {
    let numbers = over_each_family("gso", |pair| {
        let sent = |load| send(&pair.near, &pair.far, pair.far.ip(), load);
        // The path must have been seen to take datagrams of this size, or the programs leave them
        // to the kernel.
        sent(Segmented {
            sends: 2,
            segments: 1,
            size: 1200,
        })?;
        let before = pair.encapsulated()?;
        let numbers = sent(Segmented {
            sends: 50,
            segments: 40,
            size: 1200,
        })?;
        let taken = pair.encapsulated()? - before;
        ensure!(
            taken == 0 || taken >= 40,
            "{taken} of 50 buffers encapsulated"
        );
        Ok(numbers)
    })?;
    assert_eq!(numbers, [(); 2].map(|()| (0..2000).collect::<Vec<_>>()));
    Ok(())
}

/// Cut by the sending node and not merged by the receiving one: every segment is a packet in its
/// own right, with the outer checksum 0 in each.
#[test]
fn every_segment_over_ipv6_leaves_with_checksum_zero_and_its_own_lengths() -> Result<()> {
    let pair = Pair::with("segments6", Stack::V6, &[])?;
    let (sender, receiver) = (pair.sender.node(), pair.receiver.node());
    sender.sh("ethtool -K eth0 tso off tx-udp_tnl-segmentation off tx off")?;
    receiver.sh("ethtool -K eth0 gro off")?;
    let sent = |load| send(&pair.near, &pair.far, pair.far.ip(), load);
    sent(Segmented {
        sends: 2,
        segments: 1,
        size: 1200,
    })?;
    let capture = Capture::start(receiver, "eth0", frame::is_tunnel_v6)?;
    let before = pair.encapsulated()?;
    sent(Segmented {
        sends: 10,
        segments: 40,
        size: 1200,
    })?;
    let stream = || tcp_stream(&pair.near, &pair.far, pair.far.ip(), 1, Some(cpu()?));
    eventually("a stream", Duration::from_secs(5), stream)?;
    ensure!(
        pair.encapsulated()? - before > 10,
        "nothing was encapsulated"
    );
    let frames = capture.frames();
    let ours: Vec<_> = frames
        .iter()
        .filter(|frame| is_encapsulated_by_us(frame))
        .collect();
    ensure!(
        ours.len() * 10 > frames.len() * 9,
        "{} of {} frames are ours",
        ours.len(),
        frames.len()
    );
    for frame in &frames {
        if let Some(fault) = frame::fault_v6(frame) {
            anyhow::bail!("{fault}: {:02x?}", &frame[..frame.len().min(160)]);
        }
    }
    let full = ours.iter().filter(|frame| frame.len() == 1514).count();
    ensure!(
        full * 2 > ours.len(),
        "{full} of {} frames are full",
        ours.len()
    );
    Ok(())
}

/// The receiver of replies also counts them as tunnel packets of a known peer, regardless of
/// whether the kernel or the programs encapsulated them. Routers announce themselves by link-local
/// addresses, so that is the next hop over IPv6.
#[test]
fn received_packets_are_known_by_their_sender() -> Result<()> {
    over_each_family("known", |pair| {
        let good = || pair.sender.counted("from_underlay", "tunnel_good");
        let before = good()?;
        for _ in 0..2 {
            pair.near.ping(pair.far.ip())?;
        }
        let packets = good()? - before;
        ensure!(packets >= 6, "{packets} of 6");
        Ok(())
    })
    .map(drop)
}

#[test]
fn a_next_hop_may_be_a_link_local_address() -> Result<()> {
    let pair = Pair::with("hop6", Stack::V6, &[])?;
    assert_eq!(pair.sender.peer_entry(FAR_V6)?["next_hop"], "fe80::1");
    let before = pair.encapsulated()?;
    for _ in 0..2 {
        pair.near.ping(pair.far.ip())?;
    }
    ensure!(pair.encapsulated()? > before, "nothing was encapsulated");
    Ok(())
}

/// The outer packet is never fragmented. In either mode, the kernel reports the smaller MTU to a
/// pod whose packets are too large for the path.
#[test]
fn a_packet_too_large_for_the_underlay_is_answered() -> Result<()> {
    let pair = Pair::with("big6", Stack::V6, &[])?;
    let (from, to) = (&pair.near, pair.far.ip());
    pair.net.a.sh(&format!(
        "ip -6 route add {FAR_V6}/128 via fe80::1 dev eth0 mtu 1400"
    ))?;
    for mode in ["kernel", "encap"] {
        pair.set_mode(mode)?;
        from.sh("ip -6 route flush cache")?;
        // 1400 bytes less the tunnel's 70.
        let too_large = format!("ping -n -c 4 -i 0.05 -W 1 -M do -s {} {to}", 1430 - 48);
        let too_large = from.command(too_large.split(' ')).any_code().run()?.stdout;
        ensure!(
            too_large.contains("mtu=1330") || too_large.contains("mtu = 1330"),
            "mode {mode}: {too_large}"
        );
        from.pings(4, &format!("-M do -s {}", 1330 - 48), to)
            .with_context(|| format!("mode {mode}"))?;
    }
    ensure!(pair.encapsulated()? > 0, "nothing was encapsulated");
    Ok(())
}

#[test]
fn datagrams_larger_than_the_mtu_arrive() -> Result<()> {
    in_every_way("fragments", |pair| {
        let load = UdpLoad {
            pps: 500,
            duration: Duration::from_secs(1),
            payload: 4000,
        };
        let before = pair.near.counter("Ip", "FragCreates")?;
        let report = UdpRun::start(&pair.near, &pair.far, pair.far.ip(), load)?.wait()?;
        let fragments = pair.near.counter("Ip", "FragCreates")? - before;
        ensure!(
            fragments >= 3 * report.sent,
            "{fragments} fragments of {} datagrams",
            report.sent
        );
        ensure!(
            report.sent == 500 && report.lost.is_empty() && report.duplicated == 0,
            "{report:?}"
        );
        Ok(())
    })
}

/// A pod with a larger MTU than the tunnel's receives the tunnel's MTU in an ICMP error, and a
/// packet that fits exactly passes.
#[test]
fn a_packet_that_may_not_be_cut_and_does_not_fit_is_answered() -> Result<()> {
    let answer = in_every_way("df", |pair| {
        pair.net
            .a
            .sh(&format!("ip link set {} mtu 1500", pair.near.veth()))?;
        pair.net.a.sh("ip link set cni0 mtu 1500")?;
        pair.near.sh("ip link set eth0 mtu 1500")?;
        pair.near.sh("ip route flush cache")?;
        let too_large = format!("ping -n -c 3 -i 0.01 -W 1 -M do -s 1472 {}", pair.far.ip());
        let too_large = pair
            .near
            .command(too_large.split(' '))
            .expect_code(1)
            .run()?;
        let line = too_large
            .stdout
            .lines()
            .find(|line| line.starts_with("From "))
            .context(too_large.stdout.clone())?;
        pair.near
            .pings(3, &format!("-M do -s {}", 1450 - 28), pair.far.ip())?;
        Ok(line.to_owned())
    })?;
    assert!(
        answer.contains("mtu = 1450") || answer.contains("mtu=1450"),
        "{answer}"
    );
    Ok(())
}

#[test]
fn a_traced_route_is_the_kernels() -> Result<()> {
    let (expected, hops) = in_every_way("trace", |pair| {
        pair.near.ping(pair.far.ip())?;
        let hops = (1..=3)
            .map(|ttl| hop(&pair.near, pair.far.ip4()?, ttl))
            .collect::<Result<Vec<_>>>()?;
        let (gateway, peer) = (subnet(&pair.net.a)?.addr(), subnet(&pair.net.c)?.network());
        Ok((
            vec![
                gateway.to_string(),
                peer.to_string(),
                pair.far.ip().to_string(),
            ],
            hops,
        ))
    })?;
    assert_eq!(hops, expected);
    Ok(())
}

/// Returns the address that answers a packet with this TTL.
fn hop(from: &Host, to: Ipv4Addr, ttl: u8) -> Result<String> {
    let line = format!("ping -n -c 1 -W 2 -t {ttl} {to}");
    let output = from.command(line.split(' ')).any_code().run()?;
    let answer = output.stdout.lines().find_map(|line| {
        let (_, rest) = line
            .split_once("rom ")
            .filter(|_| line.contains("icmp_seq"))?;
        rest.split([' ', ':']).next()
    });
    answer
        .map(str::to_owned)
        .with_context(|| format!("nobody answers at TTL {ttl}:\n{}", output.stdout))
}

/// [RFC 6040, section 4.2](https://www.rfc-editor.org/rfc/rfc6040#section-4.2): what a router marks
/// outside shows inside; where the ends do not speak ECN the packet is dropped instead.
#[test]
fn congestion_marks_survive_the_tunnel() -> Result<()> {
    let arrived = in_every_way("ecn", |pair| {
        let rules = "table ip congested \
            { chain f { type filter hook forward priority 0; udp dport 8472 ip ecn set ce; }; }";
        let capture = Capture::start(&pair.far, "eth0", frame::is_ipv4)?;
        let plain = tos_at_the_far_end(pair, &capture, 100)?;
        pair.net.r.nft(rules)?;
        let marked = tos_at_the_far_end(pair, &capture, 200);
        pair.net.r.sh("nft delete table ip congested")?;
        Ok([plain, marked?])
    })?;
    let three = |tos: [u8; 4]| tos.into_iter().flat_map(|tos| [tos; 3]).collect::<Vec<_>>();
    assert_eq!(arrived[0], three([0, 3, 1, 2]), "unmarked: as sent");
    assert_eq!(
        arrived[1],
        three([0, 3, 3, 3])[3..],
        "marked: CE, and Not-ECT is dropped"
    );
    Ok(())
}

/// The TOS of packets sent with Not-ECT, CE, ECT(1) and ECT(0), three of each, as they arrive.
fn tos_at_the_far_end(pair: &Pair, capture: &Capture, first: u16) -> Result<Vec<u8>> {
    let ids: Vec<u16> = (first..first + 12).collect();
    for (id, class) in ids.iter().zip([0, 0, 0, 3, 3, 3, 1, 1, 1, 2, 2, 2]) {
        inject(
            &pair.near,
            &Packet {
                class,
                ..Packet::udp(pair.near.ip(), pair.far.ip(), *id, 32)
            },
        )?;
    }
    let found = || -> Vec<(u16, u8)> {
        let frames = capture.frames();
        let headers = frames.iter().filter_map(|frame| frame::ipv4(frame));
        // Port unreachable messages do not arrive here; the id identifies our datagrams.
        let seen = headers.map(|header| (header.identification(), header.slice()[1]));
        seen.filter(|(id, _)| ids.contains(id)).collect()
    };
    // Packets of one flow keep their order, so what is missing when the last one is there was
    // dropped.
    eventually("the last packet", Duration::from_secs(3), || {
        found()
            .last()
            .is_some_and(|(id, _)| *id == first + 11)
            .then_some(())
    })?;
    Ok(found().into_iter().map(|(_, tos)| tos).collect())
}

/// The node itself speaks from the first address of its subnet, which peers can answer to.
#[test]
fn nodes_and_pods_reach_each_other() -> Result<()> {
    in_every_way("host", |pair| {
        let own = subnet(&pair.net.a)?.network();
        // Its own node sends packets to this pod as well.
        let capture = Capture::start(&pair.far, "eth0", frame::is_echo_request)?;
        pair.net.a.pings(3, "", pair.far.ip())?;
        // The answers may be back before the capture has its frames.
        let sources = eventually("three captured pings", Duration::from_secs(2), || {
            let frames = capture.frames();
            let sources: Vec<_> = frames
                .iter()
                .filter_map(|frame| Some(frame::ipv4(frame)?.source_addr()))
                .collect();
            (sources.len() >= 3).then_some(sources)
        })?;
        ensure!(sources.iter().all(|source| *source == own), "{sources:?}");
        pair.far.ping(own)?;
        pair.near.ping(subnet(&pair.net.c)?.network())?;
        let report = rr(
            &pair.net.a,
            &pair.far,
            pair.far.ip(),
            Protocol::Tcp,
            Duration::from_millis(200),
        )?;
        ensure!(report.transactions > 0 && report.lost == 0, "{report:?}");
        Ok(())
    })
}
