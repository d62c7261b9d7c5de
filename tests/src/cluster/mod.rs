//! A whole cluster on the standard topology: etcd, and an agent and a pod on each of three nodes.

pub mod etcd;
pub mod link;
pub mod node;
pub mod nodes;
pub mod pair;
pub mod pod;
pub mod topology;

use std::ops::Deref;

use anyhow::Result;

use crate::{
    Agent, Pod, ThreeNodes,
    cluster::{nodes::ready_agents, topology::Stack},
    load::UdpLoad,
};

/// The keys of the leases start with this.
pub const LEASES: &str = "/coreos.com/network/subnets/";

/// Subnets that agents lease, of IPv4: 10.244.80.0/24 to 10.244.199.0/24. Tests give the other
/// subnets to their own peers.
macro_rules! v4 {
    () => {
        r#""Network":"10.244.0.0/16","SubnetMin":"10.244.80.0","SubnetMax":"10.244.199.0","#
    };
}
/// The same of IPv6: fd00:10:244:50::/64 to fd00:10:244:c7::/64.
macro_rules! v6 {
    () => {
        r#""EnableIPv6":true,"IPv6Network":"fd00:10:244::/48","IPv6SubnetMin":"fd00:10:244:50::","IPv6SubnetMax":"fd00:10:244:c7::","#
    };
}

/// Network configuration with vxlan. `DirectRouting`: `a` and `b` reach each other without a
/// tunnel, `c` not.
pub const DIRECT_ROUTING: &str = concat!(
    "{",
    v4!(),
    r#""Backend":{"Type":"vxlan","DirectRouting":true}}"#
);
/// Network configuration with vxlan between all nodes.
pub const VXLAN: &str = concat!("{", v4!(), r#""Backend":{"Type":"vxlan"}}"#);

/// The backend that has plain routes and nothing else.
pub const HOST_GW: &str = r#"{"Type":"host-gw"}"#;

/// A network configuration for these families with the backend given as JSON: 10.244.0.0/16 and
/// fd00:10:244::/48.
pub fn config(stack: Stack, backend: &str) -> String {
    let v6 = if stack.has_v6() { v6!() } else { "" };
    let v4 = if stack.has_v4() {
        v4!()
    } else {
        r#""EnableIPv4":false,"#
    };
    format!(r#"{{{v4}{v6}"Backend":{backend}}}"#)
}

/// A cluster with a ready agent and a pod on each node.
#[derive(Debug)]
pub struct Cluster {
    /// The agents of `a`, `b` and `c`.
    pub agents: [Agent; 3],
    /// A pod of each.
    pub pods: [Pod; 3],
    // Last: the lab goes when its handles are of no use any more.
    nodes: ThreeNodes,
}

impl Deref for Cluster {
    type Target = ThreeNodes;

    fn deref(&self) -> &ThreeNodes {
        &self.nodes
    }
}

impl Cluster {
    /// With these families and the backend given as JSON.
    pub fn new(name: &str, stack: Stack, backend: &str) -> Result<Self> {
        let nodes = ThreeNodes::with(name, stack, &config(stack, backend))?;
        let agents = ready_agents(nodes.net.nodes(), &nodes.options()?)?;
        let pods = [
            nodes.a.add_pod("p1")?,
            nodes.b.add_pod("p1")?,
            nodes.c.add_pod("p1")?,
        ];
        Ok(Self {
            agents,
            pods,
            nodes,
        })
    }

    /// Waits until every pod reaches every other by all addresses it has.
    pub fn wait_connected(&self) -> Result<()> {
        for from in &self.pods {
            for to in self.pods.iter().filter(|to| to.name() != from.name()) {
                to.addresses()
                    .iter()
                    .try_for_each(|address| from.wait_ping(*address))?;
            }
        }
        Ok(())
    }

    /// Kills the first node's agent, starts it, ends it and starts it again under a load from its
    /// pod to the third node's. No datagram may be lost, and new flows pass while it is away.
    pub fn expect_no_loss_by_restarts(&self, load: UdpLoad) -> Result<()> {
        let ([agent, ..], [near, _, far]) = (&self.agents, &self.pods);
        agent.expect_no_loss_by_restarts([near, far], load)
    }

    /// Puts every agent in a mode.
    pub fn set_mode(&self, mode: &str) -> Result<()> {
        self.agents
            .iter()
            .try_for_each(|agent| agent.set_mode(mode))
    }
}
