//! Nodes `a` and `b` with an agent and a runtime each, over both families. The router stands for
//! everything outside the cluster.

use std::ops::Deref;

use anyhow::Result;
use flannel_tests::{
    Agent, Node, ThreeNodes,
    cluster::{config, nodes::ready_agents, topology::Stack},
    cni::{List, Runtime},
    fast::{Counters, FLAGS, until_replayed},
};

/// The minimum number of packets of a conversation that must be replayed.
const REPLAYED: u64 = 100;

/// The cluster.
pub(crate) struct World {
    /// Of `a` and of `b`.
    pub(crate) agents: [Agent; 2],
    counters: [Counters; 2],
    /// The manifest's list on each.
    pub(crate) lists: [List; 2],
    // Last: the lab goes when its handles are of no use any more.
    nodes: ThreeNodes,
}

impl Deref for World {
    type Target = ThreeNodes;

    fn deref(&self) -> &ThreeNodes {
        &self.nodes
    }
}

impl World {
    /// In mode `fast`, without pods.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let nodes = ThreeNodes::with(
            name,
            Stack::Dual,
            &config(Stack::Dual, r#"{"Type":"vxlan"}"#),
        )?;
        let lists = [list(&nodes.a)?, list(&nodes.b)?];
        let agents = ready_agents([&nodes.a, &nodes.b], &nodes.options()?.flags(&FLAGS))?;
        agents.iter().try_for_each(|agent| agent.wait_peers(2))?;
        let counters = [Counters::of(&agents[0])?, Counters::of(&agents[1])?];
        Ok(Self {
            agents,
            counters,
            lists,
            nodes,
        })
    }

    pub(crate) fn set_mode(&self, mode: &str) -> Result<()> {
        self.agents
            .iter()
            .try_for_each(|agent| agent.set_mode(mode))
    }

    /// Packets of known flows taken so far, on `a` and on `b`.
    pub(crate) fn replayed(&self) -> Result<[u64; 2]> {
        Ok([self.counters[0].replayed()?, self.counters[1].replayed()?])
    }

    /// Talks, in mode `fast` until packets were replayed on these nodes (`a`, `b`).
    pub(crate) fn carried(
        &self,
        mode: &str,
        by: [bool; 2],
        mut exchange: impl FnMut(u32) -> Result<()>,
    ) -> Result<()> {
        if mode != "fast" {
            return exchange(20);
        }
        until_replayed(
            &self.agents,
            by,
            REPLAYED,
            || self.replayed(),
            || exchange(50),
        )
    }
}

/// The manifest's list on a node that is ready for pods.
pub(crate) fn list(node: &Node) -> Result<List> {
    node.filter_bridged()?;
    List::shipped(&Runtime::on(node)?)
}
