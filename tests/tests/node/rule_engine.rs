//! Nodes of one cluster with other tools: each keeps its traffic rules with what it has.

use anyhow::{Result, ensure};
use flannel_tests::{
    TwoNodes,
    cluster::{VXLAN, nodes::ready_agents},
};

#[test]
fn a_node_without_iptables_is_ready_carries_and_masquerades() -> Result<()> {
    let nodes = TwoNodes::new("rule-engine", VXLAN)?;
    for tool in ["xtables-nft-multi", "xtables-legacy-multi"] {
        // Not executable, so not found.
        nodes
            .a
            .sh(&format!("mount --bind /dev/null /usr/sbin/{tool}"))?;
    }
    let [without, with] = ready_agents([&nodes.a, &nodes.b], &nodes.options()?.flag("--ip-masq"))?;
    let (near, far) = (nodes.a.add_pod("p1")?, nodes.b.add_pod("p1")?);
    near.wait_ping(far.ip())?;
    far.wait_ping(near.ip())?;
    let traffic =
        |agent: &flannel_tests::Agent| Ok::<_, anyhow::Error>(agent.status()?["traffic"].clone());
    let (without, with) = (traffic(&without)?, traffic(&with)?);
    ensure!(
        without["engine"] == "nftables" && without["error"].is_null(),
        "{without}"
    );
    ensure!(
        without["engine_reason"] == "iptables is not installed",
        "{without}"
    );
    ensure!(
        with["engine"]
            .as_str()
            .is_some_and(|engine| engine.starts_with("iptables")),
        "{with}"
    );
    ensure!(with["engine_reason"].is_null(), "{with}");
    let rules = nodes.a.sh("nft list table ip flannel-ipv4")?.stdout;
    ensure!(rules.contains("masquerade"), "{rules}");
    Ok(())
}
