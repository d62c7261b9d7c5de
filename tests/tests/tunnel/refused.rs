//! A kernel that refuses the programs, such as Linux 5.10: the node is served by the kernel's path,
//! says why wherever it is asked, and is clean after `cleanup`. These tests run on kernels of
//! Debian, by `cargo xtask test --kernel`.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_datapath::load::probe;
use flannel_tests::{
    Agent, TwoNodes, agent::snapshot::Snapshot, cluster::VXLAN, eventually, not_run,
};

/// The reason why this kernel refuses the programs; where it takes them the test has no subject.
fn reason(what: &str) -> Option<String> {
    let reason = probe::helpers().err().map(|error| error.to_string());
    if reason.is_none() {
        not_run(what, "this kernel takes the programs");
    }
    reason
}

#[test]
fn a_kernel_without_the_helpers_carries_all_packets_and_the_node_says_why() -> Result<()> {
    let Some(reason) = reason("the reasons of a kernel without BPF helpers") else {
        return Ok(());
    };
    ensure!(
        reason.contains("lacks the BPF helper") && reason.contains("needs Linux 5.13"),
        "{reason}"
    );
    let nodes = TwoNodes::new("nohelpers", VXLAN)?;
    let agents = nodes.agents()?;
    let (near, far) = (nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?);
    near.ping(far.ip())?;
    far.ping(near.ip())?;
    let [agent, _] = &agents;
    of_check(agent, &reason).context("check")?;
    of_status(agent, &reason).context("status")?;
    let says = format!("the agent on this node runs without eBPF, so nothing is pinned: {reason}");
    for command in [
        &["maps", "dump", "all"][..],
        &["datapath", "set", "fast"],
        &["guard", "set", "off"],
    ] {
        let output = agent.cli_any(command)?;
        ensure!(
            output.code != 0 && output.stderr.contains(&says),
            "{command:?}: {output:?}"
        );
    }
    Ok(())
}

/// The reason is a line, not the verifier's log.
fn of_check(agent: &Agent, reason: &str) -> Result<()> {
    let text = agent.cli_any(&["check"])?.stdout;
    ensure!(
        text.contains(reason) && text.contains("this node can do mode kernel"),
        "{text}"
    );
    ensure!(
        !text.contains("invalid func") && !text.contains("processed "),
        "{text}"
    );
    ensure!(
        text.contains("outer off (enforce is the default: no eBPF)"),
        "{text}"
    );
    let output = agent.cli_any(&["check", "-o", "json"])?.stdout;
    let document: serde_json::Value = serde_json::from_str(&output).context("JSON")?;
    ensure!(
        document["best"]["mode"] == "kernel" && document["best"]["reason"] == reason,
        "{document}"
    );
    Ok(())
}

fn of_status(agent: &Agent, reason: &str) -> Result<()> {
    let mode = agent.status()?["mode"].clone();
    ensure!(
        mode["effective"] == "kernel" && mode["wanted"] == "fast" && mode["reason"] == reason,
        "{mode}"
    );
    let status = agent.cli_any(&["status"])?.stdout;
    let line = "guard      outer off (enforce was asked for: no eBPF); inner off (audit was asked \
        for: no eBPF)";
    ensure!(status.lines().any(|found| found == line), "{status}");
    let shown = agent.cli(&["datapath", "show"])?.stdout;
    ensure!(
        shown.starts_with(&format!("kernel (no eBPF: {reason}")),
        "{shown}"
    );
    Ok(())
}

#[test]
fn cleanup_on_a_kernel_without_the_helpers_leaves_nothing() -> Result<()> {
    if reason("cleanup on a kernel without BPF helpers").is_none() {
        return Ok(());
    }
    let nodes = TwoNodes::new("nohelpersclean", VXLAN)?;
    let before = Snapshot::of(&nodes.a)?;
    let [agent, _] = nodes.agents()?;
    ensure!(
        !before.changes(&Snapshot::of(&nodes.a)?).is_empty(),
        "the agent left no trace"
    );
    agent.sigterm_and_wait()?;
    agent.cli(&["cleanup"])?;
    eventually("a clean node", Duration::from_secs(3), || {
        let changes = before.changes(&Snapshot::of(&nodes.a)?);
        ensure!(changes.is_empty(), "{changes}");
        Ok(())
    })
}
