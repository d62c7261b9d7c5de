//! A node of stock flannel, made by hand as stock makes it, and ours.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    ThreeNodes,
    cluster::{self, topology::Stack},
    eventually,
};
use serde_json::{Value, json};

use super::{DEVICES, key, shown, wait_peers};

const PRIVATE: &str = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=";
const PUBLIC: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";
const LEASE: &str = "/coreos.com/network/subnets/10.244.9.0-24";

/// The device, address and route of stock flannel on node `c`, with our node as its peer, from what
/// our lease says.
fn be_stock(nodes: &ThreeNodes, ours: &Value, subnet: &str) -> Result<()> {
    let c = &nodes.c;
    let (public, port) = (
        &ours["BackendData"]["PublicKey"],
        &ours["BackendData"]["Port"],
    );
    let (public, address) = (
        public.as_str().context("a key")?,
        ours["PublicIP"].as_str().context("an address")?,
    );
    if c.sh("ip link add flannel-wg type wireguard").is_err() {
        c.sh("wireguard-go flannel-wg")?;
    }
    std::fs::write(c.outside_path("/run/stock-key"), PRIVATE)?;
    c.sh("wg set flannel-wg private-key /run/stock-key listen-port 51820")?;
    c.sh(&format!(
        "wg set flannel-wg peer {public} endpoint {address}:{port} allowed-ips {subnet}"
    ))?;
    c.sh("ip address add 10.244.9.0/32 dev flannel-wg")?;
    c.sh("ip link set flannel-wg mtu 1420 up")?;
    c.sh("ip route add 10.244.0.0/16 dev flannel-wg scope link")?;
    Ok(())
}

#[test]
fn a_stock_node_and_ours_reach_each_other_by_what_each_publishes() -> Result<()> {
    let nodes = ThreeNodes::with(
        "wg-stock",
        Stack::V4,
        &cluster::config(Stack::V4, r#"{"Type":"wireguard"}"#),
    )?;
    let value = json!({
        "PublicIP": "192.168.2.13", "PublicIPv6": null, "BackendType": "wireguard",
        "BackendData": { "PublicKey": PUBLIC, "Port": 51820 },
    });
    nodes.etcd.put(LEASE, &value.to_string(), None)?;
    let agent = nodes.a.ready_agent(nodes.options()?)?;
    let subnet = agent.status()?["lease"]["subnet"]
        .as_str()
        .context("a subnet")?
        .to_owned();
    let lease = nodes.etcd.get(&format!(
        "/coreos.com/network/subnets/{}",
        subnet.replace('/', "-")
    ))?;
    let ours: Value = serde_json::from_str(&lease.context("our lease")?)?;
    let expected = json!({ "PublicKey": key(&agent)?, "Port": 51820 });
    assert_eq!(
        (&ours["BackendType"], &ours["BackendData"]),
        (&json!("wireguard"), &expected)
    );

    be_stock(&nodes, &ours, &subnet)?;
    nodes.lab.record_strays()?;
    wait_peers(&agent, DEVICES[0], &[PUBLIC])?;
    assert_eq!(
        shown(&nodes.a, DEVICES[0], "endpoints")?[0].1,
        "192.168.2.13:51820"
    );
    nodes.a.sh("ping -c 1 -w 20 10.244.9.0")?;
    let base = subnet.split('/').next().context("an address")?;
    nodes.c.sh(&format!("ping -c 1 -w 20 {base}"))?;
    let peer = agent.peer_status("192.168.2.13");
    ensure!(peer?["way"] == "wireguard", "another way");

    // Its lease gone, the device forgets it.
    nodes.etcd.delete(LEASE)?;
    eventually("a device without peers", Duration::from_secs(30), || {
        let left = shown(&nodes.a, DEVICES[0], "endpoints")?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
}
