//! A node whose agent has a memory limit, which its maps and the load of its programs count
//! against: less is remembered, and eBPF still carries packets.

use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, AgentOptions, MemoryLimit, TwoNodes, cluster::VXLAN, not_run};
use serde_json::Value;

/// Room for the agent as tests build it, for the load of its programs, and for an eighth of the
/// table that is asked for.
const LIMIT: u64 = 160 << 20;
const ASKED: u32 = 1 << 20;

/// The limit that the guide names: the verifier of the kernel takes half of it, for a moment.
const LEAST: u64 = 72 << 20;

/// This process is in the cgroup while it starts an agent.
static TURN: Mutex<()> = Mutex::new(());

fn start(pair: &TwoNodes, limit: &MemoryLimit, options: AgentOptions) -> Result<(Agent, Value)> {
    let agent = limit.within(|| pair.a.agent(options))?;
    agent.wait_ready()?;
    let status = agent.status()?;
    println!("{} -> {}", status["mode"], status["flow_table"]);
    ensure!(!status["mode"]["attach"].is_null(), "no eBPF: {}", status["mode"]);
    Ok((agent, status))
}

/// Mounts the cgroups in the node's mount namespace, as a container runtime does.
fn show_cgroups(pair: &TwoNodes) -> Result<()> {
    pair.a.run(["mount", "-t", "tmpfs", "tmpfs", "/sys/fs/cgroup"])?;
    pair.a.run(["mkdir", "/sys/fs/cgroup/memory"])?;
    pair.a.run(["mount", "-t", "cgroup", "-o", "memory", "cgroup", "/sys/fs/cgroup/memory"])?;
    Ok(())
}

/// More would be needed if the verifier kept more states of the programs in memory.
#[test]
fn an_agent_starts_with_the_memory_that_the_guide_names() -> Result<()> {
    const NAME: &str = "an_agent_starts_with_the_memory_that_the_guide_names";
    const GUIDE: &str = include_str!("../../../docs/guides/operations.md");
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    ensure!(GUIDE.contains(&format!("limit of {} MiB", LEAST >> 20)), "the guide names another limit");
    let limit = match MemoryLimit::new("flannel-memory-least", LEAST)? {
        Ok(limit) => limit,
        Err(reason) => {
            not_run(NAME, &reason);
            return Ok(());
        }
    };
    let pair = TwoNodes::new("memleast", VXLAN)?;
    show_cgroups(&pair)?;
    let (agent, status) = start(&pair, &limit, pair.options()?)?;
    let table = &status["flow_table"];
    ensure!(table["reason"] == format!("by the cgroup's memory limit of {} MiB", LEAST >> 20), "{table}");
    agent.kill9()
}

#[test]
fn the_flow_tables_are_smaller_where_there_is_less_memory() -> Result<()> {
    const NAME: &str = "the_flow_tables_are_smaller_where_there_is_less_memory";
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = match MemoryLimit::new("flannel-memory", LIMIT)? {
        Ok(limit) => limit,
        Err(reason) => {
            not_run(NAME, &reason);
            return Ok(());
        }
    };
    let pair = TwoNodes::new("memlimit", VXLAN)?;

    let (agent, status) = start(&pair, &limit, pair.options()?.flag(&format!("--flow-table-size={ASKED}")))?;
    let table = &status["flow_table"];
    let flows = table["flows"].as_u64().context("flows")?;
    ensure!((1000..u64::from(ASKED)).contains(&flows), "{table}");
    let reason = format!("the kernel has no memory for {ASKED}");
    ensure!(table["reason"].as_str().is_some_and(|said| said.starts_with(&reason)), "{table}");
    ensure!(
        agent.cli_any(&["status"])?.stdout.contains(&format!("flows      {flows} of each family ({reason}")),
        "{table}"
    );
    agent.wait_log(&["the kernel has no memory for", "trying fewer"])?;
    agent.kill9()?;
    // Its pinned tables count against the limit, and would leave too little to the next one.
    agent.cli(&["cleanup"])?;

    show_cgroups(&pair)?;
    let (agent, status) = start(&pair, &limit, pair.options()?)?;
    let table = &status["flow_table"];
    ensure!(table["reason"] == format!("by the cgroup's memory limit of {} MiB", LIMIT >> 20), "{table}");
    agent.kill9()
}
