//! One run of a scenario in one mode.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use flannel_tests::{
    differential::{
        record::Record,
        scenario::{CLIENT_PORTS, Scenario, Side},
        tracked,
    },
    kernel::conntrack,
};

use super::{lab::DiffLab, rules, tcp::Conversations, udp::Datagrams};

/// Longer than two of the agent's generations after a change of nftables are apart.
const SETTLED: Duration = Duration::from_millis(1300);
/// Longer than the longest refresh interval.
const SILENCE: Duration = Duration::from_millis(2700);

/// Installs the rules, sends the traffic, and takes the rules away again.
pub(crate) fn run(lab: &DiffLab, scenario: &Scenario, mode: &str) -> Result<Record> {
    let record = installed(lab, scenario, mode);
    let removed = rules::remove(lab, scenario);
    let record = record.with_context(|| format!("seed {:#x}, mode {mode}", scenario.seed))?;
    removed?;
    Ok(record)
}

fn installed(lab: &DiffLab, scenario: &Scenario, mode: &str) -> Result<Record> {
    forget(lab)?;
    lab.surround(scenario.surroundings)?;
    let _answers = lab.answers(scenario)?;
    rules::install(lab, scenario)?;
    let installed = Instant::now();
    lab.set_mode(mode)?;
    if mode == "fast" {
        lab.wait_queues(scenario)?;
        // Each generation that begins makes the programs see all flows again: none is to begin
        // during the run.
        thread::sleep(SETTLED.saturating_sub(installed.elapsed()));
    }
    lab.clear();
    let replayed = lab.replayed()?;
    let mut record = Record::default();
    traffic(lab, scenario, &mut record)?;
    record.replayed = lab.replayed()? - replayed;
    Ok(record)
}

fn traffic(lab: &DiffLab, scenario: &Scenario, record: &mut Record) -> Result<()> {
    let mut datagrams = Datagrams::open(lab, scenario)?;
    let mut conversations = Conversations::open(lab, scenario, record)?;
    let phases = scenario.phases;
    let first = phases.warm_up + phases.varying;
    let end = first + phases.after_silence.unwrap_or(0);
    for number in 0..end {
        if number == first {
            thread::sleep(SILENCE);
        }
        datagrams.round(number, record)?;
        conversations.round(number, record);
    }
    conversations.end(lab, end, record)?;
    lab.observe(scenario, record)?;
    datagrams.drain(record)?;
    record.counters = rules::counters(lab, scenario)?;
    record.tracked = Side::ALL
        .into_iter()
        .map(|side| table(lab, side))
        .collect::<Result<Vec<_>>>()?
        .concat()
        .into_iter()
        .collect();
    Ok(())
}

fn table(lab: &DiffLab, side: Side) -> Result<Vec<(tracked::Tuple, tracked::Entry)>> {
    let path = format!("/proc/{}/net/nf_conntrack", lab.node(side).pid());
    let text = fs::read_to_string(&path).context(path)?;
    Ok(text
        .lines()
        .filter_map(|line| tracked::parse(side, line))
        .collect())
}

/// Makes both nodes forget the flows of the run before.
fn forget(lab: &DiffLab) -> Result<()> {
    for side in Side::ALL {
        conntrack::forget(lab.node(side), |connection| {
            CLIENT_PORTS.contains(&connection.original.source.port())
        })?;
    }
    Ok(())
}
