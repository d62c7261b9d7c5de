//! A tunnel that commands make.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent,
    cluster::{Cluster, LEASES, topology::Stack},
    eventually,
    load::{UdpLoad, UdpRun},
};
use serde_json::json;

use super::{DEVICE, added, routes, runs, subnet, vxlan};

fn cluster(name: &str) -> Result<Cluster> {
    let cluster = Cluster::new(name, Stack::V4, &vxlan().to_string())?;
    cluster
        .agents
        .iter()
        .try_for_each(|agent| added(agent, 2).map(drop))?;
    cluster.wait_connected()?;
    cluster.lab.record_strays()?;
    Ok(cluster)
}

#[test]
fn commands_carry_the_packets_and_a_restarted_agent_runs_none_again() -> Result<()> {
    let cluster = cluster("ext-carry")?;
    let [agent, other, _] = &cluster.agents;
    let status = agent.status()?;
    for peer in status["peers"].as_array().context("peers")? {
        ensure!(
            peer["way"] == "extension" && peer["reason"].is_null(),
            "{peer}"
        );
    }
    assert_eq!(
        (&status["mode"]["effective"], &status["devices"]),
        (&json!("fast"), &json!([])),
        "{status}"
    );
    assert_eq!(cluster.a.subnet_env()?.mtu, 1500, "as stock flannel's");

    expect_published_output(&cluster, agent)?;

    let before = runs(&cluster.a)?;
    ensure!(
        before.len() == 2 && before.iter().all(|line| line.starts_with("add ")),
        "{before:?}"
    );
    restart_under_load(&cluster)?;
    assert_eq!(
        runs(&cluster.a)?,
        before,
        "what was done for peers is on record"
    );

    // A node that leaves: its lease goes, and with it what a command made.
    let gone = subnet(other)?;
    other.sigterm_and_wait()?;
    cluster
        .etcd
        .delete(&format!("{LEASES}{}", gone.replace('/', "-")))?;
    added(agent, 1)?;
    ensure!(
        !routes(&cluster.a)?.contains(&gone),
        "{}",
        routes(&cluster.a)?
    );
    let last = runs(&cluster.a)?.pop().context("a run")?;
    ensure!(
        last.starts_with(&format!("remove {gone} 192.168.1.12 ")),
        "{last}"
    );
    Ok(())
}

/// As stock flannel publishes it: the output as a text, under the backend's name.
fn expect_published_output(cluster: &Cluster, agent: &Agent) -> Result<()> {
    let mac = cluster
        .a
        .sh(&format!("cat /sys/class/net/{DEVICE}/address"))?
        .stdout;
    let key = format!("{LEASES}{}", subnet(agent)?.replace('/', "-"));
    let lease = cluster.etcd.get(&key)?.context("a lease")?;
    let lease: serde_json::Value = serde_json::from_str(&lease)?;
    assert_eq!(
        (&lease["BackendType"], &lease["BackendData"]),
        (&json!("extension"), &json!(mac.trim())),
        "{lease}"
    );
    Ok(())
}

/// No packet is lost while the first agent is killed and restarted.
fn restart_under_load(cluster: &Cluster) -> Result<()> {
    let [agent, ..] = &cluster.agents;
    let [near, far, _] = &cluster.pods;
    let load = UdpLoad {
        pps: 500,
        duration: Duration::from_mins(2),
        payload: 64,
    };
    let run = UdpRun::start(near, far, far.ip(), load)?;
    agent.kill9()?;
    near.ping(far.ip())?;
    agent.restart()?;
    agent.wait_ready()?;
    added(agent, 2)?;
    run.stop()?.expect_complete()
}

#[test]
fn cleanup_undoes_what_commands_did_for_peers() -> Result<()> {
    let cluster = cluster("ext-clean")?;
    let [agent, other, _] = &cluster.agents;
    agent.sigterm_and_wait()?;
    let plan = agent.cli(&["cleanup"])?.stdout;
    let line = format!("run SubnetRemoveCommand for {} and remove ", subnet(other)?);
    ensure!(plan.contains(&line), "{line} in:\n{plan}");
    eventually(
        "a node without routes of commands",
        Duration::from_secs(10),
        || {
            let left = routes(&cluster.a)?;
            ensure!(left.is_empty(), "{left}");
            ensure!(
                !cluster.a.outside_path("/run/flannel/extension").exists(),
                "the record is left"
            );
            Ok(())
        },
    )
}
