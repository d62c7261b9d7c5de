//! Foreign changes to our IPv6 objects and to our routes without a tunnel are repaired.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    Agent, StockEnd, StockNode, TunnelState, TwoNodes,
    cluster::{self, topology::Stack},
    eventually,
};
use serde_json::Value;

use super::{HOST_GW, VXLAN};

/// The limit for repairs. Events announce foreign changes; the full resync runs only every 30 s.
const SECONDS: Duration = Duration::from_secs(10);

fn node_with_a_peer(
    name: &str,
    backend: &str,
    own: &StockNode,
    peer: &StockNode,
) -> Result<(TwoNodes, Agent)> {
    let pair = TwoNodes::with(name, Stack::Dual, &cluster::config(Stack::Dual, backend))?;
    own.put(&pair.etcd)?;
    peer.put(&pair.etcd)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    agent.wait_peers(2)?;
    Ok((pair, agent))
}

#[test]
fn ipv6_tunnel_objects_come_back() -> Result<()> {
    let node = |number, v4: &str, v6: &str| StockNode {
        v4: Some(StockEnd::vxlan(
            number,
            v4,
            &format!("02:00:00:00:04:{number:02}"),
        )),
        v6: Some(StockEnd::vxlan(
            number,
            v6,
            &format!("02:00:00:00:06:{number:02}"),
        )),
    };
    let (own, peer) = (
        node(85, "192.168.1.11", "2001:db8:1::11"),
        node(9, "192.168.1.99", "2001:db8:1::99"),
    );
    let (pair, agent) = node_with_a_peer("drift6", VXLAN, &own, &peer)?;
    let changes = [
        "ip -6 route del fd00:10:244:9::/64",
        "ip neigh del fd00:10:244:9:: dev flannel-v6.1",
        "bridge fdb del 02:00:00:00:06:09 dev flannel-v6.1",
        "ip address del fd00:10:244:55::/128 dev flannel-v6.1",
        "ip -6 route replace fd00:10:244:9::/64 via 2001:db8:1::12",
        "ip -6 route append fd00:10:244:9::/64 via 2001:db8:1::12",
        "ip -6 route replace blackhole fd00:10:244:9::/64",
        "ip neigh replace fd00:10:244:9:: lladdr 02:00:00:00:00:66 nud permanent dev flannel-v6.1",
        "bridge fdb replace 02:00:00:00:06:09 dst 2001:db8:1::66 self permanent dev flannel-v6.1",
        "ip link set flannel-v6.1 down",
        "ip link set flannel-v6.1 mtu 1200",
        "ip link del flannel-v6.1",
    ];
    pair.a.expect_repairs(&changes, || {
        Ok([TunnelState::of(&pair.a)?, TunnelState::of_ipv6(&pair.a)?]
            .map(|state| without_indices(&state)))
    })?;
    agent.wait_ready_is(true)?;
    let status = agent.status()?;
    assert_eq!(status["devices"][1]["mtu"], 1430, "{status}");
    Ok(())
}

/// Returns the state as text. Equal objects on a recreated device have equal texts.
fn without_indices(state: &TunnelState) -> String {
    TunnelState::default().changes(state)
}

#[test]
fn routes_without_a_tunnel_come_back() -> Result<()> {
    let node = |number, v4, v6| StockNode {
        v4: Some(StockEnd::host_gw(number, v4)),
        v6: Some(StockEnd::host_gw(number, v6)),
    };
    let (own, peer) = (
        node(85, "192.168.1.11", "2001:db8:1::11"),
        node(9, "192.168.1.99", "2001:db8:1::99"),
    );
    let (pair, agent) = node_with_a_peer("driftgw", HOST_GW, &own, &peer)?;
    let changes = [
        "ip route del 10.244.9.0/24",
        "ip -6 route del fd00:10:244:9::/64",
        "ip route replace 10.244.9.0/24 via 192.168.1.12",
        "ip -6 route replace fd00:10:244:9::/64 via 2001:db8:1::12",
        "ip route replace blackhole 10.244.9.0/24",
        "ip -6 route replace blackhole fd00:10:244:9::/64",
    ];
    let read = || {
        let routes: Vec<Value> = pair.a.json(&[
            "ip", "-j", "route", "show", "proto", "191", "type", "unicast",
        ])?;
        let routes6: Vec<Value> = pair.a.json(&[
            "ip", "-j", "-6", "route", "show", "proto", "191", "type", "unicast",
        ])?;
        ensure!(
            routes.len() == 1 && routes6.len() == 1,
            "{routes:?} {routes6:?}"
        );
        Ok((routes, routes6))
    };
    pair.a.expect_repairs(&changes, read)?;
    // The kernel takes the routes with the link; IPv6 addresses do not come back by themselves.
    let wanted = read()?;
    for command in [
        "ip link set eth0 down",
        "ip link set eth0 up",
        "ip address add 2001:db8:1::11/64 dev eth0 nodad",
    ] {
        pair.a.sh(command)?;
    }
    eventually("recovery from a flap", SECONDS, || {
        let now = read()?;
        ensure!(now == wanted, "{now:#?}");
        Ok(())
    })?;
    agent.wait_ready_is(true)?;
    Ok(())
}
