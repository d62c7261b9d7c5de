//! Foreign changes to the rules, and their repair.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_host::family::Family;
use flannel_tests::eventually;
use flannel_traffic::Engine::{Iptables, Nftables};

use super::support::{Cluster, of, of_node};

/// Far below the half minute after which everything is looked at anyway.
const SOON: Duration = Duration::from_secs(10);

fn repaired(cluster: &Cluster, repairs: u64) -> Result<()> {
    eventually("masquerade", SOON, || cluster.masquerades())?;
    cluster.a.wait_status("the repair", |status| {
        ensure!(
            status["traffic"]["repairs"].as_u64() >= Some(repairs)
                && status["traffic"]["error"].is_null()
        );
        Ok(())
    })?;
    Ok(())
}

#[test]
fn iptables_are_repaired_within_the_resync_period() -> Result<()> {
    let cluster = Cluster::new("driftipt", Iptables, &["--ip-masq", "--iptables-resync=1"])?;
    let node = &cluster.net.a;
    node.sh("iptables -t nat -A POSTROUTING -s 172.16.0.0/12 -j MASQUERADE")?;
    for (repairs, line) in (1..).zip([
        "iptables -t nat -F FLANNEL-POSTRTG",
        "iptables -F",
        "ip6tables -t nat -D POSTROUTING 1",
    ]) {
        node.sh(line)?;
        repaired(&cluster, repairs)?;
    }
    let rules = node.sh("iptables -t nat -S POSTROUTING")?.stdout;
    ensure!(rules.contains("172.16.0.0/12"), "{rules}");
    ensure!(
        node.sh("iptables -S FORWARD")?
            .stdout
            .contains("FLANNEL-FWD")
    );
    Ok(())
}

#[test]
fn nftables_are_repaired_when_they_change() -> Result<()> {
    let cluster = Cluster::new(
        "driftnft",
        Nftables,
        &["--ip-masq", "--iptables-resync=3600"],
    )?;
    for (repairs, line) in (1..).zip([
        "nft flush ruleset",
        "nft flush chain ip flannel-ipv4 postrtg",
        "nft delete table ip6 flannel-ipv6",
    ]) {
        cluster.net.a.sh(line)?;
        repaired(&cluster, repairs)?;
    }
    Ok(())
}

#[test]
fn a_blackhole_route_is_repaired_when_it_goes() -> Result<()> {
    let cluster = Cluster::new(
        "driftbh",
        Iptables,
        &["--ip-blackhole-route", "--iptables-resync=3600"],
    )?;
    for family in Family::BOTH {
        let flag = if family == Family::V4 { "-4" } else { "-6" };
        let (subnet, _) = of_node(&cluster.net.a, family)?;
        let there = || -> Result<String> {
            let routes = cluster
                .net
                .a
                .sh(&format!("ip {flag} route show type blackhole"))?
                .stdout;
            let ours = routes
                .lines()
                .find_map(|line| line.strip_prefix("blackhole ")?.split(' ').next());
            ensure!(
                ours.is_some_and(|ours| ours.starts_with(&subnet.to_string())),
                "{routes}"
            );
            Ok(ours.unwrap_or_default().to_owned())
        };
        let route = there()?;
        cluster.near.ping(of(&cluster.far, family)?)?;
        cluster.net.a.sh(&format!(
            "ip {flag} route del blackhole {route} metric 4294967295"
        ))?;
        eventually("the blackhole route", SOON, there)?;
        cluster.near.ping(of(&cluster.far, family)?)?;
    }
    Ok(())
}
