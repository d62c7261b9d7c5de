//! The backend wireguard: encrypted tunnels between nodes that run flannel-agent.
//!
//! On a kernel without WireGuard, `wireguard-go` does its work, as it would on such a node.

mod change;
mod mode;
mod peers;
mod restart;
mod stock;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, Node,
    cluster::{Cluster, topology::Stack},
    eventually,
};
use serde_json::Value;

/// The devices by family.
const DEVICES: [&str; 2] = ["flannel-wg", "flannel-wg-v6"];

/// Three nodes with these families and settings of the backend, connected.
fn cluster(name: &str, stack: Stack, settings: &str) -> Result<Cluster> {
    let cluster = Cluster::new(name, stack, &format!(r#"{{"Type":"wireguard"{settings}}}"#))?;
    cluster.wait_connected()?;
    cluster.lab.record_strays()?;
    Ok(cluster)
}

/// Returns the first device in the `status` of an agent.
fn device(agent: &Agent) -> Result<Value> {
    let status = agent.status()?;
    ensure!(
        status["devices"][0]["wireguard"].is_object(),
        "no wireguard device: {}",
        status["devices"]
    );
    Ok(status["devices"][0].clone())
}

/// The public key of an agent.
fn key(agent: &Agent) -> Result<String> {
    Ok(device(agent)?["wireguard"]["public_key"]
        .as_str()
        .context("a public key")?
        .to_owned())
}

/// One column of `wg show DEVICE FIELD` on a node, by public key.
fn shown(node: &Node, device: &str, field: &str) -> Result<Vec<(String, String)>> {
    let text = node.sh(&format!("wg show {device} {field}"))?.stdout;
    let row = |line: &str| {
        line.split_once('\t')
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
    };
    Ok(text.lines().filter_map(row).collect())
}

/// Waits until a device has exactly these peers.
fn wait_peers(agent: &Agent, device: &str, keys: &[&str]) -> Result<()> {
    let mut wanted = keys.to_vec();
    wanted.sort_unstable();
    eventually(
        &format!("the peers of {device}"),
        Duration::from_mins(1),
        || {
            let mut found: Vec<_> = shown(agent.node(), device, "endpoints")?
                .into_iter()
                .map(|(key, _)| key)
                .collect();
            found.sort_unstable();
            ensure!(found == wanted, "{found:?}, not {wanted:?}");
            Ok(())
        },
    )
}
