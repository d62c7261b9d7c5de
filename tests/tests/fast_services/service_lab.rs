//! Two nodes with agents, two pods on each, and the rules of Services, for both families.

use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_agent::datapath::{Maps, PinRoot};
use flannel_common::{program::Program, reason::Reason};
use flannel_tests::{
    Agent, Node, Pod, TwoNodes,
    bare::Talk,
    cluster::config,
    eventually,
    fast::FLAGS,
    load::{datagrams::Datagrams, rr::Protocol},
    service_rules::{Backend, Service, ServiceRules},
    topology::Stack,
};

/// The port of a pod that is a backend.
pub(crate) const PORT: u16 = 8080;

/// How many packets of a conversation are to be replayed in mode `fast`.
const REPLAYED: u64 = 200;

/// Where agents pin.
const PINS: &str = "/sys/fs/bpf/flannel";

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const ALL: [Self; 2] = [Self::V4, Self::V6];

    pub(crate) fn of(self, pod: &Pod) -> Result<IpAddr> {
        match self {
            Self::V4 => Ok(pod.ip4()?.into()),
            Self::V6 => pod.ip6().with_context(|| format!("{} has no IPv6 address", pod.name())),
        }
    }

    /// A pod's end of a conversation.
    pub(crate) fn end(self, pod: &Pod) -> Result<SocketAddr> {
        Ok(SocketAddr::new(self.of(pod)?, PORT))
    }

    /// The address of the Service with this number.
    pub(crate) fn service(self, number: u16) -> SocketAddr {
        let address = match self {
            Self::V4 => format!("10.96.0.{number}"),
            Self::V6 => format!("fd00:96::{number}"),
        };
        SocketAddr::new(address.parse().expect("an address"), 80)
    }

    /// An address of the node `a` (11) or `b` (12).
    pub(crate) fn node(self, number: u16) -> IpAddr {
        let address = match self {
            Self::V4 => format!("192.168.1.{number}"),
            Self::V6 => format!("2001:db8:1::{number}"),
        };
        address.parse().expect("an address")
    }

    const fn pods(self) -> &'static str {
        match self {
            Self::V4 => "10.244.0.0/16",
            Self::V6 => "fd00:10:244::/48",
        }
    }
}

/// A TCP connection or messages of UDP.
#[derive(Debug)]
pub(crate) enum Conversation {
    Tcp(Talk),
    Udp(Datagrams),
}

impl Conversation {
    /// From a pod to `at`, an end of another one; `to` is where it is sent.
    pub(crate) fn open(protocol: Protocol, from: &Pod, to: SocketAddr, pod: &Pod, at: SocketAddr) -> Result<Self> {
        match protocol {
            Protocol::Tcp => Ok(Self::Tcp(Talk::open(from, pod, at, Some(to))?)),
            Protocol::Udp => Ok(Self::Udp(Datagrams::open(from, pod, at, Some(to))?)),
        }
    }

    pub(crate) fn exchange(&mut self, messages: u32) -> Result<()> {
        match self {
            Self::Tcp(talk) => talk.exchange(messages),
            Self::Udp(datagrams) => datagrams.exchange(messages),
        }
    }
}

pub(crate) struct ServiceLab {
    /// Of `a` and of `b`.
    pub(crate) agents: [Agent; 2],
    /// On `a`.
    pub(crate) near: Pod,
    /// On `a`, too.
    pub(crate) beside: Pod,
    /// On `b`.
    pub(crate) far: Pod,
    /// On `b`, too.
    pub(crate) other: Pod,
    pub(crate) backend: Backend,
    maps: [Maps; 2],
    rules: [[ServiceRules; 2]; 2],
    // Last: the lab goes when its handles are of no use any more.
    pub(crate) nodes: TwoNodes,
}

