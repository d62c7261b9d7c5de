//! The sysctls the agent changed: their record, and how `cleanup` sets them back.

use std::{
    collections::BTreeSet, fmt::Write as _, fs, os::unix::fs::PermissionsExt as _, time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_cleanup::connections::{alive_by_netlink, alive_in_proc};
use flannel_tests::{
    Agent, Pair, eventually,
    fast::{Family, fast_pair},
};
use ipnet::IpNet;
use serde_json::{Value, json};

use super::conntrack::{FRESH, SET, set, set_fresh, sysctls};

const UNACKNOWLEDGED: &str = "nf_conntrack_tcp_timeout_unacknowledged";
const MAX_RETRANS: &str = "nf_conntrack_tcp_timeout_max_retrans";

/// The rows of `status` in a fresh namespace, with this value before of one.
fn listed(unacknowledged: u32) -> Value {
    let row = |name: &str, before: u32, set: u32| {
        let name = format!("net.netfilter.{name}");
        json!({"name": name, "before": before, "set": set})
    };
    json!([
        row(UNACKNOWLEDGED, unacknowledged, 432_000),
        row(MAX_RETRANS, 300, 432_000),
        row("nf_conntrack_udp_timeout", 30, 33),
        row("nf_conntrack_udp_timeout_stream", 120, 123),
    ])
}

fn expect_listed(agent: &Agent, expected: &Value) -> Result<()> {
    eventually("the sysctls in status", Duration::from_secs(10), || {
        let status = agent.status()?["sysctls"].clone();
        ensure!(status == *expected, "{status}");
        Ok(())
    })
}

/// Living TCP connections of pods on the sender's node, counted in both ways.
fn alive(pair: &Pair) -> Result<usize> {
    let networks = BTreeSet::from([Family::V4.pods()]);
    let count = |by: fn(&BTreeSet<IpNet>) -> std::io::Result<usize>| {
        pair.sender.node().enter(|| by(&networks))
    };
    let [proc, netlink] = [count(alive_in_proc)??, count(alive_by_netlink)??];
    ensure!(proc == netlink, "{proc} in /proc, {netlink} by netlink");
    Ok(proc)
}

fn wait_none_alive(pair: &Pair) -> Result<()> {
    eventually("no living connection", Duration::from_secs(15), || {
        let alive = alive(pair)?;
        ensure!(alive == 0, "{alive}");
        Ok(())
    })
}

#[test]
fn the_record_of_values_before_survives_the_agent() -> Result<()> {
    let pair = fast_pair("fa-record", &[])?;
    let agent = &pair.sender;
    let file = agent.node().outside_path("/run/flannel/sysctls");
    expect_listed(agent, &listed(300))?;
    ensure!(fs::metadata(&file)?.permissions().mode() & 0o7777 == 0o600);
    agent.kill9()?;
    expect_listed(agent, &listed(300))?;
    agent.restart()?;
    agent.wait_ready()?;
    assert_eq!(sysctls(agent.node())?, SET);
    expect_listed(agent, &listed(300))?;
    // A value the operator sets while the agent lives is the one to set back, and does not stay.
    set(agent.node(), UNACKNOWLEDGED, 600)?;
    expect_listed(agent, &listed(600))?;
    assert_eq!(sysctls(agent.node())?, SET);
    let check = agent.cli_any(&["check", "-o", "json"])?.stdout;
    let check: Value = serde_json::from_str(&check).context(check)?;
    let finding = check["findings"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|finding| finding["topic"] == "sysctls");
    let text = finding
        .and_then(|finding| finding["text"].as_str())
        .context("a finding")?;
    ensure!(
        text.contains("300 -> 432000") && text.contains("600 -> 432000"),
        "{text}"
    );
    let status = agent.cli_any(&["status"])?.stdout;
    let line =
        format!("sysctl set for mode fast: net.netfilter.{UNACKNOWLEDGED} to 432000, 600 before");
    ensure!(status.contains(&line), "{status}");
    Ok(())
}

/// Sysctls that an agent of an earlier version had set for all connections go, and the connections
/// that were replayed with them go on.
#[test]
fn sysctls_of_an_earlier_version_are_set_back() -> Result<()> {
    const FORMER: [&str; 2] = [
        "nf_conntrack_tcp_be_liberal",
        "nf_conntrack_tcp_ignore_invalid_rst",
    ];
    let pair = fast_pair("fa-former", &[])?;
    let (agent, node) = (&pair.sender, pair.sender.node());
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 500)?;
    agent.sigterm_and_wait()?;
    let file = node.outside_path("/run/flannel/sysctls");
    let mut record = fs::read_to_string(&file)?;
    for (name, before) in FORMER.iter().zip([0, 0]) {
        set(node, name, 1)?;
        writeln!(record, "sysctl net.netfilter.{name} {before} 1")?;
    }
    fs::write(&file, record)?;
    agent.restart()?;
    agent.wait_ready()?;
    eventually("the values before", Duration::from_secs(15), || {
        for name in FORMER {
            let now = node.sh(&format!("sysctl -n net.netfilter.{name}"))?.stdout;
            ensure!(now == "0\n", "{name} is {now}");
        }
        Ok(())
    })?;
    expect_listed(agent, &listed(300))?;
    talk.exchange(500)?;
    pair.talk_until_replayed(&mut talk, 500)
}

