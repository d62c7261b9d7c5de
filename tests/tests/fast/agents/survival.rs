//! Mode switches and a dead agent lose nothing.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{Agent, eventually, fast::fast_pair, load::UdpRun};

const PPS: u32 = 10_000;
const LIMIT: Duration = Duration::from_mins(1);

fn complete(run: UdpRun) -> Result<()> {
    let report = run.stop()?;
    println!("{} datagrams, {} reordered, longest gap {:?}", report.sent, report.reordered, report.longest_gap);
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
    eventually(&format!("agent_late of {program}"), Duration::from_secs(15), || {
        let late = agent.counted(program, "agent_late")? - start;
        ensure!(late >= 1_000, "{late} packets");
        Ok(())
    })
}

/// Programs, maps and links are pinned: they replay for the seconds that the last heartbeat allows,
/// then the node works as in mode `encap`, and the next agent takes everything over.
#[test]
fn a_killed_agent_loses_no_datagram_and_its_successor_none_either() -> Result<()> {
    let pair = fast_pair("fa-killed", &[])?;
    let run = pair.stream(PPS, LIMIT)?;
    pair.wait_replayed(5_000)?;
    for agent in [&pair.sender, &pair.receiver] {
        agent.kill9()?;
    }
    // A second of it; the limit is five, less the age of the last heartbeat.
    pair.wait_replayed(u64::from(PPS))?;
    wait_agent_late(&pair.sender, "from_pod")?;
    wait_agent_late(&pair.receiver, "from_underlay")?;
    for agent in [&pair.sender, &pair.receiver] {
        agent.restart()?;
        agent.wait_ready()?;
    }
    pair.wait_replayed(5_000)?;
    complete(run)
}
