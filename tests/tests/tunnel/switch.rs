//! Switching modes: no datagram is lost, and the operator's choice lasts until it is given back.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{Agent, Pair, eventually};

const PPS: u32 = 20_000;
const SWITCHES: usize = 10;
/// The number of packets that must go through a mode before the next switch.
const PER_MODE: u64 = 4_000;

#[test]
fn ten_switches_under_load_lose_no_datagram_and_both_paths_carry() -> Result<()> {
    let pair = Pair::new("switch")?;
    let run = pair.stream(PPS, Duration::from_mins(1))?;
    pair.wait_encapsulated(PER_MODE)?;
    for turn in 0..SWITCHES {
        if turn % 2 == 0 {
            pair.set_mode("kernel")?;
            let before = pair.encapsulated()?;
            pair.wait_received(PER_MODE)?;
            assert_eq!(pair.encapsulated()?, before, "encapsulated in mode kernel");
        } else {
            pair.set_mode("encap")?;
            pair.wait_encapsulated(PER_MODE)?;
        }
    }
    let report = run.stop()?;
    println!(
        "{} datagrams, {} switches, longest gap {:?}",
        report.sent, SWITCHES, report.longest_gap
    );
    assert!(
        report.sent >= PER_MODE * (SWITCHES as u64 + 1),
        "{report:?}"
    );
    report.expect_complete()
}

/// Mode and who asked for it, once the agent says so.
fn eventually_in_mode(agent: &Agent, mode: &str, source: &str) -> Result<()> {
    eventually(
        &format!("mode {mode} ({source})"),
        Duration::from_secs(10),
        || {
            let status = agent.status()?;
            let seen = &status["mode"];
            ensure!(
                seen["effective"] == mode && seen["source"] == source && status["ready"] == true,
                "{seen}"
            );
            Ok(())
        },
    )
}

#[test]
fn the_operators_choice_survives_restarts_until_auto_gives_it_back() -> Result<()> {
    let pair = Pair::new("choice")?;
    eventually_in_mode(&pair.sender, "encap", "flag")?;
    pair.sender.set_mode("kernel")?;
    pair.sender.sigterm_and_wait()?;
    pair.sender.restart()?;
    eventually_in_mode(&pair.sender, "kernel", "run-time")?;
    pair.sender.kill9()?;
    pair.sender.restart()?;
    eventually_in_mode(&pair.sender, "kernel", "run-time")?;
    let before = pair.encapsulated()?;
    pair.near.ping(pair.far.ip())?;
    assert_eq!(pair.encapsulated()?, before, "encapsulated in mode kernel");
    pair.sender.cli(&["datapath", "set", "auto"])?;
    eventually_in_mode(&pair.sender, "encap", "flag")?;
    pair.near.ping(pair.far.ip())?;
    assert!(pair.encapsulated()? > before);
    Ok(())
}

#[test]
fn auto_gives_the_flag_its_say_again() -> Result<()> {
    let pair = Pair::with_flags("flag", &["--datapath=kernel"])?;
    eventually_in_mode(&pair.sender, "kernel", "flag")?;
    assert_eq!(pair.encapsulated()?, 0);
    pair.sender.set_mode("encap")?;
    eventually_in_mode(&pair.sender, "encap", "run-time")?;
    pair.near.ping(pair.far.ip())?;
    assert!(pair.encapsulated()? > 0);
    pair.sender.cli(&["datapath", "set", "auto"])?;
    eventually_in_mode(&pair.sender, "kernel", "flag")
}

/// The word is in a pinned map, so it needs no agent; the next one finds it there.
#[test]
fn a_switch_without_an_agent_takes_effect_at_once() -> Result<()> {
    let pair = Pair::new("orphan")?;
    pair.sender.kill9()?;
    pair.sender.cli(&["datapath", "set", "kernel"])?;
    let before = pair.encapsulated()?;
    pair.near.ping(pair.far.ip())?;
    assert_eq!(pair.encapsulated()?, before, "encapsulated in mode kernel");
    pair.sender.cli(&["datapath", "set", "encap"])?;
    pair.near.ping(pair.far.ip())?;
    assert!(pair.encapsulated()? > before);
    pair.sender.restart()?;
    eventually_in_mode(&pair.sender, "encap", "run-time")
}
