//! Packets travel in ipip, by routes and a lease as stock flannel's; to neighbours without a tunnel
//! if asked for.

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Node,
    cluster::{Cluster, LEASES, topology::Stack},
    packet::wire::Capture,
};
use serde_json::{Value, json};

use super::{DEVICE, DIRECT_ROUTING, IPIP, device, lacks_ipip, routes};

/// Frames of IPv4 in IPv4.
fn is_ipip(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[0x08, 0x00]) && frame.get(23) == Some(&4)
}

#[test]
fn packets_travel_in_ipip_and_device_lease_and_mtu_are_as_stock_flannel_s() -> Result<()> {
    if lacks_ipip("packets through the backend ipip") {
        return Ok(());
    }
    let cluster = Cluster::new("ipip", Stack::V4, IPIP)?;
    cluster.wait_connected()?;
    let [agent, ..] = &cluster.agents;
    let status = agent.status()?;
    let mode = &status["mode"];
    ensure!(status["ready"] == true, "{status}");
    ensure!(
        mode["effective"] == "fast" || mode["reason"].is_string(),
        "{status}"
    );
    let shown = &status["devices"][0];
    assert_eq!(
        (&shown["name"], &shown["mtu"]),
        (&json!(DEVICE), &json!(1480)),
        "{shown}"
    );
    for peer in status["peers"].as_array().context("peers")? {
        ensure!(peer["way"] == "ipip" && peer["reason"].is_null(), "{peer}");
    }

    expect_device(&cluster.a)?;
    assert_eq!(cluster.a.subnet_env()?.mtu, 1480);
    expect_leases_and_routes(&cluster)?;

    let capture = Capture::start(&cluster.c, "eth0", is_ipip)?;
    let [near, _, far] = &cluster.pods;
    near.ping(far.ip())?;
    ensure!(
        capture.len() >= 3,
        "{} frames of ipip for three pings",
        capture.len()
    );
    // The largest packet that pods may send, whole.
    near.sh(&format!(
        "ping -n -c 3 -i 0.1 -W 5 -M do -s 1452 {}",
        far.ip()
    ))?;
    Ok(())
}

/// The device is as stock flannel makes it.
fn expect_device(node: &Node) -> Result<()> {
    let link = device(node)?;
    let info = &link["linkinfo"];
    assert_eq!(
        (&info["info_kind"], &link["mtu"]),
        (&json!("ipip"), &json!(1480)),
        "{link}"
    );
    let (ends, expected) = (&info["info_data"], ("192.168.1.11", "any"));
    assert_eq!(
        (&ends["local"], &ends["remote"]),
        (&json!(expected.0), &json!(expected.1)),
        "{link}"
    );
    Ok(())
}

/// Leases and routes are as stock flannel makes them.
fn expect_leases_and_routes(cluster: &Cluster) -> Result<()> {
    let leases = cluster.etcd.list(LEASES)?;
    let values = leases
        .iter()
        .map(|(_, value)| Ok(serde_json::from_str::<Value>(value)?));
    for lease in values.collect::<Result<Vec<_>>>()? {
        assert_eq!(
            (&lease["BackendType"], lease.get("BackendData")),
            (&json!("ipip"), None),
            "{lease}"
        );
    }
    for route in routes(&cluster.a)? {
        let gateway = route["gateway"].as_str().context("a gateway")?;
        ensure!(
            route["dev"] == DEVICE && gateway.starts_with("192.168."),
            "{route}"
        );
        ensure!(
            route["flags"]
                .as_array()
                .is_some_and(|flags| flags.contains(&json!("onlink"))),
            "{route}"
        );
    }
    Ok(())
}

/// `a` and `b` share a segment, `c` is behind a router.
#[test]
fn with_direct_routing_neighbours_are_reached_without_a_tunnel() -> Result<()> {
    if lacks_ipip("DirectRouting of the backend ipip") {
        return Ok(());
    }
    let cluster = Cluster::new("ipip-direct", Stack::V4, DIRECT_ROUTING)?;
    cluster.wait_connected()?;
    let [agent, ..] = &cluster.agents;
    for (address, way) in [("192.168.1.12", "direct"), ("192.168.2.13", "ipip")] {
        let peer = agent.peer_status(address)?;
        assert_eq!(peer["way"], way, "{peer}");
    }
    let of = |gateway: &str| -> Result<Value> {
        let route = routes(&cluster.a)?
            .into_iter()
            .find(|route| route["gateway"] == gateway);
        Ok(route.with_context(|| format!("no route by {gateway}"))?["dev"].clone())
    };
    assert_eq!(
        (of("192.168.1.12")?, of("192.168.2.13")?),
        (json!("eth0"), json!(DEVICE))
    );
    Ok(())
}
