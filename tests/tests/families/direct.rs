//! DirectRouting by IPv6: neighbours have a plain route, others the tunnel, and a peer may change
//! from one to the other.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    cluster::{Cluster, topology::Stack},
    eventually,
    load::{UdpLoad, UdpRun},
};

use super::DIRECT_ROUTING;

const NEIGHBOUR: &str = "2001:db8:1::12";

#[test]
fn an_ipv6_peer_that_is_no_neighbour_any_more_changes_to_the_tunnel_and_back_without_loss()
-> Result<()> {
    let cluster = Cluster::new("direct6", Stack::V6, DIRECT_ROUTING)?;
    let (agent, [near, far, _]) = (&cluster.agents[0], &cluster.pods);
    cluster.wait_connected()?;
    let way = |expected: &[&str]| {
        eventually(
            &format!("{NEIGHBOUR} by {expected:?}"),
            Duration::from_secs(20),
            || {
                let peer = agent.peer_status(NEIGHBOUR)?;
                ensure!(expected.iter().any(|way| peer["way"] == *way), "{peer}");
                Ok(())
            },
        )
    };
    way(&["direct"])?;
    assert_eq!(agent.peer_status("2001:db8:2::13")?["way"], "tunnel");
    let load = UdpLoad {
        pps: 1000,
        duration: Duration::from_secs(30),
        payload: 64,
    };
    let run = UdpRun::start(near, far, far.ip(), load)?;
    // In mode fast packets of known flows pass no tunnel device.
    cluster.agents[1].set_mode("encap")?;
    let received = || cluster.net.b.device_counter("flannel-v6.1", "rx_packets");
    let before = received()?;
    // By the router, which has both on its bridge: still the same segment, but the kernel's way has
    // a gateway.
    cluster.net.a.sh(&format!(
        "ip -6 route add {NEIGHBOUR}/128 via fe80::1 dev eth0"
    ))?;
    way(&["tunnel", "kernel"])?;
    eventually(
        "packets through the tunnel",
        Duration::from_secs(10),
        || {
            let more = received()? - before;
            ensure!(more >= 500, "{more}");
            Ok(())
        },
    )?;
    cluster.net.a.sh(&format!(
        "ip -6 route del {NEIGHBOUR}/128 via fe80::1 dev eth0"
    ))?;
    way(&["direct"])?;
    let report = run.stop()?;
    ensure!(
        report.lost.is_empty() && report.duplicated == 0,
        "{report:?}"
    );
    Ok(())
}
