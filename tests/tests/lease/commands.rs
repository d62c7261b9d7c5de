//! `flannel-agent lease`: the leases of all nodes, seen and released by hand.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    TwoNodes, agent_binary,
    cluster::{LEASES, VXLAN},
    eventually,
};
use serde_json::Value;

#[test]
fn leases_are_listed_shown_and_released() -> Result<()> {
    let nodes = TwoNodes::new("lease-commands", VXLAN)?;
    let agents = [
        nodes.a.ready_agent(nodes.options()?)?,
        nodes.b.ready_agent(nodes.options()?)?,
    ];
    agents[0].wait_peers(1)?;
    let (binary, endpoint) = (agent_binary()?.display().to_string(), nodes.endpoint());
    let variable = format!("FLANNELD_ETCD_ENDPOINTS={endpoint}");
    // With the agents' variable, by a node whose own agent is not asked.
    let lease = |words: &[&str], code: i32| {
        nodes
            .b
            .command([&["env", &variable, &binary, "lease"], words].concat())
            .expect_code(code)
            .run()
    };
    let list = |code| -> Result<Value> {
        Ok(serde_json::from_str(
            &lease(&["list", "-o", "json"], code)?.stdout,
        )?)
    };
    let found = list(0)?;
    let leases = found["leases"].as_array().context("leases")?;
    ensure!(
        leases.len() == 2 && found["problems"] == Value::Array(Vec::new()),
        "{found:#}"
    );
    let of_b = leases
        .iter()
        .find(|lease| lease["public_addresses"][0] == "192.168.1.12")
        .context("the lease of b")?;
    ensure!(
        of_b["expires_in"]
            .as_u64()
            .is_some_and(|left| left > 80_000 && left <= 86_400),
        "{of_b}"
    );
    let subnet = of_b["subnets"][0].as_str().context("a subnet")?;
    let shown = lease(&["show", "192.168.1.12"], 0)?.stdout;
    let (_, value) = nodes
        .etcd
        .list(LEASES)?
        .into_iter()
        .find(|(key, _)| shown.contains(key))
        .context(shown.clone())?;
    ensure!(shown.contains(&value), "{shown}");

    // A copy of the first node, which left its lease behind.
    let own = nodes
        .etcd
        .list(LEASES)?
        .into_iter()
        .find(|(_, value)| value.contains("192.168.1.11"));
    let (_, value) = own.context("the lease of a")?;
    nodes
        .etcd
        .put(&format!("{LEASES}10.244.200.0-24"), &value, None)?;
    let twins = lease(&["list"], 1)?.stdout;
    ensure!(
        twins.contains("2 nodes have the public address 192.168.1.11"),
        "{twins}"
    );
    let refused = lease(&["release", "192.168.1.11"], 2)?.stderr;
    ensure!(refused.contains("name one by its subnet"), "{refused}");
    ensure!(
        lease(&["release", "10.244.200.0/24"], 0)?
            .stdout
            .contains("released 10.244.200.0/24"),
        "not released"
    );
    list(0)?;

    // A node that is gone.
    agents[1].sigterm_and_wait()?;
    lease(&["release", subnet], 0)?;
    eventually("the peers of a", Duration::from_secs(30), || {
        let status = agents[0].status()?;
        ensure!(
            status["peers"].as_array().is_some_and(Vec::is_empty),
            "{}",
            status["peers"]
        );
        Ok(())
    })?;
    let absent = lease(&["show", subnet], 2)?.stderr;
    ensure!(absent.contains("none of 1 lease is"), "{absent}");
    nodes.etcd.stop()?;
    let gone = lease(&["list"], 2)?.stderr;
    ensure!(gone.contains("etcd is not reachable"), "{gone}");
    Ok(())
}
