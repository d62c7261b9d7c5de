//! Mode switches and a dead agent lose nothing.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{Agent, Pair, eventually, fast::fast_pair, load::UdpRun};

const PPS: u32 = 10_000;
const LIMIT: Duration = Duration::from_mins(3);
/// Kills that may fall into the moment at which the kernel has to see a packet of the flow again.
/// Without an agent nothing confirms the flow after that.
const ATTEMPTS: u32 = 3;

fn complete(run: UdpRun) -> Result<()> {
    let report = run.stop()?;
    println!(
        "{} datagrams, {} reordered, longest gap {:?}",
        report.sent, report.reordered, report.longest_gap
    );
    report.expect_complete()
}

#[test]
fn switching_modes_under_load_loses_no_datagram() -> Result<()> {
    let pair = fast_pair("fa-switch", &[])?;
    let run = pair.stream(PPS, LIMIT)?;
    for other in ["encap", "kernel", "encap"] {
        pair.wait_replayed(5_000)?;
        pair.set_mode(other)?;
        let before = pair.replayed()?;
        pair.talk()?.exchange(100)?;
        assert_eq!(pair.replayed()?, before, "replayed in mode {other}");
        pair.set_mode("fast")?;
    }
    complete(run)
}

/// Waits until this program of a node counted packets that only the missing agent kept from replay.
fn wait_agent_late(agent: &Agent, program: &str) -> Result<()> {
    let start = agent.counted(program, "agent_late")?;
    eventually(
        &format!("agent_late of {program}"),
        Duration::from_secs(15),
        || {
            let late = agent.counted(program, "agent_late")? - start;
            ensure!(late >= 1_000, "{late} packets");
            Ok(())
        },
    )
}

/// Kills both agents while packets are replayed. The inner result says whether a second more of
/// them was; the limit is five, less the age of the last heartbeat.
fn kill_and_wait_replayed(pair: &Pair) -> Result<Result<()>> {
    pair.wait_replayed(5_000)?;
    for agent in [&pair.sender, &pair.receiver] {
        agent.kill9()?;
    }
    Ok(pair.wait_replayed(u64::from(PPS)))
}

fn restart(pair: &Pair) -> Result<()> {
    for agent in [&pair.sender, &pair.receiver] {
        agent.restart()?;
        agent.wait_ready()?;
    }
    Ok(())
}

/// Programs, maps and links are pinned: they replay for the seconds that the last heartbeat allows,
/// then the node works as in mode `encap`, and the next agent takes everything over.
#[test]
fn a_killed_agent_loses_no_datagram_and_its_successor_none_either() -> Result<()> {
    let pair = fast_pair("fa-killed", &[])?;
    let run = pair.stream(PPS, LIMIT)?;
    let mut attempts = 1;
    while let Err(error) = kill_and_wait_replayed(&pair)? {
        ensure!(
            attempts < ATTEMPTS,
            "in each of {attempts} attempts: {error:#}"
        );
        attempts += 1;
        restart(&pair)?;
    }
    wait_agent_late(&pair.sender, "from_pod")?;
    wait_agent_late(&pair.receiver, "from_underlay")?;
    restart(&pair)?;
    pair.wait_replayed(5_000)?;
    complete(run)
}
