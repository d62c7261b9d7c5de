//! A whole cluster on the standard topology: etcd, an agent and two pods on each of three nodes.

use anyhow::{Context as _, Result};

use crate::{
    Agent, AgentOptions, Etcd, Lab, Pod,
    topology::{Stack, Three},
};

/// The key of the network configuration.
pub const CONFIG_KEY: &str = "/coreos.com/network/config";
/// The keys of the leases start with this.
pub const LEASES: &str = "/coreos.com/network/subnets/";

/// Network configuration with vxlan. `DirectRouting`: `a` and `b` reach each other without a
/// tunnel, `c` not.
pub const DIRECT_ROUTING: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","DirectRouting":true}}"#;
/// Network configuration with vxlan between all nodes.
pub const VXLAN: &str = r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}"#;

/// The backend that has plain routes and nothing else.
pub const HOST_GW: &str = r#"{"Type":"host-gw"}"#;

/// A network configuration for these families with the backend given as JSON: 10.244.0.0/16 and
/// fd00:10:244::/48.
pub fn config(stack: Stack, backend: &str) -> String {
    let v6 = if stack.has_v6() { r#""EnableIPv6":true,"IPv6Network":"fd00:10:244::/48","# } else { "" };
    let v4 = if stack.has_v4() { r#""Network":"10.244.0.0/16","# } else { r#""EnableIPv4":false,"# };
    format!(r#"{{{v4}{v6}"Backend":{backend}}}"#)
}

/// Starts etcd with a network configuration on the router of the topology.
pub fn store(lab: &Lab, net: &Three, config: &str) -> Result<Etcd> {
    let etcd = lab.etcd(&net.r)?;
    etcd.put(CONFIG_KEY, config, None)?;
    Ok(etcd)
}

/// Starts an agent on each node, all at once, and waits until each is ready.
pub fn agents(net: &Three, etcd: &Etcd) -> Result<[Agent; 3]> {
    let start = |node: &crate::Node| node.agent(AgentOptions::etcd(&net.endpoint(etcd))?);
    let agents = [start(&net.a)?, start(&net.b)?, start(&net.c)?];
    for agent in &agents {
        agent.wait_ready()?;
    }
    Ok(agents)
}

/// A cluster with a ready agent and a pod on each node.
#[derive(Debug)]
pub struct Cluster {
    /// The underlay.
    pub net: Three,
    /// The store, on the router.
    pub etcd: Etcd,
    /// The agents of `a`, `b` and `c`.
    pub agents: [Agent; 3],
    /// A pod of each.
    pub pods: [Pod; 3],
    // Last: the lab goes when its handles are of no use any more.
    /// The lab.
    pub lab: Lab,
}

impl Cluster {
    /// With these families and the backend given as JSON.
    pub fn new(name: &str, stack: Stack, backend: &str) -> Result<Self> {
        let lab = Lab::new(name)?;
        let net = Three::with(&lab, stack)?;
        let etcd = store(&lab, &net, &config(stack, backend))?;
        let agents = agents(&net, &etcd)?;
        let pods = [net.a.add_pod("p1")?, net.b.add_pod("p1")?, net.c.add_pod("p1")?];
        Ok(Self { net, etcd, agents, pods, lab })
    }

    /// Waits until every pod reaches every other by all addresses it has.
    pub fn wait_connected(&self) -> Result<()> {
        for from in &self.pods {
            for to in self.pods.iter().filter(|to| to.name() != from.name()) {
                to.addresses().iter().try_for_each(|address| from.wait_ping(*address))?;
            }
        }
        Ok(())
    }

    /// Puts every agent in a mode.
    pub fn set_mode(&self, mode: &str) -> Result<()> {
        self.agents.iter().try_for_each(|agent| agent.set_mode(mode))
    }
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
