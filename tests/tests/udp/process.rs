//! The process is there while the backend is udp, and only then.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    Agent,
    cluster::{self, etcd::CONFIG_KEY, topology::Stack},
    eventually,
};

use super::{DEVICE, cluster as udp_cluster, pid, wait_other};

#[test]
fn a_process_or_device_that_is_gone_comes_back() -> Result<()> {
    let cluster = udp_cluster("udp-gone")?;
    let [agent, ..] = &cluster.agents;
    let [near, _, far] = &cluster.pods;
    let first = pid(agent)?;
    cluster.a.sh(&format!("kill -9 {first}"))?;
    let second = wait_other(agent, first)?;
    near.wait_ping(far.ip())?;
    cluster.a.sh(&format!("ip link delete {DEVICE}"))?;
    wait_other(agent, second)?;
    cluster.wait_connected()?;
    // The route goes with the last address.
    cluster.a.sh(&format!("ip address flush dev {DEVICE}"))?;
    cluster.wait_connected()?;
    let problems = agent.status()?["error"].clone();
    ensure!(problems.is_null(), "{problems}");
    Ok(())
}

#[test]
fn cleanup_ends_the_process_and_leaves_nothing() -> Result<()> {
    let cluster = udp_cluster("udp-cleanup")?;
    let [agent, ..] = &cluster.agents;
    let process = pid(agent)?;
    agent.sigterm_and_wait()?;
    let plan = agent.cli(&["cleanup"])?.stdout;
    ensure!(
        plan.contains("end the tunnel process of the backend udp and remove its device: done"),
        "{plan}"
    );
    eventually("nothing of the process", Duration::from_secs(10), || {
        ensure!(
            cluster.a.sh(&format!("ip link show {DEVICE}")).is_err(),
            "the device is there"
        );
        ensure!(
            cluster.a.sh(&format!("kill -0 {process}")).is_err(),
            "the process runs"
        );
        let routes = cluster.a.sh("ip route show 10.244.0.0/16")?.stdout;
        let files = cluster.a.sh("ls /run/flannel")?.stdout;
        ensure!(
            routes.is_empty() && files.trim() == "subnet.env",
            "{routes}{files}"
        );
        Ok(())
    })
}

#[test]
fn another_backend_ends_the_process() -> Result<()> {
    let cluster = udp_cluster("udp-change")?;
    let process = pid(&cluster.agents[0])?;
    cluster.etcd.put(
        CONFIG_KEY,
        &cluster::config(Stack::V4, r#"{"Type":"vxlan"}"#),
        None,
    )?;
    cluster
        .agents
        .iter()
        .try_for_each(Agent::sigterm_and_wait)?;
    for agent in &cluster.agents {
        agent.restart()?;
    }
    cluster.agents.iter().try_for_each(Agent::wait_ready)?;
    cluster.wait_connected()?;
    eventually(
        "neither process nor device",
        Duration::from_secs(20),
        || {
            ensure!(
                cluster.a.sh(&format!("kill -0 {process}")).is_err(),
                "the process runs"
            );
            ensure!(
                cluster.a.sh(&format!("ip link show {DEVICE}")).is_err(),
                "the device is there"
            );
            Ok(())
        },
    )?;
    let status = cluster.agents[0].status()?;
    ensure!(status["udp"].is_null(), "{}", status["udp"]);
    Ok(())
}
