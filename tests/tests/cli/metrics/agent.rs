//! The agent's own metrics: while it starts, while the store is away, and after foreign changes to
//! its routes.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    Agent, StockNode, TwoNodes,
    cluster::{VXLAN, etcd::CONFIG_KEY},
    eventually,
};

use super::scrape::{PORT_FLAG, Scrape};

const SOON: Duration = Duration::from_secs(20);

/// Waits until the metrics are as expected.
fn sample(
    pair: &TwoNodes,
    what: &str,
    expected: impl Fn(&Scrape) -> Result<bool>,
) -> Result<Scrape> {
    eventually(what, SOON, || {
        let scrape = Scrape::of(&pair.a)?;
        ensure!(expected(&scrape)?, "{}", scrape.text);
        Ok(scrape)
    })
}

#[test]
fn lease_store_peers_and_repairs_are_followed() -> Result<()> {
    let pair = TwoNodes::unconfigured("metrics")?;
    // A lease of 12 seconds, renewed every 2.
    let flags = [
        PORT_FLAG,
        "--subnet-lease-ttl=12",
        "--subnet-lease-renew-margin=1200",
        "--ip-masq",
    ];
    let agent = pair.a.agent(pair.options()?.flags(&flags))?;
    expect_a_start(&pair)?;

    pair.etcd.put(CONFIG_KEY, VXLAN, None)?;
    agent.wait_ready()?;
    StockNode::vxlan(9, "192.168.1.99", "02:00:00:00:00:09").put(&pair.etcd)?;
    let ready = expect_a_ready_node(&pair, &agent)?;
    follow_repairs(&pair, &ready)?;
    follow_an_outage(&pair, &ready)?;
    agent.sigterm_and_wait()
}

/// The metrics of an agent that waits for a configuration.
fn expect_a_start(pair: &TwoNodes) -> Result<()> {
    let starting = sample(pair, "an answer before there is a configuration", |_| {
        Ok(true)
    })?;
    for (name, value) in [
        ("flannel_ready", 0.0),
        ("flannel_lease_held", 0.0),
        ("flannel_datapath_readable", 0.0),
    ] {
        assert!(
            (starting.value(name)? - value).abs() < 0.1,
            "{name}: {}",
            starting.text
        );
    }
    assert_eq!(
        starting.get("flannel_lease_expires_timestamp_seconds"),
        None
    );
    Ok(())
}

fn expect_a_ready_node(pair: &TwoNodes, agent: &Agent) -> Result<Scrape> {
    let ready = sample(pair, "a peer, and a lease renewed", |scrape| {
        let peers = scrape.value("flannel_peers{family=\"ipv4\",way=\"tunnel\"}")?;
        Ok(peers > 0.5 && scrape.value("flannel_lease_renewals_total")? > 0.5)
    })?;
    for name in [
        "flannel_ready",
        "flannel_lease_held",
        "flannel_store_in_sync",
        "flannel_traffic_rules_in_place",
    ] {
        assert!(ready.value(name)? > 0.5, "{name}: {}", ready.text);
    }
    let subnet = agent.status()?["lease"]["subnet"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(
        ready
            .text
            .contains(&format!("flannel_lease_info{{subnet=\"{subnet}\",")),
        "{subnet}: {}",
        ready.text
    );
    assert!(ready.value("flannel_reconcile_duration_seconds_count")? > 0.5);
    assert!(ready.value("process_resident_memory_bytes")? > 1e6);
    Ok(ready)
}

/// Changes of others are repaired, and counted.
fn follow_repairs(pair: &TwoNodes, ready: &Scrape) -> Result<()> {
    let routes = "flannel_repairs_total{object=\"route\"}";
    assert!(
        ready.value(routes)? < 0.5,
        "nobody has touched a route yet: {}",
        ready.text
    );
    pair.a.sh("ip route del 10.244.9.0/24")?;
    sample(pair, "the route's repair", |scrape| {
        Ok(scrape.value(routes)? > 0.5)
    })?;
    pair.a.sh("iptables -t nat -F FLANNEL-POSTRTG")?;
    sample(pair, "the rules' repair", |scrape| {
        Ok(scrape.value("flannel_repairs_total{object=\"traffic_rules\"}")? > 0.5)
    })?;
    Ok(())
}

/// The store goes away, and comes back.
fn follow_an_outage(pair: &TwoNodes, ready: &Scrape) -> Result<()> {
    pair.etcd.stop()?;
    let away = sample(pair, "word of the outage", |scrape| {
        Ok(scrape.value("flannel_store_in_sync")? < 0.5)
    })?;
    assert!(
        away.value("flannel_store_failures_total")? > 0.5,
        "{}",
        away.text
    );
    sample(pair, "failed renewals", |scrape| {
        Ok(scrape.value("flannel_lease_renewal_failures_total")? > 0.5)
    })?;
    pair.etcd.start()?;
    sample(pair, "the store", |scrape| {
        Ok(scrape.value("flannel_store_in_sync")? > 0.5
            && scrape.value("flannel_store_watches_total")?
                > ready.value("flannel_store_watches_total")?)
    })?;
    Ok(())
}
