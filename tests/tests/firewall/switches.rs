//! Switched off, over to the other engine, cleaned up; and on a host without tools.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    AgentOptions, Confinement, TwoNodes,
    agent::snapshot::Snapshot,
    cluster::{etcd::CONFIG_KEY, topology::Stack},
    eventually,
};
use flannel_traffic::Engine::{Iptables, Nftables};

use super::support::{Cluster, config};

fn rules(cluster: &Cluster) -> Result<String> {
    let node = &cluster.net.a;
    let iptables = node.sh("iptables-save")?.stdout + &node.sh("ip6tables-save")?.stdout;
    Ok(iptables + &node.sh("nft list tables")?.stdout)
}

#[test]
fn no_rule_of_ours_stays_when_switched_off() -> Result<()> {
    for (name, engine) in [("offipt", Iptables), ("offnft", Nftables)] {
        let mut cluster = Cluster::new(name, engine, &["--ip-masq", "--ip-blackhole-route"])?;
        ensure!(rules(&cluster)?.to_lowercase().contains("flannel"));
        cluster.replace(&["--iptables-forward-rules=false"])?;
        let left = rules(&cluster)?;
        ensure!(!left.to_lowercase().contains("flannel"), "{left}");
        for family in ["-4", "-6"] {
            assert_eq!(
                cluster
                    .net
                    .a
                    .sh(&format!("ip {family} route show type blackhole"))?
                    .stdout,
                ""
            );
        }
    }
    Ok(())
}

#[test]
fn the_other_engine_takes_over() -> Result<()> {
    let mut cluster = Cluster::new("over", Iptables, &["--ip-masq"])?;
    cluster
        .net
        .etcd
        .put(CONFIG_KEY, &config(Nftables, Stack::Dual), None)?;
    cluster.replace(&["--ip-masq"])?;
    let found = rules(&cluster)?;
    ensure!(
        !found.contains("FLANNEL") && found.contains("table ip flannel-ipv4"),
        "{found}"
    );
    cluster
        .net
        .etcd
        .put(CONFIG_KEY, &config(Iptables, Stack::Dual), None)?;
    cluster.replace(&["--ip-masq"])?;
    let found = rules(&cluster)?;
    ensure!(
        found.contains("FLANNEL-FWD") && !found.contains("table ip flannel-ipv4"),
        "{found}"
    );
    Ok(())
}

#[test]
fn cleanup_removes_rules_and_blackhole_route() -> Result<()> {
    for (name, engine) in [("cleanipt", Iptables), ("cleannft", Nftables)] {
        let pair = TwoNodes::new(name, &config(engine, Stack::V4))?;
        pair.a
            .sh("iptables -t nat -A POSTROUTING -s 172.16.0.0/12 -j MASQUERADE")?;
        pair.a.sh("ip route add blackhole 10.99.0.0/16")?;
        let before = Snapshot::of(&pair.a)?;
        let agent = pair.a.ready_agent(
            pair.options()?
                .flag("--ip-masq")
                .flag("--ip-blackhole-route"),
        )?;
        agent.sigterm_and_wait()?;
        let planned = agent.cli(&["cleanup", "--dry-run"])?.stdout;
        let what = if engine == Iptables {
            "would remove the IPv4 rules in iptables"
        } else {
            "would remove the nftables table flannel-ipv4"
        };
        ensure!(
            planned.contains(what) && planned.contains("would remove the blackhole route 10.244."),
            "{planned}"
        );
        agent.cli(&["cleanup"])?;
        eventually("a clean node", Duration::from_secs(5), || {
            let changes = before.changes(&Snapshot::of(&pair.a)?);
            ensure!(changes.is_empty(), "{changes}");
            Ok(())
        })?;
    }
    Ok(())
}

/// A minimal host has neither iptables nor nft.
#[test]
fn without_tools_masquerade_ends_the_start_and_forward_rules_are_waited_for() -> Result<()> {
    let pair = TwoNodes::new("notools", &config(Iptables, Stack::V4))?;
    for dir in ["/usr/sbin", "/usr/local/sbin"] {
        pair.a.sh(&format!("mount -t tmpfs tmpfs {dir}"))?;
    }
    // An agent in its own mount namespace would not see the unmount below.
    let options: AgentOptions = pair
        .options()?
        .confined_by(Confinement::of_the_manifest()?.writable());
    let (code, log) = pair
        .a
        .agent(options.clone().flag("--ip-masq"))?
        .wait_end()?;
    assert_eq!(code, 1, "{log}");
    ensure!(
        log.contains("iptables is not installed here; install the package iptables"),
        "{log}"
    );

    let agent = pair.a.ready_agent(options)?;
    let status = agent.cli_any(&["status"])?.stdout;
    ensure!(
        status.contains("traffic rules are not as asked for: iptables is not installed here"),
        "{status}"
    );
    pair.a.sh("umount /usr/sbin")?;
    agent.wait_status("forward rules", |status| {
        ensure!(status["traffic"]["error"].is_null() && status["traffic"]["engine"].is_string());
        Ok(())
    })?;
    ensure!(
        pair.a
            .sh("iptables -S FORWARD")?
            .stdout
            .contains("FLANNEL-FWD")
    );
    Ok(())
}
