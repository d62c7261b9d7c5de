//! Packets that pods send arrive: in mode `encap` as in mode `kernel`, over a cable with offloads
//! and over one without. The assertions are the same in all four cases.

use std::{net::Ipv4Addr, thread, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Host, Pair, eventually,
    load::{
        UdpLoad, UdpRun,
        iperf::tcp_stream,
        rr::{Protocol, rr},
        segmented::{Segmented, send},
    },
    packet::{self, Ipv4, identification},
    topology::{OFFLOAD, WIRE},
    wire::{Capture, inject},
};
use ipnet::IpNet;

/// Runs `check` in both modes over both kinds of cable, and sees to it that the packets went the way they should. What
/// `check` returns must be the same each time.
fn in_every_way<T: PartialEq + std::fmt::Debug>(name: &str, check: impl Fn(&Pair) -> Result<T>) -> Result<T> {
    let pair = Pair::new(name)?;
    let mut results = Vec::new();
    for (cable, features) in [("offload", OFFLOAD), ("wire", WIRE)] {
        pair.set_offloads(features)?;
        for mode in ["kernel", "encap"] {
            let way = format!("mode {mode}, cable {cable}");
            pair.set_mode(mode)?;
            let before = pair.encapsulated()?;
            results.push((way.clone(), check(&pair).with_context(|| way.clone())?));
            let taken = pair.encapsulated()? - before;
            ensure!((taken > 0) == (mode == "encap"), "{way}: {taken} packets encapsulated by the programs");
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
    node.subnet_env()?.subnets.first().copied().context("a subnet")
}

#[test]
fn bulk_tcp_travels_in_large_packets_and_hardly_repeats_itself() -> Result<()> {
    in_every_way("tcp", |pair| {
        let reasons = ["encapsulated", "mode_kernel"];
        let sum = || -> Result<(u64, u64)> {
            let tallies = reasons.map(|reason| pair.sender.tally("to_tunnel", reason));
            let [a, b] = tallies;
            let (a, b) = (a?, b?);
            Ok((a.packets + b.packets, a.bytes + b.bytes))
        };
        let segments = |name: &str| pair.near.counter("Tcp", name);
        let wire = || -> Result<[u64; 2]> {
            let of = |name: &str| pair.net.r.device_counter("eth-a", name);
            Ok([of("rx_bytes")?, of("rx_packets")?])
        };
        let on_the_wire = wire()?;
        let (before, sent, again) = (sum()?, segments("OutSegs")?, segments("RetransSegs")?);
        let stream = tcp_stream(&pair.near, &pair.far, pair.far.ip(), 2, Some(cpu()?))?;
        let after = sum()?;
        let (sent, again) = (segments("OutSegs")? - sent, segments("RetransSegs")? - again);
        println!("{:.2} Gbit/s, {again} of {sent} segments again", stream.bits_per_second / 1e9);
        ensure!(stream.bits_per_second > 0.0, "{stream:?}");
        ensure!(again * 100 <= sent, "{again} of {sent} segments were sent again");
        let mean = (after.1 - before.1) / (after.0 - before.0).max(1);
        ensure!(mean > 3 * 1450, "packets of {mean} bytes on average: segmentation offload was lost on the way");
        // Full segments of 1500 bytes, or several in one; smaller ones would show that the size of segments was changed.
        let now = wire()?;
        let mean = (now[0] - on_the_wire[0]) / (now[1] - on_the_wire[1]).max(1);
        ensure!(mean >= 1490, "frames of {mean} bytes on average on the underlay");
        Ok(())
    })
}

#[test]
fn datagrams_cut_by_the_kernel_arrive_whole_and_in_order() -> Result<()> {
    let numbers = in_every_way("gso", |pair| {
        // The path must have been seen to take datagrams of this size, or the programs leave them to the kernel.
        send(&pair.near, &pair.far, pair.far.ip(), Segmented { sends: 2, segments: 1, size: 1200 })?;
        let load = Segmented { sends: 50, segments: 40, size: 1200 };
        let before = pair.encapsulated()?;
        let numbers = send(&pair.near, &pair.far, pair.far.ip(), load)?;
        let taken = pair.encapsulated()? - before;
        ensure!(taken == 0 || taken >= 40, "{taken} of 50 buffers encapsulated");
        Ok(numbers)
    })?;
    assert_eq!(numbers, (0..2000).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn datagrams_larger_than_the_mtu_arrive() -> Result<()> {
    in_every_way("fragments", |pair| {
        let load = UdpLoad { pps: 500, duration: Duration::from_secs(1), payload: 4000 };
        let before = pair.near.counter("Ip", "FragCreates")?;
        let report = UdpRun::start(&pair.near, &pair.far, pair.far.ip(), load)?.wait()?;
        let fragments = pair.near.counter("Ip", "FragCreates")? - before;
        ensure!(fragments >= 3 * report.sent, "{fragments} fragments of {} datagrams", report.sent);
        ensure!(report.sent == 500 && report.lost.is_empty() && report.duplicated == 0, "{report:?}");
        Ok(())
    })
}

/// A pod with a larger MTU than the tunnel's receives the tunnel's MTU in an ICMP error, and a
/// packet that fits exactly passes.
#[test]
fn a_packet_that_may_not_be_cut_and_does_not_fit_is_answered() -> Result<()> {
    let answer = in_every_way("df", |pair| {
        pair.net.a.sh(&format!("ip link set {} mtu 1500", pair.near.veth()))?;
        pair.net.a.sh("ip link set cni0 mtu 1500")?;
        pair.near.sh("ip link set eth0 mtu 1500")?;
        pair.near.sh("ip route flush cache")?;
        let ping = |size: u32| format!("ping -n -c 3 -i 0.01 -W 1 -M do -s {size} {}", pair.far.ip());
        let too_large = pair.near.command(ping(1472).split(' ')).expect_code(1).run()?;
        let line = too_large.stdout.lines().find(|line| line.starts_with("From ")).context(too_large.stdout.clone())?;
        let fits = pair.near.sh(&ping(1450 - 28))?;
        ensure!(fits.stdout.contains(" 0% packet loss"), "{}", fits.stdout);
        Ok(line.to_owned())
    })?;
    assert!(answer.contains("mtu = 1450") || answer.contains("mtu=1450"), "{answer}");
    Ok(())
}

#[test]
fn a_traced_route_is_the_kernels() -> Result<()> {
    let (expected, hops) = in_every_way("trace", |pair| {
        pair.near.ping(pair.far.ip())?;
        let hops = (1..=3).map(|ttl| hop(&pair.near, pair.far.ip4()?, ttl)).collect::<Result<Vec<_>>>()?;
        let (gateway, peer) = (subnet(&pair.net.a)?.addr(), subnet(&pair.net.c)?.network());
        Ok((vec![gateway.to_string(), peer.to_string(), pair.far.ip().to_string()], hops))
    })?;
    assert_eq!(hops, expected);
    Ok(())
}

/// Returns the address that answers a packet with this TTL.
fn hop(from: &Host, to: Ipv4Addr, ttl: u8) -> Result<String> {
    let line = format!("ping -n -c 1 -W 2 -t {ttl} {to}");
    let output = from.command(line.split(' ')).any_code().run()?;
    let answer = output.stdout.lines().find_map(|line| {
        let (_, rest) = line.split_once("rom ").filter(|_| line.contains("icmp_seq"))?;
        rest.split([' ', ':']).next()
    });
    answer.map(str::to_owned).with_context(|| format!("nobody answers at TTL {ttl}:\n{}", output.stdout))
}

/// RFC 6040: what a router marks outside shows inside; where the ends do not speak ECN the packet is dropped instead.
#[test]
fn congestion_marks_survive_the_tunnel() -> Result<()> {
    let arrived = in_every_way("ecn", |pair| {
        let rules =
            "table ip congested { chain f { type filter hook forward priority 0; udp dport 8472 ip ecn set ce; }; }";
        let capture = Capture::start(&pair.far, "eth0", packet::is_ipv4)?;
        let plain = tos_at_the_far_end(pair, &capture, 100)?;
        pair.net.r.command(["nft", "-f", "-"]).input(rules).run()?;
        let marked = tos_at_the_far_end(pair, &capture, 200);
        pair.net.r.sh("nft delete table ip congested")?;
        Ok([plain, marked?])
    })?;
    let three = |tos: [u8; 4]| tos.into_iter().flat_map(|tos| [tos; 3]).collect::<Vec<_>>();
    assert_eq!(arrived[0], three([0, 3, 1, 2]), "unmarked: as sent");
    assert_eq!(arrived[1], three([0, 3, 3, 3])[3..], "marked: CE, and Not-ECT is dropped");
    Ok(())
}

/// The TOS of packets sent with Not-ECT, CE, ECT(1) and ECT(0), three of each, as they arrive.
fn tos_at_the_far_end(pair: &Pair, capture: &Capture, first: u16) -> Result<Vec<u8>> {
    let ids: Vec<u16> = (first..first + 12).collect();
    for (id, tos) in ids.iter().zip([0, 0, 0, 3, 3, 3, 1, 1, 1, 2, 2, 2]) {
        let datagram = Ipv4 { tos, ..Ipv4::udp(pair.near.ip4()?, pair.far.ip4()?, *id, 32) };
        inject(&pair.near, &datagram.bytes())?;
    }
    let found = || -> Vec<(u16, u8)> {
        let frames = capture.frames();
        let headers = frames.iter().map(|frame| &frame[14..34]);
        // Port unreachable messages do not arrive here; the id identifies our datagrams.
        headers.map(|header| (identification(header), header[1])).filter(|(id, _)| ids.contains(id)).collect()
    };
    // Packets of one flow keep their order, so what is missing when the last one is there was dropped.
    eventually("the last packet", Duration::from_secs(3), || {
        found().last().is_some_and(|(id, _)| *id == first + 11).then_some(())
    })?;
    Ok(found().into_iter().map(|(_, tos)| tos).collect())
}

/// The node itself speaks from the first address of its subnet, which peers can answer to.
#[test]
fn nodes_and_pods_reach_each_other() -> Result<()> {
    in_every_way("host", |pair| {
        let own = subnet(&pair.net.a)?.network();
        let capture = Capture::start(&pair.far, "eth0", packet::is_ipv4)?;
        let output = pair.net.a.sh(&format!("ping -n -c 3 -i 0.01 -W 2 {}", pair.far.ip()))?;
        ensure!(output.stdout.contains(" 0% packet loss"), "{}", output.stdout);
        // The answers may be back before the capture has its frames.
        let sources = eventually("three captured pings", Duration::from_secs(2), || {
            let sources: Vec<String> = capture.frames().iter().map(|frame| source(frame).to_string()).collect();
            (sources.len() >= 3).then_some(sources)
        })?;
        ensure!(sources.iter().all(|source| *source == own.to_string()), "{sources:?}");
        pair.far.ping(own)?;
        pair.near.ping(subnet(&pair.net.c)?.network())?;
        let report = rr(&pair.net.a, &pair.far, pair.far.ip(), Protocol::Tcp, Duration::from_millis(200))?;
        ensure!(report.transactions > 0 && report.lost == 0, "{report:?}");
        Ok(())
    })
}

fn source(frame: &[u8]) -> Ipv4Addr {
    Ipv4Addr::new(frame[26], frame[27], frame[28], frame[29])
}
