//! Hundreds of peers, as a cluster that grows and shrinks at once.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, StockNode, TunnelState, TwoNodes, eventually};

/// 1024 subnets.
const CONFIG: &str = r#"{"Network":"10.244.0.0/16","SubnetLen":26,"SubnetMin":"10.244.200.0","Backend":{"Type":"vxlan"}}"#;
const MANY: u16 = 300;
const LIMIT: Duration = Duration::from_secs(30);

fn many() -> Vec<StockNode> {
    let lease = |number: u16| {
        let [high, low] = (number * 64).to_be_bytes();
        let [upper, lower] = number.to_be_bytes();
        let mac = format!("02:00:00:00:{upper:02x}:{lower:02x}");
        StockNode::named(
            &format!("10.244.{high}.{low}-26"),
            &format!("172.16.{upper}.{lower}"),
            &mac,
        )
    };
    (1..=MANY).map(lease).collect()
}

/// Routes, neighbours, FDB entries and entries of the peer map.
fn counts(pair: &TwoNodes, agent: &Agent) -> Result<[usize; 4]> {
    let state = TunnelState::of(&pair.a)?;
    let dump = agent.cli_json(&["maps", "dump", "peers", "-o", "json"])?;
    let [routes, neighbours, fdb] =
        ["route", "neighbour", "fdb"].map(|kind| state.matching(&[kind]).len());
    Ok([
        routes,
        neighbours,
        fdb,
        dump["peers"].as_array().context("peers")?.len(),
    ])
}

fn until(pair: &TwoNodes, agent: &Agent, count: usize) -> Result<()> {
    eventually(&format!("{count} of each"), LIMIT, || {
        let counts = counts(pair, agent)?;
        ensure!(counts == [count; 4], "{counts:?}");
        Ok(())
    })
}

#[test]
fn three_hundred_peers_come_and_go() -> Result<()> {
    let pair = TwoNodes::new("many", CONFIG)?;
    pair.a.sh("ip route add default via 192.168.1.12")?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    let leases = many();
    pair.etcd.put_leases(&leases)?;
    until(&pair, &agent, leases.len())?;
    let status = agent.wait_ready_is(true)?;
    let peers = status["peers"].as_array().context("peers")?;
    assert!(
        peers.len() == leases.len() && peers.iter().all(|peer| peer["way"] == "tunnel"),
        "{status}"
    );
    assert_eq!(
        (
            status["dirty"].as_array().map(Vec::len),
            status["error"].is_null()
        ),
        (Some(0), true),
        "{status}"
    );

    // A fresh process takes them over; half of them leave, then all.
    agent.kill9()?;
    agent.restart()?;
    agent.wait_ready()?;
    until(&pair, &agent, leases.len())?;
    let (leaving, staying) = leases.split_at(leases.len() / 2);
    pair.etcd.delete_leases(leaving)?;
    until(&pair, &agent, staying.len())?;
    pair.etcd.delete_leases(staying)?;
    until(&pair, &agent, 0)
}
