//! No packet is lost while an agent is away, and cleanup leaves no state behind.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{cluster::topology::Stack, eventually, load::UdpLoad};

use super::{DEVICES, cluster, key};

#[test]
fn a_killed_and_a_restarted_agent_lose_no_datagram() -> Result<()> {
    let cluster = cluster("wg-restart", Stack::V4, "")?;
    let [agent, ..] = &cluster.agents;
    let index = |name: &str| cluster.a.sh(&format!("cat /sys/class/net/{name}/ifindex"));
    let (before, public) = (index(DEVICES[0])?.stdout, key(agent)?);
    let load = UdpLoad {
        pps: 1_000,
        duration: Duration::from_mins(2),
        payload: 64,
    };
    cluster.expect_no_loss_by_restarts(load)?;
    assert_eq!(
        (index(DEVICES[0])?.stdout, key(agent)?),
        (before, public),
        "another device or key"
    );
    Ok(())
}

#[test]
fn cleanup_leaves_nothing() -> Result<()> {
    let cluster = cluster("wg-cleanup", Stack::Dual, "")?;
    let [agent, ..] = &cluster.agents;
    agent.sigterm_and_wait()?;
    let printed = agent.cli(&["cleanup"])?.stdout;
    for device in DEVICES {
        ensure!(
            printed.contains(&format!("remove the device {device} and all on it: done")),
            "{printed}"
        );
        eventually(
            &format!("no device {device}"),
            Duration::from_secs(10),
            || {
                ensure!(
                    cluster.a.sh(&format!("ip link show {device}")).is_err(),
                    "it is there"
                );
                Ok(())
            },
        )?;
    }
    ensure!(
        printed.contains("remove /run/flannel/wgkey: done"),
        "{printed}"
    );
    let left = cluster.a.sh("ip route show 10.244.0.0/16")?.stdout;
    ensure!(left.trim().is_empty(), "{left}");
    Ok(())
}
