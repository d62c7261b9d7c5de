//! Modes, generations and agents change under load.

use anyhow::{Result, ensure};
use flannel_common::abi::{program::Program, reason::Reason};
use flannel_tests::{
    Pair,
    cluster::topology::Stack,
    fast::{Counters, fast_pair_of},
};

use super::loads::Loads;

#[test]
fn modes_agents_and_generations_change_under_load_without_a_loss() -> Result<()> {
    let pair = fast_pair_of("fl-switch", Stack::Dual, &[])?;
    let loads = Loads::start(&pair)?;
    for other in ["kernel", "encap"] {
        pair.wait_replayed(1_000)?;
        pair.set_mode(other)?;
        loads.wait_arrived(10)?;
        pair.set_mode("fast")?;
    }
    pair.wait_replayed(1_000)?;
    pair.sender.sigterm_and_wait()?;
    pair.receiver.kill9()?;
    pair.wait_replayed(1_000)?;
    for agent in [&pair.sender, &pair.receiver] {
        agent.restart()?;
        agent.wait_ready()?;
    }
    pair.wait_replayed(1_000)?;
    change_generations(&pair, &loads)?;
    loads.expect_complete()
}

/// As when rules change without end, many times faster than the agent follows them.
fn change_generations(pair: &Pair, loads: &Loads) -> Result<()> {
    let counters = Counters::of(&pair.sender)?;
    let refreshed = || counters.packets(Program::FromPod, Reason::Refreshing);
    let before = refreshed()?;
    for agent in [&pair.sender, &pair.receiver] {
        for _ in 0..10 {
            agent.begin_generations(50)?;
            loads.wait_arrived(1)?;
        }
    }
    ensure!(
        refreshed()? - before > 20,
        "{} looks anew",
        refreshed()? - before
    );
    pair.sender.cli(&["flows", "flush"])?;
    pair.wait_replayed(1_000)
}
