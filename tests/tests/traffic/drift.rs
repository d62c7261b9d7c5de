//! Somebody else changes the rules.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::eventually;

use crate::support::{A, Cluster, IPTABLES, NFTABLES, OUTSIDE, seen};

/// Far below the half minute after which everything is looked at anyway.
const SOON: Duration = Duration::from_secs(10);

fn mended(cluster: &Cluster, repairs: u64) -> Result<()> {
    eventually("masquerade", SOON, || {
        let from = seen(&cluster.near, None, &cluster.net.r, OUTSIDE.into())?;
        ensure!(from == A, "seen as {from}");
        Ok(())
    })?;
    cluster.a.wait_status("the repair", |status| {
        ensure!(status["traffic"]["repairs"].as_u64() >= Some(repairs) && status["traffic"]["error"].is_null());
        Ok(())
    })?;
    Ok(())
}

#[test]
fn iptables_are_mended_within_the_resync_period() -> Result<()> {
    let cluster = Cluster::new("driftipt", IPTABLES, &["--ip-masq", "--iptables-resync=1"])?;
    let node = &cluster.net.a;
    node.sh("iptables -t nat -A POSTROUTING -s 172.16.0.0/12 -j MASQUERADE")?;
    for (repairs, line) in
        (1..).zip(["iptables -t nat -F FLANNEL-POSTRTG", "iptables -F", "iptables -t nat -D POSTROUTING 1"])
    {
        node.sh(line)?;
        mended(&cluster, repairs)?;
    }
    let rules = node.sh("iptables -t nat -S POSTROUTING")?.stdout;
    ensure!(rules.contains("172.16.0.0/12"), "{rules}");
    ensure!(node.sh("iptables -S FORWARD")?.stdout.contains("FLANNEL-FWD"));
    Ok(())
}

#[test]
fn nftables_are_mended_when_they_change() -> Result<()> {
    let cluster = Cluster::new("driftnft", NFTABLES, &["--ip-masq", "--iptables-resync=3600"])?;
    for (repairs, line) in
        (1..).zip(["nft flush ruleset", "nft flush chain ip flannel-ipv4 postrtg", "nft delete table ip flannel-ipv4"])
    {
        cluster.net.a.sh(line)?;
        mended(&cluster, repairs)?;
    }
    Ok(())
}

#[test]
fn a_blackhole_route_is_mended_when_it_goes() -> Result<()> {
    let cluster = Cluster::new("driftbh", IPTABLES, &["--ip-blackhole-route", "--iptables-resync=3600"])?;
    let subnet = cluster.net.a.subnet_env()?.subnets[0].trunc();
    let there = || -> Result<()> {
        let routes = cluster.net.a.sh("ip route show type blackhole")?.stdout;
        ensure!(routes.contains(&subnet.to_string()), "{routes}");
        Ok(())
    };
    there()?;
    cluster.near.ping(cluster.far.ip())?;
    cluster.net.a.sh(&format!("ip route del blackhole {subnet}"))?;
    eventually("the blackhole route", SOON, there)?;
    cluster.near.ping(cluster.far.ip())?;
    Ok(())
}