/// A disk that was full, or an editor: what can be read stays, and mode `fast` has TCP.
#[test]
fn a_damaged_record_is_repaired_and_kept_beside() -> Result<()> {
    let pair = fast_pair("fa-badrec", &[])?;
    let agent = &pair.sender;
    for damage in ["a later format\n", "\0\0\0\0"] {
        agent.sigterm_and_wait()?;
        let file = |name: &str| agent.node().outside_path(format!("/run/flannel/{name}"));
        let whole = fs::read_to_string(file("sysctls"))?;
        let damaged = format!("{whole}{damage}");
        fs::write(file("sysctls"), &damaged)?;
        set(agent.node(), UNACKNOWLEDGED, 60)?;
        let refusal = agent
            .cli(&["cleanup", "--dry-run"])
            .expect_err("damaged")
            .to_string();
        ensure!(refusal.contains("line of another format"), "{refusal}");
        agent.restart()?;
        agent.wait_ready()?;
        expect_listed(agent, &listed(60))?;
        ensure!(
            agent.status()?["fast"]["tcp_reason"].is_null(),
            "{}",
            agent.status()?["fast"]
        );
        ensure!(fs::read_to_string(file("sysctls.damaged"))? == damaged);
        agent.wait_log(&[
            "the record of changed sysctls was damaged: 1 lines",
            "4 sysctls are kept",
        ])?;
        agent.cli(&["cleanup", "--dry-run"])?;
    }
    Ok(())
}

/// As in a container without privileges.
#[test]
fn where_sysctls_cannot_be_set_none_is_recorded() -> Result<()> {
    let pair = fast_pair("fa-rosys", &[])?;
    let (agent, node) = (&pair.sender, pair.sender.node());
    agent.sigterm_and_wait()?;
    fs::remove_file(node.outside_path("/run/flannel/sysctls"))?;
    set_fresh(node)?;
    node.sh("mount --bind /proc/sys /proc/sys")?;
    node.sh("mount -o remount,ro,bind /proc/sys")?;
    agent.restart()?;
    agent.wait_ready()?;
    let status = agent.status()?;
    let reason = status["fast"]["tcp_reason"].as_str().unwrap_or_default();
    ensure!(
        reason.starts_with("net.netfilter.nf_conntrack_tcp_timeout_unacknowledged is 300"),
        "{status}"
    );
    ensure!(status["sysctls"] == json!([]), "{status}");
    ensure!(!node.outside_path("/run/flannel/sysctls").exists());
    agent.sigterm_and_wait()?;
    node.sh("umount /proc/sys")?;
    agent.restart()?;
    agent.wait_ready()?;
    expect_listed(agent, &listed(300))
}

#[test]
fn cleanup_waits_for_living_connections_of_pods() -> Result<()> {
    let pair = fast_pair("fa-restore", &[])?;
    let agent = &pair.sender;
    wait_none_alive(&pair)?;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 100)?;
    ensure!(alive(&pair)? == 1);
    agent.sigterm_and_wait()?;
    let why = "because a TCP connection of a pod is alive";
    let would = agent
        .cli(&["cleanup", "--keep-network", "--dry-run"])?
        .stdout;
    let did = agent.cli(&["cleanup", "--keep-network"])?.stdout;
    for text in [&would, &did] {
        ensure!(text.matches(why).count() == 4, "{text}");
        ensure!(
            text.contains(&format!(
                "leave net.netfilter.{MAX_RETRANS} at 432000 (300 before)"
            )),
            "{text}"
        );
    }
    assert_eq!(sysctls(agent.node())?, SET);
    talk.exchange(100)?;
    drop(talk);
    wait_none_alive(&pair)?;
    set(agent.node(), MAX_RETRANS, 77)?;
    let did = agent.cli(&["cleanup", "--keep-network"])?.stdout;
    ensure!(
        did.contains(&format!(
            "set net.netfilter.{UNACKNOWLEDGED} back to 300: done"
        )),
        "{did}"
    );
    ensure!(
        did.contains(&format!(
            "leave net.netfilter.{MAX_RETRANS} at 77: the agent set 432000"
        )),
        "{did}"
    );
    assert_eq!(sysctls(agent.node())?, [300, 77]);
    let again = agent.cli(&["cleanup", "--keep-network"])?.stdout;
    ensure!(!again.contains("net.netfilter"), "{again}");
    ensure!(!agent.node().outside_path("/run/flannel/sysctls").exists());
    Ok(())
}

#[test]
fn sysctls_are_set_back_at_once_when_asked_for() -> Result<()> {
    let pair = fast_pair("fa-now", &[])?;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 100)?;
    pair.sender.sigterm_and_wait()?;
    pair.sender.cli(&["cleanup", "--restore-sysctls=now"])?;
    assert_eq!(sysctls(pair.sender.node())?, FRESH);
    Ok(())
}
