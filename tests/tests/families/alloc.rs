//! The backend alloc: a lease and `subnet.env`, and a kernel that is left alone.

use anyhow::{Result, ensure};
use flannel_tests::{StockEnd, StockNode, TwoNodes, cluster, cluster::LEASES, snapshot::Snapshot, topology::Stack};

#[test]
fn a_node_gets_subnets_and_nothing_in_the_kernel() -> Result<()> {
    let pair = TwoNodes::with("alloc", Stack::Dual, &cluster::config(Stack::Dual, r#"{"Type":"alloc"}"#))?;
    flannel_tests::pair::settle(&pair.a)?;
    let end = |address: &str| Some(StockEnd::host_gw(9, address));
    StockNode { v4: end("192.168.1.99"), v6: end("2001:db8:1::99") }.put(&pair.etcd)?;
    let before = Snapshot::of(&pair.a)?;
    let agent = pair.a.ready_agent(pair.options()?.flag("--iptables-forward-rules=false"))?;
    assert_eq!(before.changes(&Snapshot::of(&pair.a)?), "");
    let env = pair.a.subnet_env()?;
    assert_eq!((env.subnets.len(), env.mtu), (2, 1500));
    let status = agent.status()?;
    assert_eq!((&status["peers"], &status["rejected"]), (&serde_json::json!([]), &serde_json::json!([])), "{status}");
    let mode = &status["mode"];
    ensure!(mode["wanted"] == "kernel" && mode["effective"] == "kernel" && mode["reason"].is_null(), "{status}");
    assert_eq!(pair.etcd.list(LEASES)?.len(), 2);
    Ok(())
}
