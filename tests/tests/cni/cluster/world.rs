//! Nodes `a` and `b` with an agent and a runtime each, over both families. The router stands for
//! everything outside the cluster.

use std::{net::IpAddr, time::Duration};

use anyhow::{Result, ensure};
use flannel_tests::{
    Agent, AgentOptions, Etcd, Lab, Node,
    cluster::{self, config},
    cni::{List, Runtime},
    eventually,
    fast::{Counters, FLAGS, Family},
    topology::{Stack, Three},
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
    pub(crate) etcd: Etcd,
    pub(crate) net: Three,
    // Last: the lab goes when its handles are of no use any more.
    pub(crate) lab: Lab,
}

impl World {
    /// In mode `fast`, without pods.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let lab = Lab::new(name)?;
        let net = Three::with(&lab, Stack::Dual)?;
        let etcd = cluster::store(&lab, &net, &config(Stack::Dual, r#"{"Type":"vxlan"}"#))?;
        let lists = [list(&net.a)?, list(&net.b)?];
        let agents = [net.a.agent(options(&net, &etcd)?)?, net.b.agent(options(&net, &etcd)?)?];
        for agent in &agents {
            agent.wait_ready()?;
            agent.wait_peers(2)?;
        }
        let counters = [Counters::of(&agents[0])?, Counters::of(&agents[1])?];
        Ok(Self { agents, counters, lists, etcd, net, lab })
    }

    pub(crate) fn set_mode(&self, mode: &str) -> Result<()> {
        self.agents.iter().try_for_each(|agent| agent.set_mode(mode))
    }

    /// Packets of known flows taken so far, on `a` and on `b`.
    pub(crate) fn replayed(&self) -> Result<[u64; 2]> {
        Ok([self.counters[0].replayed()?, self.counters[1].replayed()?])
    }

    /// Talks, in mode `fast` until packets were replayed on these nodes (`a`, `b`).
    pub(crate) fn carried(&self, mode: &str, by: [bool; 2], mut exchange: impl FnMut(u32) -> Result<()>) -> Result<()> {
        if mode != "fast" {
            return exchange(20);
        }
        let before = self.replayed()?;
        eventually("replayed packets", Duration::from_secs(15), || {
            // What does not come through is no matter of patience.
            if let Err(lost) = exchange(50) {
                return Ok(Err(lost));
            }
            let after = self.replayed()?;
            for node in 0..2 {
                let packets = after[node] - before[node];
                let stats = || self.agents[node].cli(&["maps", "dump", "stats"]);
                ensure!(!by[node] || packets >= REPLAYED, "{packets} on node {node}: {}", stats()?.stdout);
            }
            Ok(Ok(()))
        })?
    }
}

/// The usual agent in mode `fast`.
pub(crate) fn options(net: &Three, etcd: &Etcd) -> Result<AgentOptions> {
    let options = AgentOptions::etcd(&net.endpoint(etcd))?;
    Ok(FLAGS.iter().fold(options, |options, flag| options.flag(flag)))
}

/// The manifest's list on a node that is ready for pods.
pub(crate) fn list(node: &Node) -> Result<List> {
    node.filter_bridged()?;
    List::shipped(&Runtime::on(node)?)
}

/// The address of the router (1), of `a` (11) or of `b` (12).
pub(crate) fn host(family: Family, number: u8) -> IpAddr {
    let address = match family {
        Family::V4 => format!("192.168.1.{number}"),
        Family::V6 => format!("2001:db8:1::{number}"),
    };
    address.parse().expect("an address")
}
