//! Changes of the underlay - gateways, MTUs, the interface itself - reach the peer map before they
//! mislead packets.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Host, Pair,
    cluster::{Cluster, pair::wait_dad, pod::Pod, topology::Stack},
    eventually,
    load::UdpReport,
    packet::{
        frame::{self, is_encapsulated_by_us},
        wire::Capture,
    },
    throughout,
};

/// The public address of the receiving node.
const C: &str = "192.168.2.13";

/// Returns the number of IPv4 packets that a router has forwarded so far.
fn forwarded(router: &Host) -> Result<u64> {
    router.counter("Ip", "ForwDatagrams")
}

/// The length of the outer packet.
fn total_len(frame: &[u8]) -> u16 {
    frame::ipv4(frame).map_or(0, |header| header.total_len())
}

/// The default route of `a` moves from one router to the other while a stream runs.
fn moved_gateway(mode: &str) -> Result<UdpReport> {
    let pair = Pair::with_two_routers(&format!("moved-{mode}"), &[])?;
    pair.wait_dad()?;
    pair.sender.set_mode(mode)?;
    let run = pair.stream(10_000, Duration::from_mins(1))?;
    pair.wait_received(4_000)?;
    let before = [forwarded(&pair.net.r1)?, forwarded(&pair.net.r2)?];
    assert!(
        before[0] >= 4_000,
        "the first router forwarded {}",
        before[0]
    );
    pair.net
        .a
        .sh("ip route replace default via 192.168.1.2 dev eth0")?;
    eventually(
        "packets by the second router",
        Duration::from_secs(5),
        || {
            let now = forwarded(&pair.net.r2)? - before[1];
            ensure!(now >= 4_000, "{now}");
            Ok(())
        },
    )?;
    let old = forwarded(&pair.net.r1)?;
    throughout(
        "silence of the first router",
        Duration::from_secs(3),
        || {
            let now = forwarded(&pair.net.r1)?;
            ensure!(now == old, "{} packets more", now - old);
            Ok(())
        },
    )?;
    if mode == "encap" {
        assert_eq!(pair.sender.peer_entry(C)?["next_hop"], "192.168.1.2");
        pair.wait_encapsulated(4_000)?;
    }
    run.stop()
}

#[test]
fn another_gateway_takes_over_under_load_as_in_mode_kernel() -> Result<()> {
    let (kernel, encap) = (moved_gateway("kernel")?, moved_gateway("encap")?);
    println!(
        "lost: kernel {}, encap {}",
        kernel.lost_count(),
        encap.lost_count()
    );
    assert!(
        encap.lost_count() <= kernel.lost_count(),
        "encap {encap:?}\nkernel {kernel:?}"
    );
    assert_eq!(
        (encap.duplicated, encap.receiver_drops),
        (0, 0),
        "{encap:?}"
    );
    Ok(())
}

/// Two gateways on one segment; gateways on separate devices are in `datapath_ecmp`.
#[test]
fn a_route_with_several_next_hops_is_the_programs_too() -> Result<()> {
    let pair = Pair::with_two_routers("multipath", &[])?;
    pair.wait_dad()?;
    let run = pair.stream(2_000, Duration::from_mins(1))?;
    pair.wait_encapsulated(500)?;
    pair.net.a.sh(
        "ip route replace default nexthop via 192.168.1.1 dev eth0 nexthop via \
        192.168.1.2 dev eth0",
    )?;
    eventually("that the kernel chooses", Duration::from_secs(5), || {
        let peer = pair.sender.peer_status(C)?;
        let why = peer["reason"].as_str().unwrap_or_default();
        ensure!(
            peer["way"] == "tunnel" && why.contains("the kernel chooses the next hop"),
            "{peer}"
        );
        Ok(())
    })?;
    pair.wait_encapsulated(2_000)?;
    pair.net
        .a
        .sh("ip route replace default via 192.168.1.2 dev eth0")?;
    eventually("one next hop", Duration::from_secs(5), || {
        let entry = pair.sender.peer_entry(C)?;
        ensure!(entry["next_hop"] == "192.168.1.2", "{entry}");
        Ok(())
    })?;
    pair.wait_encapsulated(500)?;
    run.stop()?.expect_complete()
}

/// Three pings of `size` bytes that may (`dont`) or may not (`do`) be cut arrive.
fn passes(from: &Pod, to: &Pod, discovery: &str, size: u32) -> Result<()> {
    from.pings(3, &format!("-M {discovery} -s {size}"), to.ip())
        .map(drop)
}

