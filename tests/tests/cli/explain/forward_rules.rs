//! Rules for forwarded packets, with the agent stopped. Faults of each backend are in
//! `cli::matrix`.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Pair, cluster::topology::Stack, eventually};
use nix::sys::signal::Signal;
use serde_json::Value;

fn explain(pair: &Pair) -> Result<(i32, Value)> {
    let (source, destination) = (pair.near.ip().to_string(), pair.far.ip().to_string());
    let output = pair.sender.cli_any(&[
        "explain",
        "-o",
        "json",
        "--proto=icmp",
        &source,
        &destination,
    ])?;
    let story = serde_json::from_str(&output.stdout).with_context(|| format!("{output:?}"))?;
    Ok((output.code, story))
}

#[test]
fn a_closed_policy_without_the_agents_rules_leaves_the_verdict_open() -> Result<()> {
    let pair = Pair::of_backend("broken-rules", Stack::V4, r#"{"Type":"vxlan"}"#, &[])?;
    let Pair {
        sender, near, far, ..
    } = &pair;
    sender.node().sh("iptables -P FORWARD DROP")?;
    let (code, story) = explain(&pair)?;
    ensure!(
        code == 0,
        "the agent's rules accept pods' packets: {story:#}"
    );
    near.ping(far.ip())?;
    sender.child().signal(Signal::SIGSTOP)?;
    sender.node().sh("iptables -F FORWARD")?;
    ensure!(near.pings(1, "", far.ip()).is_err(), "the policy is DROP");
    let (code, story) = explain(&pair)?;
    ensure!(
        code == 2 && story["verdict"]["reaches"].is_null(),
        "{story:#}"
    );
    sender.child().signal(Signal::SIGCONT)?;
    eventually("the agent's rules", Duration::from_mins(1), || {
        near.ping(far.ip())
    })?;
    ensure!(explain(&pair)?.0 == 0, "{:#}", explain(&pair)?.1);
    Ok(())
}
