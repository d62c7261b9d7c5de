//! The backend host-gw: routes to neighbours, and nothing for others.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_datapath::AttachKind;
use flannel_tests::{
    StockEnd, StockNode, TwoNodes,
    cluster::{self, Cluster, topology::Stack},
    eventually, stock,
};
use serde_json::Value;

use super::HOST_GW;

const SOON: Duration = Duration::from_secs(20);

/// `a` and `b` share a segment. `c` is behind a router, so neither has a possible route to it.
#[test]
fn neighbours_are_routed_to_and_others_are_refused() -> Result<()> {
    for stack in Stack::ALL {
        let cluster = Cluster::new("hostgw", stack, HOST_GW)?;
        let [a, b, c] = &cluster.pods;
        for address in b.addresses() {
            a.wait_ping(*address)?;
            let far = a
                .command(["ping", "-n", "-c", "1", "-W", "1", &c.ip().to_string()])
                .any_code()
                .run()?;
            ensure!(far.code != 0, "{}", far.stdout);
        }
        let agent = &cluster.agents[0];
        for address in [
            ("192.168.1.12", "192.168.2.13"),
            ("2001:db8:1::12", "2001:db8:2::13"),
        ]
        .into_iter()
        .zip([stack.has_v4(), stack.has_v6()])
        .filter_map(|(addresses, has)| has.then_some(addresses))
        {
            let (near, far) = (agent.peer_status(address.0)?, agent.peer_status(address.1)?);
            assert_eq!(
                (&near["way"], &far["way"]),
                (&"direct".into(), &"none".into()),
                "{near} {far}"
            );
            let reason = "the node is not on our own link, and the backend has no tunnel";
            assert_eq!(far["reason"], reason, "{far}");
        }
        let status = agent.status()?;
        let mode = serde_json::json!({
            "effective": "fast", "wanted": "fast", "source": "default", "reason": null,
            "attach": AttachKind::detect().name()
        });
        assert_eq!(
            (&status["ready"], &status["mode"]),
            (&true.into(), &mode),
            "{status}"
        );
        assert_eq!(
            (&status["device"], &status["devices"]),
            (&Value::Null, &serde_json::json!([])),
            "{status}"
        );
        assert_eq!(cluster.net.a.subnet_env()?.mtu, 1500);
    }
    Ok(())
}

/// A peer that moves onto our link is routed to from then on.
#[test]
fn a_peer_is_examined_again_when_the_underlay_changes() -> Result<()> {
    let cluster = Cluster::new("onlink", Stack::Dual, HOST_GW)?;
    let agent = &cluster.agents[0];
    let way = |address: &str, expected: &str| {
        eventually(&format!("{address} {expected}"), SOON, || {
            let peer = agent.peer_status(address)?;
            ensure!(peer["way"] == expected, "{peer}");
            Ok(())
        })
    };
    for (address, route) in [
        ("192.168.2.13", "192.168.2.13/32"),
        ("2001:db8:2::13", "2001:db8:2::13/128"),
    ] {
        way(address, "none")?;
        cluster
            .net
            .a
            .sh(&format!("ip route add {route} dev eth0"))?;
        way(address, "direct")?;
        cluster
            .net
            .a
            .sh(&format!("ip route del {route} dev eth0"))?;
        way(address, "none")?;
    }
    Ok(())
}

/// Routes that stock flannel left are taken over: those of host-gw, and those of a cluster that
/// used to have tunnels.
#[test]
fn routes_that_stock_left_are_taken_over() -> Result<()> {
    let pair = TwoNodes::with("leftgw", Stack::V4, &cluster::config(Stack::V4, HOST_GW))?;
    let node = |number, address: &str| StockNode::from(StockEnd::host_gw(number, address));
    let tunnelled = StockNode::vxlan(10, "192.168.1.98", "02:00:00:00:04:10");
    stock::device(&pair.a, 5, "192.168.1.11", "02:00:00:00:04:05")?;
    stock::tunnel_peer(&pair.a, &tunnelled)?;
    pair.a
        .sh("ip route add 10.244.9.0/24 via 192.168.1.99 dev eth0")?;
    pair.a
        .sh("ip route add 10.244.77.0/24 via 192.168.1.12 dev eth0")?;
    for (number, address) in [(9, "192.168.1.99"), (10, "192.168.1.98")] {
        node(number, address).put(&pair.etcd)?;
    }
    let agent = pair.a.ready_agent(pair.options()?)?;
    agent.wait_peers(2)?;
    let routes: Vec<Value> = pair.a.json(&[
        "ip",
        "-j",
        "-details",
        "route",
        "show",
        "root",
        "10.244.0.0/16",
    ])?;
    let of = |dst: &str| {
        routes
            .iter()
            .filter(|route| route["dst"] == dst)
            .collect::<Vec<_>>()
    };
    for (dst, gateway) in [
        ("10.244.9.0/24", "192.168.1.99"),
        ("10.244.10.0/24", "192.168.1.98"),
    ] {
        let route = of(dst);
        ensure!(
            route.len() == 1 && route[0]["gateway"] == gateway && route[0]["protocol"] == "191",
            "{route:?}"
        );
    }
    ensure!(
        of("10.244.77.0/24").len() == 1,
        "an administrator's route stays: {routes:?}"
    );
    Ok(())
}
