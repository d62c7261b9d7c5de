//! Packets between pods.

use std::{net::SocketAddr, net::UdpSocket, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent,
    cluster::{Cluster, LEASES},
    load::bulk::{BLOCK, transfer},
};
use serde_json::{Value, json};

use super::{DEVICE, base, cluster, counted};

#[test]
fn pods_of_three_nodes_exchange_streams_and_large_datagrams() -> Result<()> {
    let cluster = cluster("udp-paths")?;
    let [agent, ..] = &cluster.agents;
    expect_stock_form(&cluster, agent)?;

    let [near, same, far] = &cluster.pods;
    let before = counted(agent, "sent_bytes")?;
    for to in [same, far] {
        let at = SocketAddr::new(to.ip(), 5201);
        let blocks = 400;
        let arrived = transfer(near, to, at, blocks)?;
        assert_eq!(
            arrived.map(|way| way.blocks),
            [blocks; 2],
            "blocks of {BLOCK} bytes"
        );
    }
    let sent = counted(agent, "sent_bytes")? - before;
    ensure!(sent > 2 * 400 * 65_536, "{sent} bytes sent");

    // Fragments of the pod's kernel.
    let receiver = far.enter(|| UdpSocket::bind((far.ip(), 0)))??;
    receiver.set_read_timeout(Some(Duration::from_secs(20)))?;
    let (to, payload) = (
        receiver.local_addr()?,
        (0..65_000_u32)
            .map(|at| at.to_le_bytes()[1])
            .collect::<Vec<_>>(),
    );
    near.enter(|| UdpSocket::bind((near.ip(), 0))?.send_to(&payload, to))??;
    let mut buffer = vec![0; 65_536];
    let length = receiver.recv(&mut buffer)?;
    ensure!(buffer[..length] == payload, "{length} other bytes");
    for reason in [
        "malformed",
        "no_route",
        "unknown_sender",
        "not_sent",
        "not_delivered",
    ] {
        assert_eq!(counted(agent, reason)?, 0, "{reason}");
    }
    Ok(())
}

/// Device, routes, address and lease are as stock flannel makes them.
fn expect_stock_form(cluster: &Cluster, agent: &Agent) -> Result<()> {
    let status = agent.status()?;
    assert_eq!(
        (&status["devices"][0]["name"], &status["devices"][0]["mtu"]),
        (&json!(DEVICE), &json!(1472))
    );
    for peer in status["peers"].as_array().context("peers")? {
        ensure!(peer["way"] == "udp" && peer["reason"].is_null(), "{peer}");
    }
    assert_eq!(cluster.a.subnet_env()?.mtu, 1472, "as stock flannel's");
    let routes = cluster.a.sh("ip route show 10.244.0.0/16")?.stdout;
    assert_eq!(
        routes.trim(),
        format!("10.244.0.0/16 dev {DEVICE} scope link")
    );
    let address = cluster
        .a
        .sh(&format!("ip -4 -br address show {DEVICE}"))?
        .stdout;
    ensure!(
        address.contains(&format!("{}/32", base(agent)?)),
        "{address}"
    );
    let key = format!("{LEASES}{}-24", base(agent)?);
    let lease: Value = serde_json::from_str(&cluster.etcd.get(&key)?.context("a lease")?)?;
    ensure!(
        lease.get("BackendType").is_none() && lease.get("BackendData").is_none(),
        "{lease}"
    );
    Ok(())
}
