//! BPF programs at netfilter's hooks judge packets as rules do, and no table of rules has them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, eventually,
    fast::fast_pair,
    kernel::netfilter_program::{NetfilterHook, NetfilterProgram},
};

/// No event announces them; the agent looks every 100 ms in mode `fast`, else every five seconds.
const FOUND: Duration = Duration::from_secs(20);

fn wait_mode(agent: &Agent, mode: &str, reason: Option<&str>) -> Result<()> {
    eventually(&format!("mode {mode} because of {reason:?}"), FOUND, || {
        let found = agent.status()?["mode"].clone();
        let is_right = match (found["reason"].as_str(), reason) {
            (None, None) => true,
            (Some(found), Some(reason)) => found.contains(reason),
            _ => false,
        };
        ensure!(found["effective"] == mode && is_right, "{found}");
        Ok(())
    })
}

#[test]
fn packets_pass_each_program_at_a_netfilter_hook() -> Result<()> {
    let pair = fast_pair("nf-programs", &[])?;
    let agent = &pair.sender;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 100)?;
    for (hook, mode, name) in [
        (
            NetfilterHook::Forward,
            "encap",
            "a BPF program at the netfilter hook FORWARD of IPv4 may judge each packet",
        ),
        (
            NetfilterHook::Output,
            "kernel",
            "a BPF program at the netfilter hook OUTPUT of IPv4 may judge each packet",
        ),
    ] {
        let program = NetfilterProgram::attach(agent.node(), hook)?;
        wait_mode(agent, mode, Some(name))?;
        let findings = agent.cli_json(&["check", "-o", "json"])?["findings"].clone();
        let is_named = |finding: &serde_json::Value| {
            finding["text"]
                .as_str()
                .is_some_and(|text| name.starts_with(text))
        };
        ensure!(
            findings
                .as_array()
                .context("findings")?
                .iter()
                .any(is_named),
            "{findings}"
        );
        let replayed = || agent.counted("from_pod", "replayed");
        let before = replayed()?;
        talk.exchange(500)?;
        ensure!(
            replayed()? == before,
            "{hook:?}: packets passed by the program"
        );
        drop(program);
        wait_mode(agent, "fast", None)?;
        pair.talk_until_replayed(&mut talk, 100)?;
    }
    Ok(())
}
