//! Our kernel objects of either family against those that stock's own commands make in a twin of
//! the node.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Host, Node, StockNode, TunnelState, TwoNodes,
    cluster::{self, topology::Stack},
    eventually, stock,
};
use serde_json::Value;

const VXLAN: &str = r#"{"Type":"vxlan"}"#;
const DIRECT_ROUTING: &str = r#"{"Type":"vxlan","DirectRouting":true}"#;

/// A node with subnet number 85 and two peers, the second behind a router, over one family.
struct Family {
    stack: Stack,
    /// The node's address, its prefix length, and the router.
    own: [&'static str; 3],
    mac: &'static str,
    subnet: &'static str,
    device: &'static str,
    peers: [(u8, &'static str, &'static str); 2],
    read: fn(&Host) -> Result<TunnelState>,
}

const IPV4: Family = Family {
    stack: Stack::V4,
    own: ["192.168.1.11", "24", "192.168.1.12"],
    mac: "02:00:00:00:00:05",
    subnet: "10.244.85.0/24",
    device: "flannel.1",
    peers: [
        (9, "192.168.1.99", "02:00:00:00:00:09"),
        (10, "172.16.0.10", "02:00:00:00:00:10"),
    ],
    read: TunnelState::of,
};

const IPV6: Family = Family {
    stack: Stack::V6,
    own: ["2001:db8:1::11", "64", "2001:db8:1::12"],
    mac: "02:00:00:00:06:05",
    subnet: "fd00:10:244:55::/64",
    device: "flannel-v6.1",
    peers: [
        (9, "2001:db8:1::99", "02:00:00:00:06:09"),
        (10, "2001:db8:9::10", "02:00:00:00:06:10"),
    ],
    read: TunnelState::of_ipv6,
};

impl Family {
    fn own(&self) -> StockNode {
        StockNode::vxlan(85, self.own[0], self.mac)
    }

    fn peers(&self) -> [StockNode; 2] {
        self.peers
            .map(|(number, public_ip, mac)| StockNode::vxlan(number, public_ip, mac))
    }

    /// The node before its agent, with its lease in etcd.
    fn node(&self, name: &str, backend: &str) -> Result<TwoNodes> {
        let pair = TwoNodes::with(name, self.stack, &cluster::config(self.stack, backend))?;
        pair.a
            .sh(&format!("ip route add default via {}", self.own[2]))?;
        self.own().put(&pair.etcd)?;
        Ok(pair)
    }

    /// The node and both peers, run by the agent, and its twin without one.
    fn node_and_twin(&self, name: &str, backend: &str) -> Result<(TwoNodes, Node)> {
        let pair = self.node(name, backend)?;
        pair.etcd.put_leases(&self.peers())?;
        let agent = ready_with_peers(&pair, 2)?;
        let status = agent.status()?;
        let mac = status["device"]["mac"].as_str().context("a MAC")?;
        let (twin, far) = (pair.lab.node("twin")?, pair.lab.node("far")?);
        pair.lab.link(&twin, "eth0", &far, "eth0")?;
        let [address, length, router] = self.own;
        twin.address("eth0", &format!("{address}/{length}"), Some(router))?;
        stock::device(&twin, 85, address, mac)?;
        Ok((pair, twin))
    }

    /// The vxlan device as the kernel describes it, without what no two devices share.
    fn device(&self, node: &Node) -> Result<Value> {
        let links: Vec<Value> =
            node.json(&["ip", "-j", "-details", "link", "show", self.device])?;
        let mut link = links.into_iter().next().context(self.device)?;
        for name in ["ifindex", "link_index", "link_netnsid"] {
            link.as_object_mut().context("a link")?.remove(name);
        }
        Ok(link)
    }

    /// Everything on the device of the node and its twin is equal; the two devices.
    fn equal_objects(&self, pair: &TwoNodes, twin: &Node) -> Result<[Value; 2]> {
        for peer in self.peers() {
            stock::tunnel_peer(twin, &peer)?;
        }
        let ours = (self.read)(&pair.a)?;
        assert_eq!((self.read)(twin)?.changes(&ours), "");
        for kind in ["address", "neighbour", "fdb", "route"] {
            assert!(!ours.matching(&[kind]).is_empty(), "{kind} in {ours:?}");
        }
        Ok([self.device(twin)?, self.device(&pair.a)?])
    }

