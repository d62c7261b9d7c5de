//! The IPv6 address of the external interface under a running agent: a change moves only its own
//! family.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    cluster::{Cluster, LEASES, topology::Stack},
    eventually,
};
use serde_json::Value;

use super::VXLAN;

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn another_ipv6_address_moves_ipv6_alone() -> Result<()> {
    let cluster = Cluster::new("readdress6", Stack::Dual, VXLAN)?;
    cluster.wait_connected()?;
    let (a, agent) = (&cluster.net.a, &cluster.agents[0]);
    let index = |device: &str| {
        a.sh(&format!("cat /sys/class/net/{device}/ifindex"))
            .map(|output| output.stdout)
    };
    let ipv4 = index("flannel.1")?;
    let own = || -> Result<(String, Value)> {
        let leases = cluster.etcd.list(LEASES)?;
        let (key, value) = leases
            .into_iter()
            .find(|(_, value)| value.contains(r#""192.168.1.11""#))
            .context("the lease of a")?;
        Ok((key, serde_json::from_str(&value)?))
    };
    let key = own()?.0;

    // Without a global address the node is not ready, and everything stays as it is: the link-local
    // one cannot replace it.
    a.sh("ip address del 2001:db8:1::11/64 dev eth0")?;
    let status = agent.wait_ready_is(false)?;
    ensure!(
        status["error"]
            .as_str()
            .is_some_and(|error| error.contains("no usable IPv6 address")),
        "{status}"
    );
    assert_eq!(own()?.1["PublicIPv6"], "2001:db8:1::11");
    cluster.pods[0].ping(cluster.pods[2].ip())?;

    a.sh("ip address add 2001:db8:1::17/64 dev eth0 nodad")?;
    agent.wait_ready_is(true)?;
    eventually("the lease", LIMIT, || {
        let (now, lease) = own()?;
        ensure!(
            now == key && lease["PublicIPv6"] == "2001:db8:1::17",
            "{now}: {lease}"
        );
        Ok(())
    })?;
    for node in [&cluster.net.b, &cluster.net.c] {
        eventually("the peer's FDB entry", LIMIT, || {
            let fdb = node.sh("bridge fdb show dev flannel-v6.1")?.stdout;
            ensure!(fdb.contains("dst 2001:db8:1::17 "), "{fdb}");
            Ok(())
        })?;
    }
    cluster.wait_connected()?;
    assert_eq!(index("flannel.1")?, ipv4, "the IPv4 device was not touched");
    Ok(())
}

/// A flap removes global IPv6 addresses; the administrator adds them again.
#[test]
fn a_flap_is_survived_by_both_families() -> Result<()> {
    let cluster = Cluster::new("flap6", Stack::Dual, VXLAN)?;
    cluster.wait_connected()?;
    let (a, agent) = (&cluster.net.a, &cluster.agents[0]);
    a.sh("ip link set eth0 down")?;
    agent.wait_ready_is(false)?;
    a.sh("ip link set eth0 up")?;
    a.sh("ip address add 2001:db8:1::11/64 dev eth0 nodad")?;
    a.sh("ip route add default via 192.168.1.1 dev eth0")?;
    a.sh("ip -6 route add default via fe80::1 dev eth0")?;
    agent.wait_ready_is(true)?;
    cluster.wait_connected()
}
