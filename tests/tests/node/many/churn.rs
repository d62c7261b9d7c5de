//! Hundreds of peers that come, change and go at random: what is left in the kernel and in the maps
//! is what a fresh agent makes of the same store.
//!
//! `FLANNEL_CHURN_SECONDS` (default 20) and `FLANNEL_CHURN_SEED` choose how long, and which run; a
//! failure names its seed.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use etcd_client::{PutOptions, Txn, TxnOp};
use flannel_tests::{
    Agent, Etcd, StockNode, TunnelState, TwoNodes, cluster::LEASES, eventually,
    harness::variable::number,
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

/// 1024 subnets; those of agents lie above those of the test. Neighbours are reached without a
/// tunnel.
const CONFIG: &str = r#"{"Network":"10.244.0.0/16","SubnetLen":26,"SubnetMin":"10.244.200.0","Backend":{"Type":"vxlan","DirectRouting":true}}"#;
const PEERS: u16 = 500;
const LIMIT: Duration = Duration::from_mins(1);
/// The last lease written: who has it has all.
const LAST: u16 = PEERS + 10;

/// A change to one peer: the name of its lease, and the new value in the store; `None` deletes it.
struct Change {
    name: String,
    value: Option<String>,
}

/// Draws changes. Names, addresses and MACs are few enough to collide.
struct Dice(StdRng);

impl Dice {
    fn change(&mut self) -> Change {
        let number = self.0.random_range(1..=PEERS);
        // Now and then a larger subnet, over that of a neighbour.
        let name = if self.0.random_ratio(1, 20) {
            name(number & !1, 25)
        } else {
            name(number, 26)
        };
        let value = match self.0.random_range(0..20) {
            0..6 => None,
            6 => Some("{".to_owned()),
            7 => Some(self.lease(number).value().replace("vxlan", "host-gw")),
            _ => Some(self.lease(number).value()),
        };
        Change { name, value }
    }

    fn lease(&mut self, number: u16) -> StockNode {
        let [upper, lower] = if self.0.random_ratio(1, 4) {
            self.0.random()
        } else {
            number.to_be_bytes()
        };
        let direct = self.0.random_ratio(1, 4);
        let public_ip = if direct {
            format!("192.168.1.{}", 100 + lower / 2)
        } else {
            format!("172.16.{upper}.{lower}")
        };
        let mac = if self.0.random_ratio(1, 10) {
            self.0.random_range(1..=PEERS)
        } else {
            number
        };
        let [mac_upper, mac_lower] = mac.to_be_bytes();
        StockNode::named(
            &name(number, 26),
            &public_ip,
            &format!("02:00:00:00:{mac_upper:02x}:{mac_lower:02x}"),
        )
    }
}

fn name(number: u16, length: u8) -> String {
    let [high, low] = (number * 64).to_be_bytes();
    format!("10.244.{high}.{low}-{length}")
}

/// Writes changes in transactions of several, as fast as the store takes them.
fn churn(etcd: &Etcd, dice: &mut Dice, time: Duration) -> Result<u64> {
    let mut count = 0;
    etcd.client(async |client| {
        let day = client.lease_grant(86_400, None).await?.id();
        let end = Instant::now() + time;
        while Instant::now() < end {
            let changes: Vec<_> = (0..dice.0.random_range(1..20))
                .map(|_| dice.change())
                .collect();
            // A transaction may not write one key twice.
            let mut seen = BTreeSet::new();
            let ops: Vec<_> = changes
                .into_iter()
                .filter(|change| seen.insert(change.name.clone()))
                .map(|Change { name, value }| match value {
                    Some(value) => TxnOp::put(
                        format!("{LEASES}{name}"),
                        value,
                        Some(PutOptions::new().with_lease(day)),
                    ),
                    None => TxnOp::delete(format!("{LEASES}{name}"), None),
                })
                .collect();
            count += ops.len() as u64;
            client.txn(Txn::new().and_then(ops)).await?;
        }
        Ok(())
    })?;
    Ok(count)
}

/// Returns what an agent derives from leases other than those of agents: kernel objects, map
/// entries, verdicts. Lines that contain a word of `not_about` are left out.
fn made_of_leases(agent: &Agent, not_about: &[&str]) -> Result<BTreeSet<String>> {
    let status = agent.status()?;
    ensure!(
        status["ready"] == true && status["dirty"].as_array().is_some_and(Vec::is_empty),
        "{status}"
    );
    let mut all: BTreeSet<String> = TunnelState::of(agent.node())?
        .matching(&[])
        .into_iter()
        .map(str::to_owned)
        .collect();
    all.retain(|line| !line.starts_with("address "));
    let dump = agent.cli_json(&["maps", "dump", "peers", "-o", "json"])?;
    for row in dump["peers"].as_array().context("peers")? {
        // The next hop is each node's own way.
        all.insert(format!(
            "map {} {} {} {}",
            row["subnet"], row["vtep"], row["vtep_mac"], row["path"]
        ));
    }
    for row in status["peers"].as_array().context("peers")? {
        all.insert(format!("status {row}"));
    }
    for row in status["rejected"].as_array().context("rejected")? {
        all.insert(format!("refused {row}"));
    }
    all.retain(|line| !not_about.iter().any(|word| line.contains(word)));
    Ok(all)
}

fn has_last(agent: &Agent) -> Result<()> {
    eventually("the last lease", LIMIT, || {
        let status = agent.status()?;
        let peers = status["peers"].as_array().context("peers")?;
        let subnet = name(LAST, 26).replace('-', "/");
        ensure!(
            peers.iter().any(|peer| peer["subnet"] == *subnet),
            "{} peers",
            peers.len()
        );
        Ok(())
    })
}

#[test]
fn after_a_storm_of_changes_everything_is_as_a_fresh_agent_makes_it() -> Result<()> {
    let seed = number("FLANNEL_CHURN_SEED")?.unwrap_or_else(rand::random);
    weather(seed).with_context(|| format!("FLANNEL_CHURN_SEED={seed} draws the same changes"))
}

fn weather(seed: u64) -> Result<()> {
    let time = Duration::from_secs(number("FLANNEL_CHURN_SECONDS")?.unwrap_or(20));
    let pair = TwoNodes::new("churn", CONFIG)?;
    pair.a.sh("ip route add default via 192.168.1.12")?;
    pair.b.sh("ip route add default via 192.168.1.11")?;
    let agent = pair.a.ready_agent(pair.options()?)?;

    let mut dice = Dice(StdRng::seed_from_u64(seed));
    let mut changes = churn(&pair.etcd, &mut dice, time / 2)?;
    agent.kill9()?;
    changes += churn(&pair.etcd, &mut dice, time / 20)?;
    agent.restart()?;
    changes += churn(&pair.etcd, &mut dice, time / 2)?;
    let last = StockNode::named(&name(LAST, 26), "172.31.255.1", "02:00:00:00:ff:ff");
    last.put(&pair.etcd)?;
    agent.wait_ready()?;
    has_last(&agent)?;
    let old = eventually("a settled agent", LIMIT, || made_of_leases(&agent, &[]))?;

    let fresh = pair.b.ready_agent(pair.options()?)?;
    has_last(&fresh)?;
    let status = agent.status()?;
    let subnet = status["lease"]["subnet"].as_str().context("a subnet")?;
    let about_the_old = [
        subnet,
        subnet.trim_end_matches("/26"),
        "192.168.1.11\"",
        status["device"]["mac"].as_str().context("a MAC")?,
    ];
    eventually("what a fresh agent makes of the store", LIMIT, || {
        let new = made_of_leases(&fresh, &about_the_old)?;
        let (missing, extra): (Vec<_>, Vec<_>) = (
            new.difference(&old).collect(),
            old.difference(&new).collect(),
        );
        ensure!(
            missing.is_empty() && extra.is_empty(),
            "the old one lacks {missing:#?}\nand has too many: {extra:#?}"
        );
        Ok(())
    })?;
    let peers = status["peers"].as_array().map_or(0, Vec::len);
    println!(
        "{changes} changes in {time:?}, {peers} peers and {} lines of state at the end",
        old.len()
    );
    ensure!(
        changes > 1000 && peers > 100,
        "{changes} changes, {peers} peers: that is no storm"
    );
    Ok(())
}