    /// Starts the agent where stock left its device, the objects of one peer that is still there
    /// and of one that is gone. All are taken over in place, without duplicates or leftovers. The
    /// agent, and the state that is wanted.
    fn adopt(&self, pair: &TwoNodes) -> Result<(Agent, TunnelState)> {
        let [kept, left] = self.peers();
        pair.etcd.put_leases(std::slice::from_ref(&kept))?;
        stock::device(&pair.a, 85, self.own[0], self.mac)?;
        stock::tunnel_peer(&pair.a, &kept)?;
        let index = || {
            pair.a
                .sh(&format!("cat /sys/class/net/{}/ifindex", self.device))
                .map(|output| output.stdout)
        };
        let (wanted, device, index_before) =
            ((self.read)(&pair.a)?, self.device(&pair.a)?, index()?);
        stock::tunnel_peer(&pair.a, &left)?;
        let agent = ready_with_peers(pair, 1)?;
        let status = agent.status()?;
        let expected = (&self.subnet.into(), &self.mac.into());
        assert_eq!(
            (&status["lease"]["subnet"], &status["device"]["mac"]),
            expected
        );
        assert_eq!(wanted.changes(&(self.read)(&pair.a)?), "");
        assert_eq!(self.device(&pair.a)?, device);
        assert_eq!(index()?, index_before, "the same device");
        Ok((agent, wanted))
    }
}

fn ready_with_peers(pair: &TwoNodes, peers: usize) -> Result<Agent> {
    let agent = pair.a.ready_agent(pair.options()?)?;
    agent.wait_peers(peers)?;
    Ok(agent)
}

#[test]
fn tunnel_objects_equal_stocks() -> Result<()> {
    let (pair, twin) = IPV4.node_and_twin("shape", VXLAN)?;
    let [stocks, ours] = IPV4.equal_objects(&pair, &twin)?;
    assert_eq!(stocks, ours);
    Ok(())
}

/// One thing differs on purpose: the device takes packets without a checksum.
#[test]
fn ipv6_tunnel_objects_equal_stocks() -> Result<()> {
    let (pair, twin) = IPV6.node_and_twin("shape6", VXLAN)?;
    let [mut stocks, ours] = IPV6.equal_objects(&pair, &twin)?;
    let takes_no_checksum =
        |device: &Value| device["linkinfo"]["info_data"]["udp_zero_csum6_rx"].clone();
    assert_eq!(
        (takes_no_checksum(&stocks), takes_no_checksum(&ours)),
        (false.into(), true.into()),
        "{ours}"
    );
    stocks["linkinfo"]["info_data"]["udp_zero_csum6_rx"] = true.into();
    assert_eq!(stocks, ours);
    let accept_ra = "sysctl -n net.ipv6.conf.flannel-v6/1.accept_ra";
    assert_eq!(pair.a.sh(accept_ra)?.stdout, twin.sh(accept_ra)?.stdout);
    Ok(())
}

/// Direct routes differ only in their protocol: nothing else distinguishes them from an
/// administrator's.
#[test]
fn direct_routes_equal_stocks_except_for_their_protocol() -> Result<()> {
    let (pair, twin) = IPV4.node_and_twin("direct", DIRECT_ROUTING)?;
    let [near, far] = IPV4.peers();
    stock::direct_peer(&twin, &near)?;
    stock::tunnel_peer(&twin, &far)?;
    let [stocks, ours] = [TunnelState::of(&twin)?, TunnelState::of(&pair.a)?];
    let single_route = |state: &TunnelState| -> Result<String> {
        let routes = state.matching(&["route", "10.244.9.0/24"]);
        assert_eq!(routes.len(), 1, "{state:?}");
        Ok(routes[0].to_owned())
    };
    assert_eq!(
        single_route(&stocks)?.replace(r#""protocol":"boot""#, r#""protocol":"191""#),
        single_route(&ours)?
    );
    let changes = stocks.changes(&ours);
    assert_eq!(
        changes.lines().count(),
        2,
        "the direct route and nothing else:\n{changes}"
    );
    assert!(
        ours.matching(&["02:00:00:00:00:09"]).is_empty(),
        "no tunnel entry for a direct peer"
    );
    Ok(())
}

/// A node changes from stock flannel to the agent.
#[test]
fn what_stock_left_is_adopted() -> Result<()> {
    IPV4.adopt(&IPV4.node("adopt", VXLAN)?).map(drop)
}

/// The lease announces only what the device really accepts.
#[test]
fn an_ipv6_device_that_stock_left_is_adopted() -> Result<()> {
    let pair = IPV6.node("adopt6", VXLAN)?;
    let (_agent, wanted) = IPV6.adopt(&pair)?;
    let own = IPV6.own();
    assert_eq!(
        pair.etcd.get(&own.key())?,
        Some(own.value()),
        "it announces nothing that the device does not take"
    );
    pair.a.sh("ip link delete flannel-v6.1")?;
    eventually(
        "the announcement of the recreated device",
        Duration::from_secs(10),
        || {
            let value = pair.etcd.get(&own.key())?.context("our lease")?;
            ensure!(value.contains(r#""ZeroChecksumV6":true"#), "{value}");
            Ok(())
        },
    )?;
    assert_eq!(
        wanted.changes(&TunnelState::of_ipv6(&pair.a)?),
        "",
        "with everything on it"
    );
    Ok(())
}
