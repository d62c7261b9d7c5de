//! The backend alloc: a lease and `subnet.env`, and no devices, routes or rules.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{
    StockEnd, StockNode, TwoNodes,
    agent::snapshot::Snapshot,
    cluster::{self, LEASES, topology::Stack},
    eventually,
};

#[test]
fn a_node_gets_subnets_and_no_devices_routes_or_rules() -> Result<()> {
    let pair = TwoNodes::with(
        "alloc",
        Stack::Dual,
        &cluster::config(Stack::Dual, r#"{"Type":"alloc"}"#),
    )?;
    cluster::pair::wait_dad(&pair.a)?;
    let end = |address: &str| Some(StockEnd::host_gw(9, address));
    StockNode {
        v4: end("192.168.1.99"),
        v6: end("2001:db8:1::99"),
    }
    .put(&pair.etcd)?;
    let before = Snapshot::of(&pair.a)?;
    let agent = pair
        .a
        .ready_agent(pair.options()?.flag("--iptables-forward-rules=false"))?;
    let mode = agent.status()?["mode"].clone();
    ensure!(
        mode["effective"] == "fast" && mode["source"] == "default",
        "{mode}"
    );
    agent.set_mode("kernel")?;
    eventually(
        "a kernel with nothing but pins",
        Duration::from_secs(10),
        || {
            let changes = before.changes(&Snapshot::of(&pair.a)?);
            let others: Vec<&str> = changes
                .lines()
                .filter(|line| !line.starts_with("+ bpffs: /flannel"))
                .collect();
            ensure!(others.is_empty(), "{others:#?}");
            Ok(())
        },
    )?;
    let env = pair.a.subnet_env()?;
    assert_eq!((env.subnets.len(), env.mtu), (2, 1500));
    let status = agent.status()?;
    assert_eq!(
        (&status["peers"], &status["rejected"]),
        (&serde_json::json!([]), &serde_json::json!([])),
        "{status}"
    );
    assert_eq!(pair.etcd.list(LEASES)?.len(), 2);
    Ok(())
}
