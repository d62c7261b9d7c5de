//! Both agents change, end, die and come back of other versions while rules come and go, in an
//! order drawn at random, under load.
//!
//! By default each kind of change is made once on each node. `FLANNEL_CHAOS_SECONDS` says how long
//! to go on with further rounds, `FLANNEL_CHAOS_SEED` which orders are drawn.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};
use flannel_common::SCHEMA;
use flannel_tests::{
    Agent, Pair, cluster::topology::Stack, fast::fast_pair_of, harness::variable::number,
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};

use super::loads::Loads;
use crate::fast::agents::schemas;

/// Longer than a round takes.
const ROUND: Duration = Duration::from_mins(5);
/// Rules that are made and removed.
const STORM: &str = "for i in $(seq 30); do \
    nft 'add table inet storm; add chain inet storm c { type filter hook forward priority 5; }; \
    add rule inet storm c ct state invalid drop'; nft delete table inet storm; done";

/// A change on one node.
#[derive(Clone, Copy, Debug)]
enum Change {
    Mode(&'static str),
    /// The agent ends, and another one starts.
    End,
    /// It is killed.
    Kill,
    /// The programs that the next agent finds are of this schema.
    Schema(u32),
    Rules,
    /// All flows are forgotten.
    Flush,
    /// All flows are observed again, many times.
    Generations,
}

const ALL: [Change; 9] = [
    Change::Mode("kernel"),
    Change::Mode("encap"),
    Change::End,
    Change::Kill,
    Change::Schema(SCHEMA - 1),
    Change::Schema(SCHEMA + 1),
    Change::Rules,
    Change::Flush,
    Change::Generations,
];

impl Change {
    fn make(self, agent: &Agent, loads: &Loads) -> Result<()> {
        match self {
            Self::Mode(mode) => {
                agent.set_mode(mode)?;
                loads.wait_arrived(2)?;
                agent.set_mode("fast")
            }
            Self::End => {
                agent.sigterm_and_wait()?;
                come_back(agent, loads)
            }
            Self::Kill => {
                agent.kill9()?;
                come_back(agent, loads)
            }
            Self::Schema(schema) => {
                schemas::end_as(agent, schema)?;
                come_back(agent, loads)?;
                schemas::wait_taken_over(agent)
            }
            Self::Rules => agent.node().run(["sh", "-c", STORM]).map(drop),
            Self::Flush => agent.cli(&["flows", "flush"]).map(drop),
            Self::Generations => agent.begin_generations(200),
        }
    }
}

/// For a while only the programs carry packets; then the next agent starts.
fn come_back(agent: &Agent, loads: &Loads) -> Result<()> {
    loads.wait_arrived(2)?;
    agent.restart()?;
    agent.wait_ready()
}

/// Makes all changes in the order that is drawn.
fn round(agent: &Agent, loads: &Loads, mut random: StdRng) -> Result<()> {
    let mut changes = ALL;
    changes.shuffle(&mut random);
    changes.into_iter().try_for_each(|change| {
        let made = change.make(agent, loads);
        made.and_then(|()| loads.wait_arrived(1))
            .with_context(|| format!("{}: {change:?} of {changes:?}", agent.node().name()))
    })
}

/// Makes them on both nodes at the same time, each in its own order.
fn round_on_both(pair: &Pair, random: &mut StdRng) -> Result<()> {
    let loads = Loads::start_for(pair, ROUND)?;
    let on_both = &loads;
    thread::scope(|scope| {
        let nodes = [&pair.sender, &pair.receiver]
            .map(|agent| (agent, StdRng::seed_from_u64(random.random())))
            .map(|(agent, random)| scope.spawn(move || round(agent, on_both, random)));
        for node in nodes {
            node.join()
                .map_err(|panic| anyhow!("a node's thread panicked: {panic:?}"))??;
        }
        anyhow::Ok(())
    })?;
    pair.wait_replayed(1_000)?;
    loads.expect_complete()
}

#[test]
fn whatever_happens_to_both_agents_loses_nothing() -> Result<()> {
    let seed = number("FLANNEL_CHAOS_SEED")?.unwrap_or_else(rand::random);
    let time = Duration::from_secs(number("FLANNEL_CHAOS_SECONDS")?.unwrap_or(0));
    let pair = fast_pair_of("fl-chaos", Stack::Dual, &[])?;
    let (mut random, start, mut rounds) = (StdRng::seed_from_u64(seed), Instant::now(), 0);
    while rounds == 0 || start.elapsed() < time {
        rounds += 1;
        round_on_both(&pair, &mut random).with_context(|| {
            format!("round {rounds}; FLANNEL_CHAOS_SEED={seed} draws the same orders")
        })?;
    }
    println!("{rounds} rounds of {} changes on each node", ALL.len());
    Ok(())
}
