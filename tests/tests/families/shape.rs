//! Our IPv6 objects against those that stock's own commands make in a twin of the node.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Node, StockNode, TunnelState, TwoNodes, cluster, eventually, stock, topology::Stack};
use serde_json::Value;

use crate::VXLAN;

const OWN_MAC: &str = "02:00:00:00:06:05";

fn own() -> StockNode {
    StockNode::vxlan(5, "2001:db8:1::11", OWN_MAC)
}

fn peers() -> [StockNode; 2] {
    [
        StockNode::vxlan(9, "2001:db8:1::99", "02:00:00:00:06:09"),
        StockNode::vxlan(10, "2001:db8:9::10", "02:00:00:00:06:10"),
    ]
}

fn pair() -> Result<TwoNodes> {
    let pair = TwoNodes::with("shape6", Stack::V6, &cluster::config(Stack::V6, VXLAN))?;
    pair.a.sh("ip -6 route add default via 2001:db8:1::12")?;
    own().put(&pair.etcd)?;
    Ok(pair)
}

/// The vxlan device as the kernel describes it, without what no two devices share.
fn device(node: &Node) -> Result<Value> {
    let links: Vec<Value> = node.json(&["ip", "-j", "-details", "link", "show", "flannel-v6.1"])?;
    let mut link = links.into_iter().next().context("flannel-v6.1")?;
    for name in ["ifindex", "link_index", "link_netnsid"] {
        link.as_object_mut().context("a link")?.remove(name);
    }
    Ok(link)
}

/// One thing differs on purpose: the device takes packets without a checksum.
#[test]
fn ipv6_tunnel_objects_equal_stocks() -> Result<()> {
    let pair = pair()?;
    for peer in peers() {
        peer.put(&pair.etcd)?;
    }
    let agent = pair.a.agent(pair.options()?)?;
    agent.wait_ready()?;
    agent.wait_peers(2)?;
    let (twin, far) = (pair.lab.node("twin")?, pair.lab.node("far")?);
    pair.lab.link(&twin, "eth0", &far, "eth0")?;
    twin.address("eth0", "2001:db8:1::11/64", Some("2001:db8:1::12"))?;
    let status = agent.status()?;
    stock::device(&twin, 5, "2001:db8:1::11", status["device"]["mac"].as_str().context("a MAC")?)?;
    for peer in peers() {
        stock::tunnel_peer(&twin, &peer)?;
    }
    let ours = TunnelState::of_ipv6(&pair.a)?;
    assert_eq!(TunnelState::of_ipv6(&twin)?.changes(&ours), "");
    for kind in ["address", "neighbour", "fdb", "route"] {
        assert!(!ours.matching(&[kind]).is_empty(), "{kind} in {ours:?}");
    }
    let (mut stocks, ours) = (device(&twin)?, device(&pair.a)?);
    let takes_no_checksum = |device: &Value| device["linkinfo"]["info_data"]["udp_zero_csum6_rx"].clone();
    assert_eq!((takes_no_checksum(&stocks), takes_no_checksum(&ours)), (false.into(), true.into()), "{ours}");
    stocks["linkinfo"]["info_data"]["udp_zero_csum6_rx"] = true.into();
    assert_eq!(stocks, ours);
    let accept_ra = "sysctl -n net.ipv6.conf.flannel-v6/1.accept_ra";
    assert_eq!(pair.a.sh(accept_ra)?.stdout, twin.sh(accept_ra)?.stdout);
    Ok(())
}

/// A node changes from stock flannel to the agent: no object is recreated, and the lease announces
/// only what the device really accepts.
#[test]
fn an_ipv6_device_that_stock_left_is_adopted() -> Result<()> {
    let pair = pair()?;
    let [kept, left] = peers();
    kept.put(&pair.etcd)?;
    stock::device(&pair.a, 5, "2001:db8:1::11", OWN_MAC)?;
    stock::tunnel_peer(&pair.a, &kept)?;
    let wanted = (TunnelState::of_ipv6(&pair.a)?, device(&pair.a)?);
    stock::tunnel_peer(&pair.a, &left)?;
    let index = pair.a.sh("cat /sys/class/net/flannel-v6.1/ifindex")?.stdout;
    let agent = pair.a.agent(pair.options()?)?;
    agent.wait_ready()?;
    agent.wait_peers(1)?;
    let status = agent.status()?;
    assert_eq!((&status["lease"]["subnet"], &status["device"]["mac"]), (&"fd00:10:244:5::/64".into(), &OWN_MAC.into()));
    assert_eq!(wanted.0.changes(&TunnelState::of_ipv6(&pair.a)?), "");
    assert_eq!(device(&pair.a)?, wanted.1);
    assert_eq!(pair.a.sh("cat /sys/class/net/flannel-v6.1/ifindex")?.stdout, index, "the same device");
    assert_eq!(pair.etcd.get(&own().key())?, Some(own().value()), "it announces nothing that the device does not take");
    pair.a.sh("ip link delete flannel-v6.1")?;
    eventually("the announcement of the device made anew", Duration::from_secs(10), || {
        let value = pair.etcd.get(&own().key())?.context("our lease")?;
        ensure!(value.contains(r#""ZeroChecksumV6":true"#), "{value}");
        Ok(())
    })?;
    assert_eq!(wanted.0.changes(&TunnelState::of_ipv6(&pair.a)?), "", "with everything on it");
    Ok(())
}
