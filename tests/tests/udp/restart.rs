//! No packet is lost while an agent is away, nor when another one replaces the process.

use std::{fs, time::Duration};

use anyhow::{Result, ensure};
use flannel_tests::{
    agent::agent_binary,
    eventually,
    load::{UdpLoad, UdpRun},
};

use super::{cluster, counted, pid, wait_other};

const LOAD: UdpLoad = UdpLoad {
    pps: 1_000,
    duration: Duration::from_mins(2),
    payload: 64,
};

#[test]
fn a_killed_and_a_restarted_agent_lose_no_datagram() -> Result<()> {
    let cluster = cluster("udp-restart")?;
    let [agent, ..] = &cluster.agents;
    let process = pid(agent)?;
    cluster.expect_no_loss_by_restarts(LOAD)?;
    assert_eq!(pid(agent)?, process, "another process");
    Ok(())
}

#[test]
fn an_upgraded_agent_replaces_the_process_and_loses_no_datagram() -> Result<()> {
    let cluster = cluster("udp-upgrade")?;
    let [agent, ..] = &cluster.agents;
    let [near, _, far] = &cluster.pods;
    let (process, sent) = (pid(agent)?, counted(agent, "sent_packets")?);
    // Another file is another build.
    let binary = cluster.lab.large_files("upgrade")?.join("flannel-agent");
    fs::copy(agent_binary()?, &binary)?;
    let there = UdpRun::start(near, far, far.ip(), LOAD)?;
    let back = UdpRun::start(far, near, near.ip(), LOAD)?;
    agent.sigterm_and_wait()?;
    let upgraded = cluster.a.ready_agent(flannel_tests::AgentOptions {
        binary,
        ..cluster.options()?
    })?;
    let successor = wait_other(&upgraded, process)?;
    near.ping(far.ip())?;
    for run in [there, back] {
        let report = run.stop()?;
        println!(
            "{} datagrams, longest gap {:?}",
            report.sent, report.longest_gap
        );
        report.expect_complete()?;
    }
    eventually(
        "the end of the former process",
        Duration::from_secs(10),
        || {
            ensure!(
                cluster.a.sh(&format!("kill -0 {process}")).is_err(),
                "it runs"
            );
            Ok(())
        },
    )?;
    ensure!(
        successor != process && counted(&upgraded, "sent_packets")? > sent,
        "the counts begin again"
    );
    Ok(())
}
