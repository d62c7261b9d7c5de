//! The agent's own metrics: while it starts, while the store is away, and after foreign changes to
//! its routes.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{StockNode, TwoNodes, cluster::VXLAN, etcd::CONFIG_KEY, eventually};

use super::scrape::{PORT_FLAG, Scrape};

const SOON: Duration = Duration::from_secs(20);

#[test]
fn lease_store_peers_and_repairs_are_followed() -> Result<()> {
    let pair = TwoNodes::unconfigured("metrics")?;
    let sample = |what: &str, expected: &dyn Fn(&Scrape) -> Result<bool>| {
        eventually(what, SOON, || {
            let scrape = Scrape::of(&pair.a)?;
            ensure!(expected(&scrape)?, "{}", scrape.text);
            Ok(scrape)
        })
    };
    // A lease of 12 seconds, renewed every 2.
    let flags = [
        PORT_FLAG,
        "--subnet-lease-ttl=12",
        "--subnet-lease-renew-margin=1200",
        "--ip-masq",
    ];
    let agent = pair.a.agent(pair.options()?.flags(&flags))?;

    let starting = sample("an answer before there is a configuration", &|_| Ok(true))?;
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

    pair.etcd.put(CONFIG_KEY, VXLAN, None)?;
    agent.wait_ready()?;
    StockNode::vxlan(9, "192.168.1.99", "02:00:00:00:00:09").put(&pair.etcd)?;
    let ready = sample("a peer, and a lease renewed", &|scrape| {
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

    let routes = "flannel_repairs_total{object=\"route\"}";
    assert!(
        ready.value(routes)? < 0.5,
        "nobody has touched a route yet: {}",
        ready.text
    );
    pair.a.sh("ip route del 10.244.9.0/24")?;
    sample("the route's repair", &|scrape| {
        Ok(scrape.value(routes)? > 0.5)
    })?;
    pair.a.sh("iptables -t nat -F FLANNEL-POSTRTG")?;
    sample("the rules' repair", &|scrape| {
        Ok(scrape.value("flannel_repairs_total{object=\"traffic_rules\"}")? > 0.5)
    })?;

    pair.etcd.stop()?;
    let away = sample("word of the outage", &|scrape| {
        Ok(scrape.value("flannel_store_in_sync")? < 0.5)
    })?;
    assert!(
        away.value("flannel_store_failures_total")? > 0.5,
        "{}",
        away.text
    );
    sample("failed renewals", &|scrape| {
        Ok(scrape.value("flannel_lease_renewal_failures_total")? > 0.5)
    })?;
    pair.etcd.start()?;
    sample("the store", &|scrape| {
        Ok(scrape.value("flannel_store_in_sync")? > 0.5
            && scrape.value("flannel_store_watches_total")?
                > ready.value("flannel_store_watches_total")?)
    })?;
    agent.sigterm_and_wait()
}
