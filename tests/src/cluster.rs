//! A whole cluster on the standard topology: etcd, an agent and two pods on each of three nodes.

use anyhow::{Context as _, Result};

use crate::{
    Agent, AgentOptions, Etcd, Lab, Pod,
    topology::{ROUTER, Three},
};

/// The key of the network configuration.
pub const CONFIG_KEY: &str = "/coreos.com/network/config";
/// The keys of the leases start with this.
pub const LEASES: &str = "/coreos.com/network/subnets/";

/// Network configuration with vxlan. `DirectRouting`: `a` and `b` reach each other without a tunnel, `c` not.
pub const DIRECT_ROUTING: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","DirectRouting":true}}"#;
/// Network configuration with vxlan between all nodes.
pub const VXLAN: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#;

/// Starts etcd with a network configuration on the router of the topology.
pub fn store(lab: &Lab, net: &Three, config: &str) -> Result<Etcd> {
    let etcd = lab.etcd(&net.r)?;
    etcd.put(CONFIG_KEY, config, None)?;
    Ok(etcd)
}

/// Starts an agent on each node, all at once, and waits until each is ready.
pub fn agents(net: &Three, etcd: &Etcd) -> Result<[Agent; 3]> {
    let start = |node: &crate::Node| node.agent(AgentOptions::etcd(&etcd.endpoint(ROUTER))?);
    let agents = [start(&net.a)?, start(&net.b)?, start(&net.c)?];
    for agent in &agents {
        agent.wait_ready()?;
    }
    Ok(agents)
}

/// Two pods on each node: `a-p1`, `a-p2`, `b-p1`, and so on.
pub fn pods(net: &Three) -> Result<Vec<Pod>> {
    let mut pods = Vec::new();
    for node in net.nodes() {
        for name in ["p1", "p2"] {
            pods.push(node.add_pod(name).with_context(|| format!("pod {name} on {}", node.name()))?);
        }
    }
    Ok(pods)
}
