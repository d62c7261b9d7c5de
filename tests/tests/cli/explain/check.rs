//! `check`: before anything is installed, and next to a running agent.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, Node, TwoNodes, cluster::VXLAN};
use serde_json::Value;

/// The report, and the exit status.
fn report(node: &Node, binary: &str) -> Result<(Value, i32)> {
    let output = node
        .command([binary, "check", "-o", "json"])
        .any_code()
        .limit(Duration::from_mins(1))
        .run()?;
    Ok((
        serde_json::from_str(&output.stdout).with_context(|| format!("{output:?}"))?,
        output.code,
    ))
}

/// Requires a finding of this topic and level that says this.
fn says(report: &Value, topic: &str, level: &str, text: &str) -> Result<()> {
    let findings = report["findings"].as_array().context("no findings")?;
    let found = findings.iter().any(|finding| {
        let said = finding["text"]
            .as_str()
            .is_some_and(|said| said.contains(text));
        finding["topic"] == topic && finding["level"] == level && said
    });
    ensure!(found, "{topic} {level} {text:?}: {report:#}");
    Ok(())
}

#[test]
fn a_host_is_judged_before_and_after_the_agent_is_there() -> Result<()> {
    let pair = TwoNodes::new("check", VXLAN)?;
    let (node, binary) = (&pair.a, pair.options()?.binary.display().to_string());
    judge_the_bare_host(node, &binary)?;
    judge_a_host_that_refuses(node, &binary)?;

    let agent = node.ready_agent(pair.options()?)?;
    stand_in_its_way(node)?;
    judge_with_the_agent(&agent, node, &binary)?;

    // A running agent would set it.
    agent.sigterm_and_wait()?;
    node.sh("sysctl -qw net.ipv4.conf.flannel/1.rp_filter=1 net.ipv4.conf.all.rp_filter=0")?;
    says(
        &report(node, &binary)?.0,
        "rp_filter",
        "warn",
        "rp_filter is strict on flannel.1",
    )?;
    Ok(())
}

/// Before anything of flannel is there.
fn judge_the_bare_host(node: &Node, binary: &str) -> Result<()> {
    let (bare, code) = report(node, binary)?;
    ensure!(code == 0, "{bare:#}");
    says(&bare, "programs", "ok", "the kernel takes the programs")?;
    says(&bare, "forwarding", "ok", "net.ipv4.ip_forward is 1")?;
    says(&bare, "rules", "ok", "no rule outside NAT chains judges")?;
    let pins = node.command(["ls", "/sys/fs/bpf"]).any_code().run()?;
    ensure!(
        !pins.stdout.contains("flannel"),
        "a check leaves nothing: {pins:?}"
    );

    says(
        &bare,
        "pins",
        "ok",
        "programs can be pinned below /sys/fs/bpf/flannel",
    )?;
    says(
        &bare,
        "tools",
        "ok",
        "can keep masquerade and forward rules",
    )
}

/// A BPF file system that is read-only, then no forwarding; both are put back.
fn judge_a_host_that_refuses(node: &Node, binary: &str) -> Result<()> {
    node.sh("mount -o remount,bind,ro /sys/fs/bpf")?;
    let (read_only, code) = report(node, binary)?;
    ensure!(
        code == 0 && read_only["best"]["mode"] == "kernel",
        "{read_only:#}"
    );
    says(
        &read_only,
        "pins",
        "warn",
        "cannot write to /sys/fs/bpf: Read-only file system",
    )?;
    node.sh("mount -o remount,bind,rw /sys/fs/bpf")?;

    node.sh("sysctl -qw net.ipv4.ip_forward=0")?;
    let (broken, code) = report(node, binary)?;
    ensure!(code == 1, "{broken:#}");
    says(
        &broken,
        "forwarding",
        "fail",
        "net.ipv4.ip_forward is not 1",
    )?;
    node.sh("sysctl -qw net.ipv4.ip_forward=1")?;
    Ok(())
}

/// Rules and devices next to which the agent runs.
fn stand_in_its_way(node: &Node) -> Result<()> {
    node.sh("iptables -I INPUT -p udp --dport 8472 -j DROP")?;
    node.sh("iptables -I FORWARD -m limit --limit 5/s -j ACCEPT")?;
    node.sh(
        "iptables -t nat -A PREROUTING -m statistic --mode random --probability 0.5 -j RETURN",
    )?;
    node.sh("iptables -A INPUT -p tcp -m limit --limit 1/s -j LOG")?;
    node.sh("ip link set eth0 mtu 1400")?;
    for line in [
        "ip link add docker0 type bridge",
        "ip address add 172.17.0.1/16 dev docker0",
        "ip netns add container",
        "ip link add vethc type veth peer name eth0 netns container",
        "ip link set vethc master docker0 up",
    ] {
        node.sh(line)?;
    }
    Ok(())
}

fn judge_with_the_agent(agent: &Agent, node: &Node, binary: &str) -> Result<()> {
    let (report, code) = report(node, binary)?;
    ensure!(code == 0, "warnings are no failure: {report:#}");
    says(&report, "interface", "ok", "eth0")?;
    says(
        &report,
        "firewall",
        "warn",
        "drops packets of UDP port 8472 in ip filter INPUT",
    )?;
    says(
        &report,
        "rp_filter",
        "ok",
        "no tunnel device refuses senders",
    )?;
    says(
        &report,
        "mtu",
        "ok",
        "no pod's packets are larger than the tunnel takes",
    )?;
    let rules = if report["best"]["mode"] == "fast" {
        "warn"
    } else {
        "ok"
    };
    says(&report, "rules", rules, "ip filter FORWARD (limit)")?;
    ensure!(
        !report.to_string().contains("statistic"),
        "chains of NAT are asked once for each connection: {report:#}"
    );
    let text = agent.cli_any(&["check"])?.stdout;
    ensure!(text.contains("\nthis node can do mode "), "{text}");
    Ok(())
}

/// Without `CAP_PERFMON` the verifier compares no pointers, which stands in for a kernel whose
/// verifier knows less.
#[test]
fn a_refused_program_gives_one_line_and_bugtool_all_that_the_verifier_said() -> Result<()> {
    let pair = TwoNodes::new("refused", VXLAN)?;
    let (node, binary) = (&pair.a, pair.options()?.binary.display().to_string());
    let without = [
        "setpriv",
        "--bounding-set=-perfmon,-sys_admin",
        "--",
        &binary,
    ];
    let run = |args: &[&str]| {
        node.command(without.iter().chain(args).copied())
            .limit(Duration::from_mins(1))
            .run()
    };
    let report: Value = serde_json::from_str(&run(&["check", "-o", "json"])?.stdout)?;
    says(
        &report,
        "programs",
        "warn",
        "the kernel refused the BPF program from_pod: ",
    )?;
    says(
        &report,
        "guard",
        "warn",
        "outer off (enforce is the default: no eBPF)",
    )?;
    let reason = report["best"]["reason"].as_str().context("no reason")?;
    ensure!(
        reason.lines().count() == 1 && reason.len() < 200,
        "{reason}"
    );

    let archive = "/run/refused.tar.gz";
    run(&["bugtool", "-o", archive])?;
    let said = node
        .run(["tar", "-xzOf", archive, "--wildcards", "*/verifier.txt"])?
        .stdout;
    ensure!(
        said.starts_with(reason) && said.lines().count() > 20,
        "{said}"
    );
    Ok(())
}
