//! No packet is lost while an agent is away, and cleanup leaves no state behind.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    cluster::{Cluster, topology::Stack},
    eventually,
    load::UdpLoad,
};

use super::{DEVICE, IPIP, device, lacks_ipip, routes};

#[test]
fn a_killed_and_a_restarted_agent_lose_no_datagram() -> Result<()> {
    if lacks_ipip("a restart with the backend ipip") {
        return Ok(());
    }
    let cluster = Cluster::new("ipip-restart", Stack::V4, IPIP)?;
    cluster.wait_connected()?;
    cluster.lab.record_strays()?;
    let before = device(&cluster.a)?["ifindex"].clone();
    let load = UdpLoad {
        pps: 500,
        duration: Duration::from_mins(5),
        payload: 64,
    };
    cluster.expect_no_loss_by_restarts(load)?;
    assert_eq!(device(&cluster.a)?["ifindex"], before, "another device");
    Ok(())
}

#[test]
fn cleanup_leaves_nothing() -> Result<()> {
    if lacks_ipip("cleanup of the backend ipip") {
        return Ok(());
    }
    let cluster = Cluster::new("ipip-cleanup", Stack::V4, IPIP)?;
    let [agent, ..] = &cluster.agents;
    agent.wait_peers(2)?;
    agent.sigterm_and_wait()?;
    let output = agent.cli(&["cleanup"])?.stdout;
    ensure!(
        output.contains(&format!("remove the device {DEVICE} and all on it: done")),
        "{output}"
    );
    eventually("no device", Duration::from_secs(10), || {
        ensure!(
            cluster.a.sh(&format!("ip link show {DEVICE}")).is_err(),
            "it is there"
        );
        Ok(())
    })?;
    let left = routes(&cluster.a)?;
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}
