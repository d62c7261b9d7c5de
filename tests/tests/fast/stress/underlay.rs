//! The underlay changes under load: another gateway, a smaller MTU here or beyond, an interface
//! that was away.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Node, Pair,
    cluster::topology::Stack,
    eventually,
    fast::{fast_pair_by_two_routers, fast_pair_of},
    load::UdpReport,
};

use super::loads::Loads;

/// The default route of `a` moves from one router to the other.
fn moved_gateway(mode: &str) -> Result<UdpReport> {
    let pair = fast_pair_by_two_routers(&format!("fl-moved-{mode}"))?;
    pair.wait_dad()?;
    pair.set_mode(mode)?;
    let loads = Loads::start(&pair)?;
    loads.wait_arrived(10)?;
    let forwarded = || pair.net.r2.counter("Ip", "ForwDatagrams");
    let before = forwarded()?;
    pair.net
        .a
        .sh("ip route replace default via 192.168.1.2 dev eth0")?;
    eventually(
        "packets by the second router",
        Duration::from_secs(5),
        || {
            ensure!(forwarded()? - before >= 1_000, "{}", forwarded()? - before);
            Ok(())
        },
    )?;
    loads.wait_arrived(10)?;
    if mode == "fast" {
        pair.wait_replayed(1_000)?;
    }
    Ok(loads.end()?.remove(0))
}

#[test]
fn another_gateway_takes_over_as_in_mode_kernel() -> Result<()> {
    let (kernel, fast) = (moved_gateway("kernel")?, moved_gateway("fast")?);
    println!(
        "lost: kernel {}, fast {}",
        kernel.lost_count(),
        fast.lost_count()
    );
    ensure!(
        fast.lost_count() <= kernel.lost_count(),
        "fast {fast:?}\nkernel {kernel:?}"
    );
    ensure!((fast.duplicated, fast.receiver_drops) == (0, 0), "{fast:?}");
    Ok(())
}

/// Lets something happen to the underlay; data must go on to arrive, and packets be replayed again.
fn outlive(pair: &Pair, loads: &Loads, change: impl FnOnce() -> Result<()>) -> Result<()> {
    change()?;
    loads.wait_arrived(10)?;
    pair.wait_replayed(1_000)
}

fn set_mtu(ends: &[(&Node, &str)], mtu: u32) -> Result<()> {
    ends.iter().try_for_each(|(node, device)| {
        node.sh(&format!("ip link set {device} mtu {mtu}"))
            .map(drop)
    })
}

/// Routes and addresses of IPv6 go with an interface that goes down, and with them every path.
fn flap(pair: &Pair) -> Result<()> {
    let node = pair.sender.node();
    node.sh("ip link set eth0 down")?;
    eventually("the agent to see it", Duration::from_secs(10), || {
        ensure!(pair.sender.status()?["ready"] == false, "still ready");
        Ok(())
    })?;
    node.sh("ip link set eth0 up")?;
    // These are the administrator's.
    node.sh("ip address replace 2001:db8:1::11/64 dev eth0 nodad")?;
    node.sh("ip route replace default via 192.168.1.1 dev eth0")?;
    node.sh("ip route replace default via fe80::1 dev eth0")
        .map(drop)
}

#[test]
fn connections_outlive_what_happens_to_the_underlay() -> Result<()> {
    let pair = fast_pair_of("fl-underlay", Stack::Dual, &[])?;
    pair.wait_dad()?;
    let loads = Loads::start(&pair)?;
    pair.wait_replayed(1_000)?;
    let (a, c, r) = (&pair.net.a, &pair.net.c, &pair.net.r);
    outlive(&pair, &loads, || flap(&pair)).context("an interface that was down")?;
    outlive(&pair, &loads, || {
        set_mtu(&[(r, "eth-c"), (c, "eth0")], 1400)
    })
    .context("a smaller MTU beyond a router")?;
    // Routers fragment IPv4 packets. For IPv6 they send Packet Too Big, which the programs observe.
    ensure!(
        pair.sender.counted("from_underlay", "too_big")? > 0,
        "nobody told the other node of it"
    );
    // The tunnels of this node get smaller than its pods.
    outlive(&pair, &loads, || {
        set_mtu(&[(a, "eth0"), (r, "eth-a"), (r, "br1")], 1380)
    })
    .context("a smaller MTU here")?;
    loads.end().map(drop)
}
