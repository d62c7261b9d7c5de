//! Our kernel objects against those that stock's own commands make in a twin of the node.

use anyhow::{Context as _, Result};
use flannel_tests::{Node, StockNode, TunnelState, TwoNodes, cluster, stock};
use serde_json::Value;

const DIRECT: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","DirectRouting":true}}"#;

fn peers() -> [StockNode; 2] {
    [StockNode::vxlan(9, "192.168.1.99", "02:00:00:00:00:09"), StockNode::vxlan(10, "172.16.0.10", "02:00:00:00:00:10")]
}

/// A node with the subnet 10.244.5.0/24 and two peers, run by the agent, and its twin without one.
fn node_and_twin(config: &str) -> Result<(TwoNodes, Node)> {
    let pair = TwoNodes::new("shape", config)?;
    pair.a.sh("ip route add default via 192.168.1.12")?;
    let own = StockNode::vxlan(5, "192.168.1.11", "02:00:00:00:00:05");
    pair.etcd.put(&own.key(), &own.value(), None)?;
    pair.etcd.put_leases(&peers())?;
    let agent = pair.a.agent(pair.options()?)?;
    agent.wait_ready()?;
    agent.wait_peers(2)?;
    let status = agent.status()?;
    let mac = status["device"]["mac"].as_str().context("a MAC")?;

    let twin = pair.lab.node("twin")?;
    let far = pair.lab.node("far")?;
    pair.lab.link(&twin, "eth0", &far, "eth0")?;
    twin.address("eth0", "192.168.1.11/24", Some("192.168.1.12"))?;
    stock::device(&twin, 5, "192.168.1.11", mac)?;
    Ok((pair, twin))
}

/// The vxlan device as the kernel describes it, without what no two devices share.
fn device(node: &Node) -> Result<Value> {
    let links: Vec<Value> = node.json(&["ip", "-j", "-details", "link", "show", "flannel.1"])?;
    let mut link = links.into_iter().next().context("flannel.1")?;
    for name in ["ifindex", "link_index", "link_netnsid"] {
        link.as_object_mut().context("a link")?.remove(name);
    }
    Ok(link)
}

#[test]
fn tunnel_objects_equal_stocks() -> Result<()> {
    let (pair, twin) = node_and_twin(cluster::VXLAN)?;
    for peer in peers() {
        stock::tunnel_peer(&twin, &peer)?;
    }
    let ours = TunnelState::of(&pair.a)?;
    assert_eq!(TunnelState::of(&twin)?.changes(&ours), "");
    for kind in ["address", "neighbour", "fdb", "route"] {
        assert!(!ours.matching(&[kind]).is_empty(), "{kind} in {ours:?}");
    }
    assert_eq!(device(&twin)?, device(&pair.a)?);
    Ok(())
}

/// Direct routes differ only in their protocol: nothing else distinguishes them from an
/// administrator's.
#[test]
fn direct_routes_equal_stocks_except_for_their_protocol() -> Result<()> {
    let (pair, twin) = node_and_twin(DIRECT)?;
    let [near, far] = peers();
    stock::direct_peer(&twin, &near)?;
    stock::tunnel_peer(&twin, &far)?;
    let [stocks, ours] = [TunnelState::of(&twin)?, TunnelState::of(&pair.a)?];
    let only = |state: &TunnelState| -> Result<String> {
        let routes = state.matching(&["route", "10.244.9.0/24"]);
        assert_eq!(routes.len(), 1, "{state:?}");
        Ok(routes[0].to_owned())
    };
    assert_eq!(only(&stocks)?.replace(r#""protocol":"boot""#, r#""protocol":"191""#), only(&ours)?);
    let changes = stocks.changes(&ours);
    assert_eq!(changes.lines().count(), 2, "the direct route and nothing else:\n{changes}");
    assert!(ours.matching(&["02:00:00:00:00:09"]).is_empty(), "no tunnel entry for a direct peer");
    Ok(())
}

/// A node changes hands: the objects stock left are taken over in place, without duplicates or leftovers.
#[test]
fn what_stock_left_is_adopted() -> Result<()> {
    let pair = TwoNodes::new("adopt", cluster::VXLAN)?;
    let mac = "02:00:00:00:00:05";
    let own = StockNode::vxlan(5, "192.168.1.11", mac);
    own.put(&pair.etcd)?;
    let [kept, left] = peers();
    pair.a.sh("ip route add default via 192.168.1.12")?;
    pair.etcd.put_leases(std::slice::from_ref(&kept))?;
    stock::device(&pair.a, 5, "192.168.1.11", mac)?;
    stock::tunnel_peer(&pair.a, &kept)?;
    let wanted = (TunnelState::of(&pair.a)?, pair.a.sh("cat /sys/class/net/flannel.1/ifindex")?.stdout);
    stock::tunnel_peer(&pair.a, &left)?;
    let agent = pair.a.agent(pair.options()?)?;
    agent.wait_ready()?;
    agent.wait_peers(1)?;
    let status = agent.status()?;
    assert_eq!((&status["lease"]["subnet"], &status["device"]["mac"]), (&"10.244.5.0/24".into(), &mac.into()));
    assert_eq!(wanted.0.changes(&TunnelState::of(&pair.a)?), "");
    assert_eq!(pair.a.sh("cat /sys/class/net/flannel.1/ifindex")?.stdout, wanted.1, "the same device");
    Ok(())
}