/// The device, subnet.env and the peer map follow. Pods with the old MTU receive an ICMP error, or
/// their packets are fragmented.
#[test]
fn a_lowered_underlay_mtu_is_followed_and_no_packet_vanishes_silently() -> Result<()> {
    let pair = Pair::new("mtu")?;
    pair.wait_dad()?;
    for (node, device) in [
        (&pair.net.a, "eth0"),
        (&pair.net.r, "eth-a"),
        (&pair.net.r, "br1"),
    ] {
        node.sh(&format!("ip link set {device} mtu 1400"))?;
    }
    eventually("everything at the new MTU", Duration::from_secs(5), || {
        let status = pair.sender.status()?;
        let (device, file) = (&status["device"]["mtu"], pair.net.a.subnet_env()?.mtu);
        let entry = pair.sender.peer_entry(C)?["mtu"].clone();
        ensure!(
            *device == 1350 && file == 1350 && entry == 1400,
            "{device}, {file}, {entry}"
        );
        let link = pair.net.a.sh("ip link show dev flannel.1")?.stdout;
        ensure!(link.contains("mtu 1350 "), "{link}");
        Ok(())
    })?;
    let too_large = format!("ping -n -c 3 -i 0.01 -W 1 -M do -s 1400 {}", pair.far.ip());
    let text = pair
        .near
        .command(too_large.split(' '))
        .expect_code(1)
        .run()?
        .stdout;
    assert!(
        text.contains("Frag needed") && text.contains("1350"),
        "{text}"
    );
    pair.near.sh("ip route flush cache")?;
    passes(&pair.near, &pair.far, "dont", 1400)?;
    passes(&pair.far, &pair.near, "dont", 1400)?;
    let capture = Capture::tunnel(&pair.net.r, "eth-a")?;
    let before = pair.encapsulated()?;
    passes(&pair.near, &pair.far, "do", 1350 - 28)?;
    assert!(
        pair.encapsulated()? > before,
        "the largest packet takes the programs' way too"
    );
    let largest = capture
        .frames()
        .iter()
        .map(|frame| total_len(frame))
        .max()
        .context("no frame")?;
    assert_eq!(largest, 1400);
    Ok(())
}

#[test]
fn the_mtu_of_a_route_bounds_what_the_programs_encapsulate() -> Result<()> {
    let pair = Pair::new("routemtu")?;
    pair.wait_dad()?;
    passes(&pair.near, &pair.far, "dont", 1400)?;
    pair.net
        .a
        .sh("ip route add 192.168.2.0/24 via 192.168.1.1 dev eth0 mtu 1300")?;
    eventually(
        "the route's MTU in the peer map",
        Duration::from_secs(5),
        || {
            let entry = pair.sender.peer_entry(C)?;
            ensure!(entry["mtu"] == 1300, "{entry}");
            Ok(())
        },
    )?;
    let capture = Capture::tunnel(&pair.net.r, "eth-a")?;
    for _ in 0..5 {
        passes(&pair.near, &pair.far, "dont", 1400)?;
        passes(&pair.near, &pair.far, "dont", 1300 - 50 - 28)?;
    }
    // A packet the kernel had to cut holds the path back for one interval.
    pair.wait_encapsulated_while_pinging()?;
    passes(&pair.near, &pair.far, "dont", 1300 - 50 - 28)?;
    let frames = capture.frames();
    let ours = frames
        .iter()
        .filter(|frame| is_encapsulated_by_us(frame))
        .map(|frame| total_len(frame));
    let largest = ours.max().context("nothing was encapsulated")?;
    assert!(largest <= 1300, "an outer packet of {largest} bytes");
    Ok(())
}

/// The kernel takes routes with an interface that goes down, and does not bring them back.
#[test]
fn routes_come_back_when_the_external_interface_was_down() -> Result<()> {
    let cluster = Cluster::new(
        "flap",
        Stack::V4,
        r#"{"Type":"vxlan","DirectRouting":true}"#,
    )?;
    let (net, pods, [a, _, _]) = (&cluster.net, &cluster.pods, &cluster.agents);
    let routes = || {
        net.a
            .sh("ip route show root 10.244.0.0/16")
            .map(|output| output.stdout)
    };
    eventually("two peers", Duration::from_secs(5), || {
        ensure!(
            routes()?
                .lines()
                .filter(|line| line.contains(" via "))
                .count()
                == 2,
            "{}",
            routes()?
        );
        Ok(())
    })?;
    wait_dad(&net.a)?;
    let before = routes()?;
    net.a.sh("ip link set eth0 down")?;
    assert!(
        !routes()?.contains("192.168.1.12"),
        "the direct route went with the interface:\n{}",
        routes()?
    );
    net.a.sh("ip link set eth0 up")?;
    // The default route is the administrator's.
    net.a.sh("ip route add default via 192.168.1.1 dev eth0")?;
    eventually("the same routes", Duration::from_secs(10), || {
        ensure!(routes()? == before, "{}\ninstead of\n{before}", routes()?);
        Ok(())
    })?;
    pods[0].ping(pods[1].ip())?;
    let taken = a.counted("to_tunnel", "encapsulated")?;
    eventually("encapsulated pings", Duration::from_secs(5), || {
        pods[0].ping(pods[2].ip())?;
        ensure!(a.counted("to_tunnel", "encapsulated")? > taken, "none");
        Ok(())
    })
}
