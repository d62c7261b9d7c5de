//! An update from another version of the agent and the way back, node by node, under traffic:
//! docs/guides/operations.md promises that it loses no packet, and `cleanup` leaves the node as it
//! was.
//!
//! `cargo xtask upgrade` builds the other version and names it in `FLANNEL_FORMER_AGENT`.

mod faults;

use std::{
    env,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Pair, agent::snapshot::Snapshot, agent_binary, eventually, fast::fast_pair, not_run,
};
use serde_json::Value;

const PPS: u32 = 20_000;
const LIMIT: Duration = Duration::from_mins(3);

/// The other version, where one is named.
fn named_former() -> Result<Option<PathBuf>> {
    let path = env::var_os("FLANNEL_FORMER_AGENT").map(PathBuf::from);
    path.map(|path| path.canonicalize().context("FLANNEL_FORMER_AGENT"))
        .transpose()
}

/// The other version; `None`, said aloud, without one.
fn former(what: &str) -> Result<Option<PathBuf>> {
    let former = named_former()?;
    if former.is_none() {
        not_run(
            what,
            "`cargo xtask upgrade --from REVISION` builds the other version",
        );
    }
    Ok(former)
}

/// Ends an agent, and starts another version with its flags and records.
fn replace(agent: &mut Agent, binary: &Path) -> Result<()> {
    let subnet = subnet(agent)?;
    let begun = Instant::now();
    agent.sigterm_and_wait()?;
    *agent = agent.succeeded_by(binary)?;
    wait_joined(agent)?;
    println!(
        "{} ready again after {:.1} s",
        agent.node().name(),
        begun.elapsed().as_secs_f32()
    );
    let now = self::subnet(agent)?;
    ensure!(now == subnet, "the lease was {subnet} and is {now}");
    Ok(())
}

fn wait_joined(agent: &Agent) -> Result<()> {
    agent.wait_ready()?;
    agent.wait_peers(1)
}

fn subnet(agent: &Agent) -> Result<Value> {
    Ok(agent.status()?["lease"]["subnet"].clone())
}

/// Requires that commands of a version understand an agent of any version.
fn expect_answers(agent: &Agent, binary: &Path) -> Result<()> {
    for line in [
        "status",
        "status -o json",
        "maps dump all",
        "datapath show",
        "guard show",
        "maps dump --diff",
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        let argv = agent.argv_of(binary, &args);
        agent
            .node()
            .run(argv)
            .with_context(|| format!("`{line}` of {}", binary.display()))?;
    }
    Ok(())
}

/// Ends an agent, and removes all that it made.
fn clean(agent: &Agent) -> Result<()> {
    agent.sigterm_and_wait()?;
    agent.cli(&["cleanup"]).map(drop)
}

/// The same, and requires the node to be as it was before it had an agent.
fn clean_to(before: &Snapshot, agent: &Agent) -> Result<()> {
    clean(agent)?;
    eventually("a clean node", Duration::from_secs(10), || {
        let changes = before.changes(&Snapshot::of(agent.node())?);
        ensure!(changes.is_empty(), "{changes}");
        Ok(())
    })
}

/// Begins with the other version on both nodes, and goes to the present one, back, and there again.
fn rehearse(
    what: &str,
    pair: impl FnOnce() -> Result<Pair>,
    proof: impl Fn(&Pair) -> Result<()>,
) -> Result<()> {
    let Some(former) = former(what)? else {
        return Ok(());
    };
    let present = agent_binary()?;
    let mut pair = pair()?;
    let mut before = Vec::new();
    for agent in [&mut pair.sender, &mut pair.receiver] {
        clean(agent)?;
        before.push(Snapshot::of(agent.node())?);
        *agent = agent.succeeded_by(&former)?;
    }
    for agent in [&pair.sender, &pair.receiver] {
        wait_joined(agent)?;
    }
    pair.near.wait_ping(pair.far.ip())?;
    proof(&pair)?;
    let run = pair.stream(PPS, LIMIT)?;
    for binary in [&present, &former, &present] {
        replace(&mut pair.sender, binary)?;
        expect_answers(&pair.sender, &present)?;
        expect_answers(&pair.sender, &former)?;
        replace(&mut pair.receiver, binary)?;
        proof(&pair)?;
    }
    let report = run.stop()?;
    println!(
        "{} datagrams, {} lost, longest gap {:?}",
        report.sent,
        report.lost_count(),
        report.longest_gap
    );
    report.expect_complete()?;
    for (agent, before) in [&pair.sender, &pair.receiver].into_iter().zip(&before) {
        clean_to(before, agent)?;
    }
    Ok(())
}

fn without_flows(name: &str, mode: &str) -> Result<()> {
    let flag = format!("--datapath={mode}");
    rehearse(
        name,
        || Pair::with_flags(name, &[&flag]),
        |pair| {
            let shown = &pair.sender.status()?["mode"]["effective"];
            ensure!(shown == mode, "mode {shown}");
            Ok(())
        },
    )
}

#[test]
fn another_version_and_back_in_mode_kernel() -> Result<()> {
    without_flows("up-kernel", "kernel")
}

#[test]
fn another_version_and_back_in_mode_encap() -> Result<()> {
    without_flows("up-encap", "encap")
}

#[test]
fn another_version_and_back_in_mode_fast() -> Result<()> {
    rehearse(
        "up-fast",
        || fast_pair("up-fast", &[]),
        |pair| {
            pair.sender.wait_pod(&pair.near, true, true)?;
            pair.receiver.wait_pod(&pair.far, true, true)
        },
    )
}
