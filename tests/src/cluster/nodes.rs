//! Nodes with their store, before any agent: where the labs of all suites begin.

use std::{ops::Deref, time::Duration};

use anyhow::Result;

use crate::{
    Agent, AgentOptions, Etcd, Lab, Node,
    cluster::{
        etcd::CONFIG_KEY,
        topology::{Stack, Three, Topology, Two},
    },
    eventually,
};

/// The nodes of a topology, and etcd on one of them.
#[derive(Debug)]
pub struct Nodes<N> {
    /// The underlay.
    pub net: N,
    /// The store.
    pub etcd: Etcd,
    stack: Stack,
    /// Ends all of it.
    pub lab: Lab,
}

/// Two nodes on one cable with etcd on the second: the smallest cluster.
pub type TwoNodes = Nodes<Two>;
/// Three nodes on two segments, with etcd on the router.
pub type ThreeNodes = Nodes<Three>;

impl<N: Topology> Nodes<N> {
    /// With this network configuration in etcd.
    pub fn new(name: &str, config: &str) -> Result<Self> {
        Self::with(name, Stack::V4, config)
    }

    /// Without a network configuration.
    pub fn unconfigured(name: &str) -> Result<Self> {
        Self::on(Lab::new(name)?, Stack::V4)
    }

    /// On an underlay of these families, with this network configuration in etcd.
    pub fn with(name: &str, stack: Stack, config: &str) -> Result<Self> {
        let nodes = Self::on(Lab::new(name)?, stack)?;
        nodes.etcd.put(CONFIG_KEY, config, None)?;
        Ok(nodes)
    }

    fn on(lab: Lab, stack: Stack) -> Result<Self> {
        let net = N::with(&lab, stack)?;
        let etcd = lab.etcd(net.store())?;
        Ok(Self {
            net,
            etcd,
            stack,
            lab,
        })
    }

    /// The endpoint of etcd, as every node reaches it.
    pub fn endpoint(&self) -> String {
        let [v4, v6] = N::STORE;
        self.etcd
            .endpoint(if self.stack.has_v4() { v4 } else { v6 })
    }

    /// The usual options of an agent here.
    pub fn options(&self) -> Result<AgentOptions> {
        AgentOptions::etcd(&self.endpoint())
    }
}

impl<N> Deref for Nodes<N> {
    type Target = N;

    fn deref(&self) -> &N {
        &self.net
    }
}

impl TwoNodes {
    /// With this network configuration in etcd, on cables that are tunnels themselves: packets come
    /// in with a sum over all of them (`CHECKSUM_COMPLETE`), as from some network cards.
    pub fn nested(name: &str, config: &str) -> Result<Self> {
        let nodes = Self::with(name, Stack::Dual, config)?;
        nest(&nodes.a, [11, 12])?;
        nest(&nodes.b, [12, 11])?;
        Ok(nodes)
    }

    /// A ready agent on each node, each with the other as its peer.
    pub fn agents(&self) -> Result<[Agent; 2]> {
        self.agents_with_peers(1)
    }

    /// Starts an agent on each node and waits until each is ready and has `peers` peers: the other
    /// node, in every family.
    pub fn agents_with_peers(&self, peers: usize) -> Result<[Agent; 2]> {
        let agents = ready_agents([&self.a, &self.b], &self.options()?)?;
        agents
            .iter()
            .try_for_each(|agent| agent.wait_peers(peers))?;
        Ok(agents)
    }
}

/// Starts an agent on each of these nodes, all at once, and waits until each is ready.
pub fn ready_agents<const N: usize>(
    nodes: [&Node; N],
    options: &AgentOptions,
) -> Result<[Agent; N]> {
    let agents: Vec<_> = nodes
        .into_iter()
        .map(|node| node.agent(options.clone()))
        .collect::<Result<_>>()?;
    agents.iter().try_for_each(Agent::wait_ready)?;
    Ok(agents.try_into().expect("an agent for each node"))
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
    node.sh(&format!(
        "ip link add eth0 type vxlan id 99 {ends} dstport 4790 dev cable0 udpcsum"
    ))?;
    node.address("eth0", &format!("192.168.1.{own}/24"), None)?;
    node.sh("ip link set eth0 up")?;
    node.address("eth0", &format!("2001:db8:1::{own}/64"), None)
}

impl Agent {
    /// Waits until `status` shows `count` peers.
    pub fn wait_peers(&self, count: usize) -> Result<()> {
        eventually(
            &format!("{count} peers of {}", self.node().name()),
            Duration::from_secs(20),
            || {
                let status = self.status()?;
                let peers = status["peers"].as_array().map_or(0, Vec::len);
                anyhow::ensure!(peers == count, "{peers} peers: {}", status["peers"]);
                Ok(())
            },
        )
    }
}
