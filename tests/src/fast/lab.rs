//! Two nodes with agents in mode `fast` and two pods on each, over both families.

use std::path::Path;

use anyhow::Result;
use flannel_agent::datapath::{Maps, PinRoot};
use flannel_common::reason::Reason;

use super::{FLAGS, Family, REPLAYING, until_replayed};
use crate::{Agent, Node, Pod, TwoNodes, cluster::config, nodes::ready_agents, topology::Stack};

/// The number of packets of a conversation that are to be replayed.
const REPLAYED: u64 = 200;

/// The agents' pin root.
const PINS: &str = "/sys/fs/bpf/flannel";

/// The lab.
pub struct FastLab {
    /// Of `a` and of `b`.
    pub agents: [Agent; 2],
    /// On `a`.
    pub near: Pod,
    /// On `a`, too.
    pub beside: Pod,
    /// On `b`.
    pub far: Pod,
    /// On `b`, too.
    pub other: Pod,
    /// The maps of the programs of `a` and `b`.
    pub maps: [Maps; 2],
    // Last: the lab goes when its handles are of no use any more.
    /// The nodes.
    pub nodes: TwoNodes,
}

impl FastLab {
    /// With vxlan, and with more flags for both agents.
    pub fn new(name: &str, flags: &[&str]) -> Result<Self> {
        Self::of(name, r#"{"Type":"vxlan"}"#, flags)
    }

    /// With the backend given as JSON.
    pub fn of(name: &str, backend: &str, flags: &[&str]) -> Result<Self> {
        Self::on(TwoNodes::with(name, Stack::Dual, &config(Stack::Dual, backend))?, flags)
    }

    /// On these nodes, of both families.
    pub fn on(nodes: TwoNodes, flags: &[&str]) -> Result<Self> {
        let agents = ready_agents([&nodes.a, &nodes.b], &nodes.options()?.flags(&FLAGS).with(flags))?;
        let (near, beside) = (nodes.a.add_pod("p1")?, nodes.a.add_pod("p2")?);
        let (far, other) = (nodes.b.add_pod("p1")?, nodes.b.add_pod("p2")?);
        let maps = |node: &Node| -> Result<Maps> { Ok(node.enter(|| Maps::open(&PinRoot::new(Path::new(PINS))))??) };
        let maps = [maps(&nodes.a)?, maps(&nodes.b)?];
        let lab = Self { agents, near, beside, far, other, maps, nodes };
        lab.settle()?;
        Ok(lab)
    }

    /// Lets bridged packets pass netfilter, as Kubernetes requires. Waits until every pod takes
    /// part and the first one reaches the others.
    fn settle(&self) -> Result<()> {
        for agent in &self.agents {
            let node = agent.node();
            node.filter_bridged()?;
            // A pod reaches itself through its port of the bridge.
            node.sh("bridge link set dev vethp1 hairpin on")?;
        }
        for family in Family::ALL {
            for pod in [&self.far, &self.beside, &self.other] {
                self.near.wait_ping(family.of(pod)?)?;
            }
        }
        let [a, b] = &self.agents;
        [(a, &self.near), (a, &self.beside), (b, &self.far), (b, &self.other)]
            .into_iter()
            .try_for_each(|(agent, pod)| agent.wait_pod(pod, true, true))
    }

    /// Puts both nodes in a mode.
    pub fn set_mode(&self, mode: &str) -> Result<()> {
        self.agents.iter().try_for_each(|agent| agent.set_mode(mode))
    }

    /// Packets of known flows taken so far, on `a` and on `b`.
    pub fn replayed(&self) -> Result<[u64; 2]> {
        let on = |node: usize| -> Result<u64> {
            let stats = &self.maps[node].stats;
            REPLAYING.iter().map(|from| Ok(stats.get(*from, Reason::Replayed)?.packets)).sum()
        };
        Ok([on(0)?, on(1)?])
    }

    /// Talks until packets were replayed on both nodes.
    pub fn until_replayed(&self, exchange: impl FnMut(u32) -> Result<()>) -> Result<()> {
        self.until_replayed_on([true; 2], exchange)
    }

    /// Talks until packets were replayed on these nodes (`a`, `b`).
    pub fn until_replayed_on(&self, on: [bool; 2], mut exchange: impl FnMut(u32) -> Result<()>) -> Result<()> {
        until_replayed(&self.agents, on, REPLAYED, || self.replayed(), || exchange(100))
    }
}
