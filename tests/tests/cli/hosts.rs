//! `connectivity hosts` on three nodes: all well, a broken pair, killed, interrupted, alone.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_connectivity::hosts::inside::Ask;
use flannel_tests::{
    Agent, ChildGuard, Lab, agent_binary,
    cluster::{Cluster, topology::Stack},
    eventually,
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::schemas::validate;

/// A run in two modes, on a machine under load.
const RUN: Duration = Duration::from_mins(4);
const LIMIT: Duration = Duration::from_mins(1);
/// The keys of the test.
const KEYS: &str = "/coreos.com/network/connectivity-test/";
/// The report of the last run on a node.
const REPORT: &str = "/run/report.json";

fn cluster(name: &str, stack: Stack) -> Result<Cluster> {
    let cluster = Cluster::new(name, stack, r#"{"Type":"vxlan"}"#)?;
    cluster.wait_connected()?;
    Ok(cluster)
}

/// Starts the command on a node. The lab's nodes share one host name.
fn start(agent: &Agent, flags: &[&str]) -> Result<ChildGuard> {
    let name = format!("--name={}", agent.node().name());
    let words = [&["connectivity", "hosts", "--output=json", &name], flags].concat();
    let line = format!(
        "exec {} > {REPORT}",
        agent.argv_on_the_host(&words).join(" ")
    );
    agent
        .node()
        .spawn("connectivity hosts", ["sh", "-c", &line])
}

/// Runs the command on every node; the reports, and the code of all.
fn run(cluster: &Cluster, flags: &[&str], code: i32) -> Result<Vec<Value>> {
    let runs = cluster
        .agents
        .iter()
        .map(|agent| start(agent, flags))
        .collect::<Result<Vec<_>>>()?;
    for run in &runs {
        let end = run.wait(RUN)?;
        ensure!(end.code() == Some(code), "{end:?}: {}", run.log());
    }
    let report = |agent: &Agent| -> Result<Value> {
        let report = serde_json::from_str(&fs::read_to_string(agent.node().outside_path(REPORT))?)?;
        validate("connectivity", &report)?;
        Ok(report)
    };
    cluster.agents.iter().map(report).collect()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Waits until devices and members are gone, and the mode is what it was.
fn leaves_nothing(cluster: &Cluster) -> Result<()> {
    eventually("no device of a test", LIMIT, || {
        for agent in &cluster.agents {
            let links = agent.node().sh("ip -o link")?.stdout;
            ensure!(!links.contains("flct"), "{links}");
        }
        Ok(())
    })?;
    for key in ["member/", "start"] {
        let left = cluster.etcd.list(&format!("{KEYS}{key}"))?;
        ensure!(left.is_empty(), "{left:?}");
    }
    cluster.agents.iter().try_for_each(|agent| {
        let mode = agent.cli(&["datapath", "show"])?.stdout;
        ensure!(
            mode == "fast (not chosen at run time)\n",
            "{}: {mode}",
            agent.node().name()
        );
        Ok(())
    })
}

#[test]
fn three_hosts_pass_in_every_mode_and_leave_nothing() -> Result<()> {
    let cluster = cluster("hosts", Stack::Dual)?;
    let reports = run(&cluster, &["--modes=kernel,fast"], 0)?;
    let report = &reports[0];
    ensure!(
        reports.iter().all(|other| other == report),
        "hosts disagree: {reports:#?}"
    );
    ensure!(
        report["ok"] == true && array(&report["nodes"]).len() == 3,
        "{report}"
    );
    let expected = [
        "pod to outside: no address is given",
        "pod to Service: there are none",
    ];
    let left_out = array(&report["left_out"]);
    let is_expected =
        |(line, start): (&Value, &&str)| line.as_str().is_some_and(|line| line.starts_with(*start));
    ensure!(
        left_out.len() == 2 && left_out.iter().zip(&expected).all(is_expected),
        "{left_out:?}"
    );
    let modes: Vec<_> = array(&report["runs"])
        .iter()
        .map(|run| run["mode"].clone())
        .collect();
    ensure!(modes == ["kernel", "fast"], "{modes:?}");
    for run in array(&report["runs"]) {
        // Four checks of nine pairs in two families.
        ensure!(
            array(&run["checks"]).len() == 72 && array(&run["notes"]).is_empty(),
            "{run}"
        );
        for check in array(&run["checks"]) {
            ensure!(check["ok"] == true, "{check}");
            if check["check"] == "mtu" {
                ensure!(
                    check["size"] == check["device_mtu"] && check["size"].as_u64() > Some(1400),
                    "{check}"
                );
            }
        }
    }
    leaves_nothing(&cluster)
}

#[test]
fn a_broken_pair_is_found_by_all_and_explained() -> Result<()> {
    let cluster = cluster("brokenpair", Stack::V4)?;
    let [a, b, _] = &cluster.agents;
    let subnet = a.status()?["lease"]["subnet"]
        .as_str()
        .context("a subnet")?
        .to_owned();
    b.node().sh(&format!(
        "iptables -I FORWARD -s {subnet} -p udp --dport 9473 -j DROP"
    ))?;
    // Mode fast does not ask the rules about every packet.
    let reports = run(&cluster, &["--modes=kernel"], 1)?;
    for report in &reports {
        let checks = array(&report["runs"][0]["checks"]);
        let failed: Vec<_> = checks.iter().filter(|check| check["ok"] == false).collect();
        let pair = |check: &&Value| {
            format!("{} {} {}", check["check"], check["from"], check["to"]).replace('"', "")
        };
        let pairs: Vec<_> = failed.iter().map(pair).collect();
        let (from, to) = (a.node().name(), b.node().name());
        // The node sends from the tunnel device's address, which is one of the subnet.
        let expected =
            ["pod-to-pod", "mtu", "node-to-pod"].map(|check| format!("{check} {from} {to}"));
        ensure!(pairs == expected, "{pairs:?}");
        ensure!(
            failed.iter().all(|check| check["protocol"] == "udp"),
            "{failed:?}"
        );
        let explanations = array(&report["explanations"]);
        let nodes: Vec<_> = explanations
            .iter()
            .map(|explanation| &explanation["node"])
            .collect();
        ensure!(
            nodes == [from, to],
            "one for each end of the pair: {report}"
        );
        for explanation in explanations {
            let text = explanation["text"].as_str().unwrap_or_default();
            ensure!(
                text.contains("\nreaches: ") && explanation["found"] == false,
                "{report}"
            );
        }
    }
    leaves_nothing(&cluster)
}

/// The rule is on one host; all name it and the pairs that it concerns.
#[test]
fn a_rule_that_drops_the_tunnels_packets_is_named_as_the_cause() -> Result<()> {
    let cluster = cluster("cause", Stack::V4)?;
    let [_, b, _] = &cluster.agents;
    let name = b.node().name();
    b.node().nft(
        "table ip t { chain i { type filter hook input priority 0; udp dport 8472 drop; }; }",
    )?;
    for report in &run(&cluster, &["--modes=kernel"], 1)? {
        let causes = array(&report["causes"]);
        let cause = causes.iter().find(|cause| {
            cause["text"]
                .as_str()
                .is_some_and(|text| text.contains("UDP port 8472"))
        });
        let cause = cause.with_context(|| format!("{causes:#?}"))?;
        ensure!(
            cause["nodes"] == json!([name])
                && cause["text"]
                    .as_str()
                    .is_some_and(|text| text.contains("ip t i"))
        );
        let pairs: Vec<_> = array(&cause["pairs"])
            .iter()
            .filter_map(Value::as_str)
            .collect();
        ensure!(
            pairs.len() == 4 && pairs.iter().all(|pair| pair.contains(name)),
            "{pairs:?}"
        );
        let failed = array(&report["runs"][0]["checks"])
            .iter()
            .filter(|check| check["ok"] == false)
            .count();
        ensure!(cause["checks"] == failed, "{cause} of {failed}");
    }
    leaves_nothing(&cluster)
}

/// The others finish without it.
#[test]
fn a_host_that_is_killed_leaves_no_device_and_holds_nobody_up() -> Result<()> {
    let cluster = cluster("killed", Stack::V4)?;
    let [a, b, c] = &cluster.agents;
    // It waits for an address that does not answer, long enough to be killed in a check.
    let flags = ["--modes=kernel", "--outside=192.0.2.1:9"];
    let runs = [start(a, &flags)?, start(b, &flags)?, start(c, &flags)?];
    eventually("mode kernel on every node", LIMIT, || {
        cluster.agents.iter().try_for_each(|agent| {
            let mode = agent.cli(&["datapath", "show"])?.stdout;
            ensure!(mode == "kernel (chosen at run time)\n", "{mode}");
            Ok(())
        })
    })?;
    runs[0].signal(Signal::SIGKILL)?;
    let end = runs[1]
        .signal(Signal::SIGINT)
        .and_then(|()| runs[1].wait(LIMIT))?;
    ensure!(
        end.code() == Some(2) && runs[1].log().contains("could not run: interrupted"),
        "{}",
        runs[1].log()
    );
    let end = runs[2].wait(RUN)?;
    ensure!(end.code() == Some(1), "{end:?}: {}", runs[2].log());
    let report: Value = serde_json::from_str(&fs::read_to_string(c.node().outside_path(REPORT))?)?;
    ensure!(
        report
            .to_string()
            .contains("the host left the test, or took too long"),
        "{report}"
    );
    // The one that was killed could not set its mode back.
    a.cli(&["datapath", "set", "auto"])?;
    cluster
        .etcd
        .delete(&format!("{KEYS}member/{}", a.node().name()))?;
    eventually("the mode of before", LIMIT, || leaves_nothing(&cluster))
}

/// As behind a command that was killed. Without an answer its probes last as long as they may.
#[test]
fn a_test_namespace_ends_with_its_input_in_the_middle_of_probes() -> Result<()> {
    let lab = Lab::new("namespace")?;
    let probe = Ask::Probe {
        patience: 10 * LIMIT,
        targets: vec!["0=connect:192.0.2.1:9".to_owned()],
    };
    let argv = [
        agent_binary()?.display().to_string(),
        "connectivity".to_owned(),
        "namespace".to_owned(),
    ];
    let input = serde_json::to_string(&probe)? + "\n";
    let output = lab
        .node("n")?
        .command(argv)
        .input(&input)
        .limit(LIMIT)
        .run()?;
    ensure!(
        output.stdout == "\"Done\"\n",
        "its namespace is made, and nothing is answered: {}",
        output.stdout
    );
    Ok(())
}

#[test]
fn a_host_that_cannot_take_part_says_why() -> Result<()> {
    let cluster = cluster("alone", Stack::V4)?;
    let agent = &cluster.agents[0];
    for (flags, why) in [
        (
            &["--start-limit=1s"][..],
            "no other host took part within 1 s: run this command on each host",
        ),
        (
            &["--bridge=docker0"],
            "no bridge docker0 has an address of its subnet, 10.244.",
        ),
        (
            &["--state-dir=/nowhere"],
            "no agent answers on this host (state directory /nowhere)",
        ),
    ] {
        let run = start(agent, flags)?;
        let end = run.wait(LIMIT)?;
        ensure!(
            end.code() == Some(2) && run.log().contains(why),
            "{flags:?}: {end:?}: {}",
            run.log()
        );
    }
    leaves_nothing(&cluster)
}
