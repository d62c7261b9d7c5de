//! The backend udp: a process between a TUN device and a UDP socket carries the packets.

mod errors;
mod paths;
mod process;
mod restart;
mod stock;
mod throughput;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent,
    cluster::{Cluster, topology::Stack},
    eventually,
};
use serde_json::Value;

/// The TUN device.
const DEVICE: &str = "flannel0";
const BACKEND: &str = r#"{"Type":"udp"}"#;

/// Three nodes, connected.
fn cluster(name: &str) -> Result<Cluster> {
    let cluster = Cluster::new(name, Stack::V4, BACKEND)?;
    cluster.wait_connected()?;
    cluster.lab.record_strays()?;
    Ok(cluster)
}

/// The process in the `status` of an agent.
fn tunnel(agent: &Agent) -> Result<Value> {
    let status = agent.status()?;
    ensure!(status["udp"].is_object(), "no tunnel process: {status}");
    Ok(status["udp"].clone())
}

/// The process id of the process of an agent.
fn pid(agent: &Agent) -> Result<u64> {
    tunnel(agent)?["pid"].as_u64().context("a process id")
}

/// A count of the process of an agent.
fn counted(agent: &Agent, what: &str) -> Result<u64> {
    tunnel(agent)?["counts"][what]
        .as_u64()
        .with_context(|| format!("the count {what}"))
}

/// Waits until another process than `former` carries the packets, and returns its process id.
fn wait_other(agent: &Agent, former: u64) -> Result<u64> {
    eventually("another process", Duration::from_secs(30), || {
        let pid = pid(agent)?;
        ensure!(pid != former, "it is still {former}");
        Ok(pid)
    })
}

/// The subnet of an agent, without its length.
fn base(agent: &Agent) -> Result<String> {
    let status = agent.status()?;
    let subnet = status["lease"]["subnet"].as_str().context("a subnet")?;
    Ok(subnet.split('/').next().context("an address")?.to_owned())
}
