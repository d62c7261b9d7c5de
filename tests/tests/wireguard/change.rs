//! From vxlan to wireguard and back.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use flannel_tests::{
    Agent,
    cluster::{self, Cluster, etcd::CONFIG_KEY, topology::Stack},
    eventually,
    load::{UdpLoad, UdpRun},
};

const PACKETS_A_SECOND: u32 = 200;

/// Restarts all agents with another backend under traffic, and waits until pods reach each other
/// only by its device. The traffic stops for no longer than that, and goes on by itself.
fn change(cluster: &Cluster, backend: &str, device: &str) -> Result<()> {
    let [from, _, to] = &cluster.pods;
    let load = UdpLoad {
        pps: PACKETS_A_SECOND,
        duration: Duration::from_mins(4),
        payload: 64,
    };
    let run = UdpRun::start(from, to, to.ip(), load)?;
    cluster
        .etcd
        .put(CONFIG_KEY, &cluster::config(Stack::V4, backend), None)?;
    let start = Instant::now();
    cluster
        .agents
        .iter()
        .try_for_each(Agent::sigterm_and_wait)?;
    for agent in &cluster.agents {
        agent.restart()?;
    }
    cluster.agents.iter().try_for_each(Agent::wait_ready)?;
    cluster.wait_connected()?;
    let lasted = start.elapsed();
    let report = run.stop()?;
    println!(
        "to {device}: {} of {} datagrams lost, longest gap {:?}, until all pods are connected \
         {lasted:?}",
        report.lost_count(),
        report.sent,
        report.longest_gap
    );
    ensure!(
        report.received > 0 && report.longest_gap < lasted,
        "{report:?}"
    );
    cluster.lab.record_strays()?;
    for node in cluster.net.nodes() {
        eventually("routes by one device", Duration::from_mins(1), || {
            let routes = node.sh("ip route show root 10.244.0.0/16")?.stdout;
            let elsewhere: Vec<_> = routes
                .lines()
                .filter(|line| line.contains(" dev flannel") && !line.contains(device))
                .collect();
            ensure!(elsewhere.is_empty(), "{}: {elsewhere:?}", node.name());
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn the_backend_changes_to_wireguard_and_back_and_no_route_is_left_behind() -> Result<()> {
    let cluster = Cluster::new("wg-change", Stack::V4, r#"{"Type":"vxlan"}"#)?;
    cluster.wait_connected()?;
    change(&cluster, r#"{"Type":"wireguard"}"#, "flannel-wg")?;
    change(&cluster, r#"{"Type":"vxlan"}"#, "flannel.1")
}
