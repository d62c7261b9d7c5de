//! Two nodes with agents in mode `fast` and two pods on each, over both families.

use std::path::Path;

use anyhow::Result;
use flannel_common::abi::reason::Reason;
use flannel_datapath::{Maps, PinRoot};

use super::{FLAGS, Family, REPLAYING, until_replayed};
use crate::{
    Agent, Node, Pod, TwoNodes,
    agent::pins::ROOT,
    cluster::{config, nodes::ready_agents, topology::Stack},
};

/// The number of packets of a conversation that the programs must replay.
const REPLAYED: u64 = 200;

/// Prefix of the keys of the second cluster of [`FastLab::apart`].
const OTHER_PREFIX: &str = "/apart/network";

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
        Self::on(
            TwoNodes::with(name, Stack::Dual, &config(Stack::Dual, backend))?,
            flags,
        )
    }

    /// On these nodes, of both families.
    pub fn on(nodes: TwoNodes, flags: &[&str]) -> Result<Self> {
        let agents = ready_agents(
            [&nodes.a, &nodes.b],
            &nodes.options()?.flags(&FLAGS).with(flags),
        )?;
        Self::of_agents(nodes, agents)
    }

    /// With the backend alloc: the test makes the routes between the nodes, as a cloud or a router
    /// would.
    pub fn allocated(name: &str) -> Result<Self> {
        let nodes = TwoNodes::with(
            name,
            Stack::Dual,
            &config(Stack::Dual, r#"{"Type":"alloc"}"#),
        )?;
        let agents = ready_agents([&nodes.a, &nodes.b], &nodes.options()?.flags(&FLAGS))?;
        for (node, peer, number) in [(&nodes.a, &nodes.b, 12), (&nodes.b, &nodes.a, 11)] {
            for subnet in peer.subnet_env()?.subnets {
                let family = if subnet.addr().is_ipv4() {
                    Family::V4
                } else {
                    Family::V6
                };
                node.sh(&format!(
                    "ip route add {} via {}",
                    subnet.trunc(),
                    family.host(number)
                ))?;
            }
        }
        Self::of_agents(nodes, agents)
    }

    /// Two clusters of one node each, with routes between their pods: to the other, each pod is a
    /// host outside. The agents masquerade nothing; the first node masquerades IPv4, by ports that
    /// stay.
    pub fn apart(name: &str) -> Result<Self> {
        const BACKEND: &str = r#"{"Type":"vxlan"}"#;
        let nodes = TwoNodes::with(name, Stack::Dual, &config(Stack::Dual, BACKEND))?;
        let other = config(Stack::Dual, BACKEND)
            .replace("10.244.", "10.245.")
            .replace(":10:244", ":10:245");
        nodes
            .etcd
            .put(&format!("{OTHER_PREFIX}/config"), &other, None)?;
        let options = nodes.options()?.flag("--datapath=fast");
        let prefix = format!("--etcd-prefix={OTHER_PREFIX}");
        let agents = [
            nodes.a.agent(options.clone())?,
            nodes.b.agent(options.flag(&prefix))?,
        ];
        agents.iter().try_for_each(Agent::wait_ready)?;
        for (node, other, number) in [(&nodes.a, 245, 12), (&nodes.b, 244, 11)] {
            node.sh(&format!(
                "ip route add 10.{other}.0.0/16 via 192.168.1.{number}"
            ))?;
            node.sh(&format!(
                "ip -6 route add fd00:10:{other}::/48 via 2001:db8:1::{number}"
            ))?;
        }
        nodes.a.sh("nft add table ip natted")?;
        nodes
            .a
            .sh("nft add chain ip natted outside { type nat hook postrouting priority 100; }")?;
        nodes
            .a
            .sh("nft add rule ip natted outside ip saddr 10.244.0.0/16 oifname eth0 masquerade")?;
        Self::of_agents(nodes, agents)
    }

    fn of_agents(nodes: TwoNodes, agents: [Agent; 2]) -> Result<Self> {
        let (near, beside) = (nodes.a.add_pod("p1")?, nodes.a.add_pod("p2")?);
        let (far, other) = (nodes.b.add_pod("p1")?, nodes.b.add_pod("p2")?);
        let maps = |node: &Node| -> Result<Maps> {
            Ok(node.enter(|| Maps::open(&PinRoot::new(Path::new(ROOT))))??)
        };
        let maps = [maps(&nodes.a)?, maps(&nodes.b)?];
        let lab = Self {
            agents,
            near,
            beside,
            far,
            other,
            maps,
            nodes,
        };
        lab.wait_ready()?;
        Ok(lab)
    }

    /// Lets bridged packets pass netfilter, as Kubernetes requires. Waits until every pod takes
    /// part and the first one reaches the others.
    fn wait_ready(&self) -> Result<()> {
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
        [
            (a, &self.near),
            (a, &self.beside),
            (b, &self.far),
            (b, &self.other),
        ]
        .into_iter()
        .try_for_each(|(agent, pod)| agent.wait_pod(pod, true, true))
    }

    /// Puts both nodes in a mode.
    pub fn set_mode(&self, mode: &str) -> Result<()> {
        self.agents
            .iter()
            .try_for_each(|agent| agent.set_mode(mode))
    }

    /// Packets of known flows taken so far, on `a` and on `b`.
    pub fn replayed(&self) -> Result<[u64; 2]> {
        let on = |node: usize| -> Result<u64> {
            let stats = &self.maps[node].stats;
            REPLAYING
                .iter()
                .map(|from| Ok(stats.get(*from, Reason::Replayed)?.packets))
                .sum()
        };
        Ok([on(0)?, on(1)?])
    }

    /// Talks until packets were replayed on both nodes.
    pub fn until_replayed(&self, exchange: impl FnMut(u32) -> Result<()>) -> Result<()> {
        self.until_replayed_on([true; 2], exchange)
    }

    /// Talks until packets were replayed on these nodes (`a`, `b`).
    pub fn until_replayed_on(
        &self,
        on: [bool; 2],
        mut exchange: impl FnMut(u32) -> Result<()>,
    ) -> Result<()> {
        until_replayed(
            &self.agents,
            on,
            REPLAYED,
            || self.replayed(),
            || exchange(100),
        )
    }
}
