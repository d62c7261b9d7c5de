//! One cluster of nodes that differ: stock nodes with IPv6, and nodes that lack a family.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    Mixed, StockNode, TwoNodes,
    cluster::{self, LEASES, topology::Stack},
    load::udp_stream,
    stock::mixed::STOCK_IPV6,
};

use super::VXLAN;

/// A stock device refuses UDP over IPv6 without a checksum, so the kernel has to send to it in
/// every mode.
#[test]
fn a_stock_node_gets_its_packets_from_the_kernel() -> Result<()> {
    let Mixed {
        agent,
        ours,
        stocks,
        nodes: _nodes,
    } = Mixed::new("mixed6", Stack::V6, &[])?;
    for mode in ["kernel", "encap"] {
        agent.set_mode(mode)?;
        ours.wait_ping(stocks.ip())?;
        stocks.wait_ping(ours.ip())?;
        for (from, to) in [(&ours, &stocks), (&stocks, &ours)] {
            let report = udp_stream(from, to, 1000, Duration::from_secs(1))?;
            assert_eq!(
                (report.lost_count(), report.duplicated),
                (0, 0),
                "{mode}: {report:?}"
            );
        }
        assert_eq!(
            agent.counted("to_tunnel", "encapsulated")?,
            0,
            "mode {mode}"
        );
    }
    let peer = agent.peer_status(STOCK_IPV6)?;
    assert_eq!(peer["way"], "kernel", "{peer}");
    let reason = "the node does not announce that it takes UDP over IPv6 without a checksum";
    assert_eq!(peer["reason"], reason, "{peer}");
    Ok(())
}

/// Each family of a peer stands for itself.
#[test]
fn a_node_with_both_families_uses_what_each_peer_has() -> Result<()> {
    let config = cluster::config(Stack::Dual, VXLAN);
    let pair = TwoNodes::with("lacking", Stack::Dual, &config)?;
    let only_v4 = StockNode::vxlan(21, "192.168.1.21", "02:00:00:00:04:21");
    let only_v6 = StockNode::vxlan(22, "2001:db8:1::22", "02:00:00:00:06:22");
    only_v4.put(&pair.etcd)?;
    only_v6.put(&pair.etcd)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    agent.wait_peers(2)?;
    let routes = |family| -> Result<Vec<String>> {
        let network = if family == "-4" {
            "10.244.0.0/16"
        } else {
            "fd00:10:244::/48"
        };
        let routes: Vec<serde_json::Value> = pair
            .a
            .json(&["ip", "-j", family, "route", "show", "root", network])?;
        let tunnelled = routes.iter().filter(|route| route["gateway"].is_string());
        Ok(tunnelled
            .map(|route| route["dst"].as_str().unwrap_or_default().to_owned())
            .collect())
    };
    assert_eq!(routes("-4")?, ["10.244.21.0/24"]);
    assert_eq!(routes("-6")?, ["fd00:10:244:16::/64"]);
    let status = agent.status()?;
    assert_eq!(status["rejected"], serde_json::json!([]), "{status}");
    ensure!(pair.etcd.list(LEASES)?.len() == 3);
    Ok(())
}

/// A network too large for the peer map in one family leaves the other family to the programs.
#[test]
fn a_network_too_large_for_the_programs_is_the_kernels_and_the_other_family_is_not() -> Result<()> {
    let config = r#"{"EnableIPv6":true,"Network":"10.244.0.0/16","IPv6Network":"fd00:10::/32","IPv6SubnetLen":64,"Backend":{"Type":"vxlan"}}"#;
    let pair = TwoNodes::with("large6", Stack::Dual, config)?;
    let agents = pair.agents_with_peers(2)?;
    let (near, far) = (pair.a.add_pod("p1")?, pair.b.add_pod("p1")?);
    let agent = &agents[0];
    for (address, way) in far.addresses().iter().zip(["tunnel", "kernel"]) {
        let encapsulated = || agent.counted("to_tunnel", "encapsulated");
        let before = encapsulated()?;
        // The first packet shows the path.
        near.wait_ping(*address)?;
        near.ping(*address)?;
        assert_eq!(encapsulated()? > before, way == "tunnel", "{address}");
        let peer = agent.peer_status(if address.is_ipv4() {
            "192.168.1.12"
        } else {
            "2001:db8:1::12"
        })?;
        assert_eq!(peer["way"], way, "{peer}");
    }
    let reason = agent.peer_status("2001:db8:1::12")?["reason"].clone();
    assert_eq!(
        reason,
        "its network has 4294967296 subnets; the peer map holds 131072 at most"
    );
    Ok(())
}
