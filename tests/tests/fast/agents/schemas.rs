//! An agent whose predecessor had maps of another schema, by an update or by the way back: it takes
//! the devices over, and no datagram is lost.
//!
//! Both agents are of one build. Between them the directory of the pins gets the name of another
//! schema, so that for the second one these are programs and maps of which it only knows the links.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_common::SCHEMA;
use flannel_tests::{
    Agent, AgentOptions, Pair, TwoNodes, agent::pins::ROOT, cluster::VXLAN, eventually,
    fast::fast_pair, kernel::hooks,
};

const PPS: u32 = 20_000;
const LIMIT: Duration = Duration::from_mins(3);

/// An older schema, and a newer one.
const OTHERS: [u32; 2] = [SCHEMA - 1, SCHEMA + 1];

/// Ends an agent, and lets its pins be those of another schema.
pub(crate) fn end_as(agent: &Agent, schema: u32) -> Result<()> {
    agent.kill9()?;
    agent
        .node()
        .sh(&format!("mv {ROOT}/v{SCHEMA} {ROOT}/v{schema}"))?;
    Ok(())
}

/// Waits until this agent's programs, and no others, are on the devices.
fn wait_alone(agent: &Agent) -> Result<()> {
    eventually(
        "only this agent's programs",
        Duration::from_secs(20),
        || {
            let wrong = hooks::misplaced(agent.node())?;
            ensure!(wrong.is_empty(), "{wrong:?}");
            Ok(())
        },
    )
}

/// The same, and no pins of another schema are left.
pub(crate) fn wait_taken_over(agent: &Agent) -> Result<()> {
    agent.wait_ready()?;
    wait_alone(agent)?;
    eventually("only this schema's pins", Duration::from_secs(20), || {
        let dirs = agent.node().sh(&format!("ls {ROOT}"))?.stdout;
        ensure!(dirs.trim() == format!("v{SCHEMA}"), "{dirs}");
        Ok(())
    })
}

fn taken_over(name: &str, flags: &[&str]) -> Result<()> {
    let pair: Pair = fast_pair(name, flags)?;
    let run = pair.stream(PPS, LIMIT)?;
    for other in OTHERS {
        for agent in [&pair.sender, &pair.receiver] {
            pair.wait_replayed(5_000)?;
            end_as(agent, other)?;
            let said = agent.cli_any(&["maps", "dump", "peers"])?.stderr;
            let expected =
                format!("the pins in {ROOT}/v{other} were made by another version of the agent");
            ensure!(said.contains(&expected), "{said}");
            agent.restart()?;
            wait_taken_over(agent)?;
            agent.wait_log(&["the programs of another version of the agent are replaced"])?;
        }
        // Replayed by the new programs at both ends: none of them is taken for another's.
        pair.wait_replayed(5_000)?;
        pair.sender.wait_pod(&pair.near, true, true)?;
        pair.receiver.wait_pod(&pair.far, true, true)?;
        for agent in [&pair.sender, &pair.receiver] {
            let mode = &agent.status()?["mode"];
            ensure!(mode["effective"] == "fast", "{mode}");
        }
    }
    let report = run.stop()?;
    println!(
        "{} datagrams, {} reordered, longest gap {:?}",
        report.sent, report.reordered, report.longest_gap
    );
    report.expect_complete()
}

#[test]
fn links_of_another_schema_are_taken_over_and_no_datagram_is_lost() -> Result<()> {
    if hooks::lacks_tcx("links_of_another_schema_are_taken_over_and_no_datagram_is_lost") {
        return Ok(());
    }
    taken_over("fa-schema", &[])
}

#[test]
fn filters_of_another_schema_are_taken_over_and_no_datagram_is_lost() -> Result<()> {
    taken_over("fa-schemaf", &["--attach=clsact"])
}

/// Their maps cannot be read, so they are known by their links to the tunnel device.
#[test]
fn programs_of_another_schema_in_another_pin_root_are_removed() -> Result<()> {
    let nodes = TwoNodes::new("fa-schemar", VXLAN)?;
    let [former, _b] = nodes.agents()?;
    end_as(&former, SCHEMA + 1)?;
    let pin_root = "/sys/fs/bpf/second".to_owned();
    let next = nodes.a.ready_agent(AgentOptions {
        pin_root,
        ..nodes.options()?
    })?;
    next.wait_log(&["removed the programs of an agent that ended"])?;
    wait_alone(&next)
}
