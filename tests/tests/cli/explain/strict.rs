//! `--strict-rules`: rules that would see few of a flow's packets lower the mode, which comes back
//! without them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, TwoNodes, cluster::VXLAN};

const LIMIT: &str = "FORWARD -m limit --limit 5000/s -j ACCEPT";
/// A rule for tunnel packets that leave, which only mode `kernel` shows all of them.
const LENGTH: &str = "OUTPUT -p udp --dport 8472 -m length --length 0:65535 -j ACCEPT";

/// Waits for a mode, and for a reason that has this in it.
fn wait_mode(agent: &Agent, mode: &str, reason: &str) -> Result<()> {
    flannel_tests::eventually(
        &format!("mode {mode}, {reason:?}"),
        Duration::from_secs(40),
        || {
            let now = agent.status()?["mode"].clone();
            let said = now["reason"].as_str().unwrap_or_default();
            ensure!(now["effective"] == mode && said.contains(reason), "{now}");
            Ok(())
        },
    )
}

#[test]
fn rules_for_single_packets_are_named_and_strictly_kept() -> Result<()> {
    let pair = TwoNodes::new("strict", VXLAN)?;
    pair.a.sh(&format!("iptables -A {LIMIT}"))?;
    let strict = pair.a.ready_agent(
        pair.options()?
            .flag("--datapath=fast")
            .flag("--strict-rules=true"),
    )?;
    wait_mode(
        &strict,
        "encap",
        "rules judge packets one by one in ip filter FORWARD (limit)",
    )?;
    pair.a.sh(&format!("iptables -D {LIMIT}"))?;
    wait_mode(&strict, "fast", "")?;
    ensure!(
        strict.status()?["fast"]["rules"]
            .as_array()
            .context("rules")?
            .is_empty()
    );
    pair.a.sh(&format!("iptables -A {LENGTH}"))?;
    wait_mode(
        &strict,
        "kernel",
        "rules judge tunnel packets one by one in ip filter OUTPUT (length)",
    )?;
    pair.a.sh(&format!("iptables -D {LENGTH}"))?;
    wait_mode(&strict, "fast", "")?;

    pair.b.sh(&format!("iptables -A {LIMIT}"))?;
    let lenient = pair
        .b
        .ready_agent(pair.options()?.flag("--datapath=fast"))?;
    wait_mode(&lenient, "fast", "")?;
    lenient.wait_status("the rules by name", |status| {
        ensure!(
            status["fast"]["rules"][0] == "ip filter FORWARD (limit)",
            "{}",
            status["fast"]["rules"]
        );
        Ok(())
    })?;
    let text = lenient.cli_any(&["status"])?.stdout;
    ensure!(
        text.contains("rules that see few packets in mode fast: ip filter FORWARD (limit)\n"),
        "{text}"
    );
    Ok(())
}