impl ServiceLab {
    pub(crate) fn new(name: &str, backend: Backend) -> Result<Self> {
        let nodes = TwoNodes::with(name, Stack::Dual, &config(Stack::Dual, r#"{"Type":"vxlan"}"#))?;
        let options =
            || Ok::<_, anyhow::Error>(FLAGS.iter().fold(nodes.options()?, |options, flag| options.flag(flag)));
        let agents = [nodes.a.agent(options()?)?, nodes.b.agent(options()?)?];
        agents.iter().try_for_each(Agent::wait_ready)?;
        let (near, beside) = (nodes.a.add_pod("p1")?, nodes.a.add_pod("p2")?);
        let (far, other) = (nodes.b.add_pod("p1")?, nodes.b.add_pod("p2")?);
        let rules = |node| -> Result<[ServiceRules; 2]> {
            let family = |family: Family| ServiceRules::install(node, backend, family.pods().parse()?);
            Ok([family(Family::V4)?, family(Family::V6)?])
        };
        let rules = [rules(&nodes.a)?, rules(&nodes.b)?];
        let maps = |node: &Node| -> Result<Maps> { Ok(node.enter(|| Maps::open(&PinRoot::new(Path::new(PINS))))??) };
        let maps = [maps(&nodes.a)?, maps(&nodes.b)?];
        let lab = Self { agents, near, beside, far, other, backend, maps, rules, nodes };
        lab.settle()?;
        Ok(lab)
    }

    /// What is bridged passes netfilter, as Kubernetes asks for; and every pod takes part and reaches the others.
    fn settle(&self) -> Result<()> {
        for agent in &self.agents {
            let node = agent.node();
            for key in ["iptables", "ip6tables"] {
                node.sh(&format!("sysctl -qw net.bridge.bridge-nf-call-{key}=1"))?;
            }
            // A pod reaches itself through its port of the bridge.
            node.sh("bridge link set dev vethp1 hairpin on")?;
        }
        for family in Family::ALL {
            self.near.wait_ping(family.of(&self.far)?)?;
            self.near.wait_ping(family.of(&self.beside)?)?;
            self.near.wait_ping(family.of(&self.other)?)?;
        }
        let [a, b] = &self.agents;
        [(a, &self.near), (a, &self.beside), (b, &self.far), (b, &self.other)]
            .into_iter()
            .try_for_each(|(agent, pod)| agent.wait_pod(pod, true, true))
    }

    pub(crate) fn set_services(&self, family: Family, services: &[Service]) -> Result<()> {
        self.rules.iter().try_for_each(|of_node| of_node[usize::from(family == Family::V6)].set(services))
    }

    pub(crate) fn set_mode(&self, mode: &str) -> Result<()> {
        self.agents.iter().try_for_each(|agent| agent.set_mode(mode))
    }

    /// Packets of known flows taken so far, on `a` and on `b`.
    pub(crate) fn replayed(&self) -> Result<[u64; 2]> {
        let on = |node: usize| -> Result<u64> {
            let stats = &self.maps[node].stats;
            let [sent, received] =
                [Program::FromPod, Program::FromUnderlay].map(|from| stats.get(from, Reason::Replayed));
            Ok(sent?.packets + received?.packets)
        };
        Ok([on(0)?, on(1)?])
    }

    /// Talks, in mode `fast` until packets were replayed on these nodes (`a`, `b`).
    pub(crate) fn carried(&self, mode: &str, by: [bool; 2], mut exchange: impl FnMut(u32) -> Result<()>) -> Result<()> {
        if mode != "fast" {
            return exchange(200);
        }
        let before = self.replayed()?;
        eventually("replayed packets", Duration::from_secs(15), || {
            // What does not come through is no matter of patience.
            if let Err(lost) = exchange(100) {
                return Ok(Err(lost));
            }
            let after = self.replayed()?;
            for node in 0..2 {
                let packets = after[node] - before[node];
                ensure!(!by[node] || packets >= REPLAYED, "{packets} on node {node}: {}", self.stats(node)?);
            }
            Ok(Ok(()))
        })?
    }

    fn stats(&self, node: usize) -> Result<String> {
        Ok(self.agents[node].cli(&["maps", "dump", "stats"])?.stdout)
    }
}
