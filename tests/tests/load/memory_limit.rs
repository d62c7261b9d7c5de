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

/// Chains of kube-proxy for 10,000 Services with three endpoints each.
const CHAINS: u32 = 40_000;

/// This process is in the cgroup while it starts an agent.
static TURN: Mutex<()> = Mutex::new(());

/// A cgroup with this limit in bytes; `None`, and said, where the test cannot have one.
fn limited(test: &str, group: &str, bytes: u64) -> Result<Option<MemoryLimit>> {
    Ok(MemoryLimit::new(group, bytes)?
        .map_err(|reason| not_run(test, &reason))
        .ok())
}

fn start(pair: &TwoNodes, limit: &MemoryLimit, options: AgentOptions) -> Result<(Agent, Value)> {
    let agent = limit.within(|| pair.a.agent(options))?;
    agent.wait_ready()?;
    let status = agent.status()?;
    println!("{} -> {}", status["mode"], status["flow_table"]);
    ensure!(
        !status["mode"]["attach"].is_null(),
        "no eBPF: {}",
        status["mode"]
    );
    Ok((agent, status))
}

/// Mounts the cgroups in the node's mount namespace, as a container runtime does.
fn show_cgroups(pair: &TwoNodes) -> Result<()> {
    pair.a
        .run(["mount", "-t", "tmpfs", "tmpfs", "/sys/fs/cgroup"])?;
    pair.a.run(["mkdir", "/sys/fs/cgroup/memory"])?;
    pair.a.run([
        "mount",
        "-t",
        "cgroup",
        "-o",
        "memory",
        "cgroup",
        "/sys/fs/cgroup/memory",
    ])?;
    Ok(())
}

/// More would be needed if the verifier kept more states of the programs in memory.
#[test]
fn an_agent_starts_with_the_memory_that_the_guide_names() -> Result<()> {
    const NAME: &str = "an_agent_starts_with_the_memory_that_the_guide_names";
    const GUIDE: &str = include_str!("../../../docs/guides/operations.md");
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    ensure!(
        GUIDE.contains(&format!("limit of {} MiB", LEAST >> 20)),
        "the guide names another limit"
    );
    let Some(limit) = limited(NAME, "flannel-memory-least", LEAST)? else {
        return Ok(());
    };
    let pair = TwoNodes::new("memleast", VXLAN)?;
    show_cgroups(&pair)?;
    let (agent, status) = start(&pair, &limit, pair.options()?)?;
    let table = &status["flow_table"];
    ensure!(
        table["reason"] == format!("by the cgroup's memory limit of {} MiB", LEAST >> 20),
        "{table}"
    );
    agent.kill9()
}

/// `nft` keeps the names of all chains of the node in memory while it writes rules: with those of
/// 10,000 Services it takes as much as the load of the programs, and the limit has room for one of
/// the two.
#[test]
fn an_agent_starts_with_that_memory_on_a_node_with_many_services() -> Result<()> {
    const NAME: &str = "an_agent_starts_with_that_memory_on_a_node_with_many_services";
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(limit) = limited(NAME, "flannel-memory-services", LEAST)? else {
        return Ok(());
    };
    let pair = TwoNodes::new(
        "memsvc",
        &VXLAN.replacen('{', r#"{"EnableNFTables":true,"#, 1),
    )?;
    show_cgroups(&pair)?;
    let chain = |number| format!("  chain endpoint-{number:08}-of-a-service {{ counter; }}\n");
    let chains: Vec<String> = (0..CHAINS).map(chain).collect();
    pair.a
        .nft(&format!("table ip services {{\n{}}}\n", chains.concat()))?;
    let (agent, status) = start(&pair, &limit, pair.options()?.flag("--ip-masq"))?;
    ensure!(
        status["traffic"]["engine"] == "nftables" && status["traffic"]["error"].is_null(),
        "{}",
        status["traffic"]
    );
    ensure!(
        limit.kills()? == 0,
        "the kernel ended {} processes",
        limit.kills()?
    );
    agent.kill9()
}

#[test]
fn the_flow_tables_are_smaller_where_there_is_less_memory() -> Result<()> {
    const NAME: &str = "the_flow_tables_are_smaller_where_there_is_less_memory";
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(limit) = limited(NAME, "flannel-memory", LIMIT)? else {
        return Ok(());
    };
    let pair = TwoNodes::new("memlimit", VXLAN)?;

    let (agent, status) = start(
        &pair,
        &limit,
        pair.options()?.flag(&format!("--flow-table-size={ASKED}")),
    )?;
    let table = &status["flow_table"];
    let flows = table["flows"].as_u64().context("flows")?;
    ensure!((1000..u64::from(ASKED)).contains(&flows), "{table}");
    let reason = format!("the kernel has no memory for {ASKED}");
    ensure!(
        table["reason"]
            .as_str()
            .is_some_and(|said| said.starts_with(&reason)),
        "{table}"
    );
    ensure!(
        agent
            .cli_any(&["status"])?
            .stdout
            .contains(&format!("flows      {flows} of each family ({reason}")),
        "{table}"
    );
    agent.wait_log(&["the kernel has no memory for", "trying fewer"])?;
    agent.kill9()?;
    // Its pinned tables count against the limit, and would leave too little to the next one.
    agent.cli(&["cleanup"])?;

    show_cgroups(&pair)?;
    let (agent, status) = start(&pair, &limit, pair.options()?)?;
    let table = &status["flow_table"];
    ensure!(
        table["reason"] == format!("by the cgroup's memory limit of {} MiB", LIMIT >> 20),
        "{table}"
    );
    agent.kill9()
}
