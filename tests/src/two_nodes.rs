//! Two nodes on one cable with etcd on the second: the smallest cluster.

use std::time::Duration;

use anyhow::Result;

use crate::{
    Agent, AgentOptions, Etcd, Lab, Node,
    cluster::CONFIG_KEY,
    eventually,
    topology::{Stack, Two},
};

/// The address of etcd, and of the node `b`.
pub const STORE: &str = "192.168.1.12";

/// Two nodes and etcd, without agents.
#[derive(Debug)]
pub struct TwoNodes {
    /// 192.168.1.11.
    pub a: Node,
    /// 192.168.1.12.
    pub b: Node,
    /// On `b`.
    pub etcd: Etcd,
    stack: Stack,
    /// Ends all of it.
    pub lab: Lab,
}

impl TwoNodes {
    /// With this network configuration in etcd.
    pub fn new(name: &str, config: &str) -> Result<Self> {
        Self::with(name, Stack::V4, config)
    }

    /// Without a network configuration.
    pub fn unconfigured(name: &str) -> Result<Self> {
        Self::on(name, Stack::V4)
    }

    /// On an underlay of these families, with this network configuration in etcd.
    pub fn with(name: &str, stack: Stack, config: &str) -> Result<Self> {
        let nodes = Self::on(name, stack)?;
        nodes.etcd.put(CONFIG_KEY, config, None)?;
        Ok(nodes)
    }

    /// With this network configuration in etcd, on cables that are tunnels themselves: packets come
    /// in with a sum over all of them (`CHECKSUM_COMPLETE`), as from some network cards.
    pub fn nested(name: &str, config: &str) -> Result<Self> {
        let nodes = Self::with(name, Stack::Dual, config)?;
        nest(&nodes.a, [11, 12])?;
        nest(&nodes.b, [12, 11])?;
        Ok(nodes)
    }

    fn on(name: &str, stack: Stack) -> Result<Self> {
        let lab = Lab::new(name)?;
        let net = Two::with(&lab, stack)?;
        let etcd = lab.etcd(&net.b)?;
        Ok(Self { a: net.a, b: net.b, etcd, stack, lab })
    }

    /// The usual options of an agent here.
    pub fn options(&self) -> Result<AgentOptions> {
        AgentOptions::etcd(&self.etcd.endpoint(if self.stack.has_v4() { STORE } else { "[2001:db8:1::12]" }))
    }

    /// A ready agent on each node, each with the other as its peer.
    pub fn agents(&self) -> Result<[Agent; 2]> {
        self.agents_with_peers(1)
    }

    /// A ready agent on each node, each with so many peers: the other, in every family.
    pub fn agents_with_peers(&self, peers: usize) -> Result<[Agent; 2]> {
        let agents = [self.a.agent(self.options()?)?, self.b.agent(self.options()?)?];
        for agent in &agents {
            agent.wait_ready()?;
        }
        for agent in &agents {
            agent.wait_peers(peers)?;
        }
        Ok(agents)
    }
}

/// Puts a tunnel of the kernel, with checksums, in place of a node's cable, with the cable's
/// addresses.
fn nest(node: &Node, [own, other]: [u8; 2]) -> Result<()> {
    node.sh("ip address flush dev eth0")?;
    node.sh("ip link set eth0 down")?;
    node.sh("ip link set eth0 name cable0")?;
    node.sh("ethtool -K cable0 tx off")?;
    node.address("cable0", &format!("172.31.0.{own}/24"), None)?;
    node.sh("ip link set cable0 up")?;
    let ends = format!("local 172.31.0.{own} remote 172.31.0.{other}");
    node.sh(&format!("ip link add eth0 type vxlan id 99 {ends} dstport 4790 dev cable0 udpcsum"))?;
    node.address("eth0", &format!("192.168.1.{own}/24"), None)?;
    node.sh("ip link set eth0 up")?;
    node.address("eth0", &format!("2001:db8:1::{own}/64"), None)
}

impl Agent {
    /// Waits until `status` shows so many peers.
    pub fn wait_peers(&self, count: usize) -> Result<()> {
        eventually(&format!("{count} peers of {}", self.node().name()), Duration::from_secs(20), || {
            let status = self.status()?;
            let peers = status["peers"].as_array().map_or(0, Vec::len);
            anyhow::ensure!(peers == count, "{peers} peers: {}", status["peers"]);
            Ok(())
        })
    }
}
