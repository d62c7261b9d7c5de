//! Peers that come, change and go.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, StockNode, TunnelState, TwoNodes, cluster::VXLAN, eventually};
use serde_json::Value;

fn nine() -> StockNode {
    StockNode::vxlan(9, "192.168.1.99", "02:00:00:00:00:09")
}

fn ten() -> StockNode {
    StockNode::vxlan(10, "192.168.1.98", "02:00:00:00:00:10")
}

/// The rows of the peer map with this subnet.
fn in_map(agent: &Agent, subnet: &str) -> Result<Vec<Value>> {
    let dump = agent.cli_json(&["maps", "dump", "peers", "-o", "json"])?;
    let rows = dump["peers"].as_array().context("peers")?;
    Ok(rows
        .iter()
        .filter(|row| row["subnet"] == subnet)
        .cloned()
        .collect())
}

#[test]
fn a_peer_that_left_while_we_were_down_is_swept_and_foreign_routes_stay() -> Result<()> {
    let pair = TwoNodes::new("sweep", VXLAN)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    let without = TunnelState::of(&pair.a)?;
    nine().put(&pair.etcd)?;
    agent.wait_peers(1)?;
    assert_eq!(
        TunnelState::of(&pair.a)?.matching(&["10.244.9.0"]).len(),
        2,
        "a route and a neighbour"
    );
    agent.kill9()?;

    pair.etcd.delete(&nine().key())?;
    pair.a.sh("ip route add 10.99.0.0/16 via 192.168.1.12")?;
    pair.a.sh("ip route add 10.98.0.0/16 dev flannel.1")?;
    // As routes to peers of a former network are.
    pair.a
        .sh("ip route add 10.97.0.0/16 via 10.97.0.0 dev flannel.1 onlink")?;
    agent.restart()?;
    agent.wait_ready()?;
    eventually("the sweep", Duration::from_secs(10), || {
        let changes = without.changes(&TunnelState::of(&pair.a)?);
        ensure!(changes.is_empty(), "{changes}");
        Ok(())
    })?;
    assert_eq!(in_map(&agent, "10.244.9.0/24")?, [Value::Null; 0]);
    for (route, count) in [
        ("10.99.0.0/16", 1),
        ("10.98.0.0/16", 1),
        ("10.97.0.0/16", 0),
    ] {
        let routes: Vec<Value> = pair.a.json(&["ip", "-j", "route", "show", route])?;
        assert_eq!(routes.len(), count, "{route}");
    }
    Ok(())
}

#[test]
fn a_peer_that_leaves_takes_its_entries_with_it() -> Result<()> {
    let pair = TwoNodes::new("leaves", VXLAN)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    ten().put(&pair.etcd)?;
    agent.wait_peers(1)?;
    let without = TunnelState::of(&pair.a)?;
    nine().put(&pair.etcd)?;
    agent.wait_peers(2)?;
    pair.etcd.delete(&nine().key())?;
    agent.wait_peers(1)?;
    assert_eq!(without.changes(&TunnelState::of(&pair.a)?), "");
    assert_eq!(in_map(&agent, "10.244.9.0/24")?, [Value::Null; 0]);
    assert_eq!(in_map(&agent, "10.244.10.0/24")?.len(), 1);
    Ok(())
}

/// Stock flannel leaves the old FDB entry behind.
#[test]
fn a_peer_that_changes_its_mac_is_followed_without_leftovers() -> Result<()> {
    let pair = TwoNodes::new("mac", VXLAN)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    nine().put(&pair.etcd)?;
    agent.wait_peers(1)?;
    StockNode::vxlan(9, "192.168.1.99", "02:00:00:00:00:ee").put(&pair.etcd)?;
    eventually("the new address", Duration::from_secs(10), || {
        let state = TunnelState::of(&pair.a)?;
        ensure!(
            state.matching(&["02:00:00:00:00:09"]).is_empty(),
            "{state:?}"
        );
        let seen = [
            state.matching(&["neighbour", "02:00:00:00:00:ee"]),
            state.matching(&["fdb", "02:00:00:00:00:ee"]),
        ];
        ensure!(seen.iter().all(|lines| lines.len() == 1), "{state:?}");
        Ok(())
    })?;
    assert_eq!(
        in_map(&agent, "10.244.9.0/24")?[0]["vtep_mac"],
        "02:00:00:00:00:ee"
    );
    Ok(())
}

#[test]
fn a_peer_that_changes_its_address_is_followed() -> Result<()> {
    let pair = TwoNodes::new("address", VXLAN)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    nine().put(&pair.etcd)?;
    agent.wait_peers(1)?;
    StockNode::vxlan(9, "192.168.1.77", "02:00:00:00:00:09").put(&pair.etcd)?;
    eventually("the new address", Duration::from_secs(10), || {
        let state = TunnelState::of(&pair.a)?;
        ensure!(
            state.matching(&["fdb", "192.168.1.77"]).len() == 1,
            "{state:?}"
        );
        ensure!(state.matching(&["192.168.1.99"]).is_empty(), "{state:?}");
        Ok(())
    })?;
    assert_eq!(in_map(&agent, "10.244.9.0/24")?[0]["vtep"], "192.168.1.77");
    Ok(())
}
