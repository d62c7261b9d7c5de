//! The rules of a host as data: what the readers fill in and the judge reads.
//!
//! A rule is judged when it is read, and only the sum of a chain is kept: a host may have tens of
//! thousands of rules. The parts of a rule are in the order in which the kernel evaluates them,
//! because a limit before a condition counts packets that the condition would have spared.

use std::collections::{BTreeMap, BTreeSet};

use super::catalogue::{Element, Judgement};

/// Chains of every table that was read, with the sum of their rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruleset {
    pub(super) chains: BTreeMap<ChainName, Chain>,
    /// The packets whose rules are judged.
    pub(super) traffic: Vec<Traffic>,
    /// The port of the tunnel.
    pub(super) port: Option<u16>,
}

/// Packets that pass the hooks; those of the tunnel with its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Traffic {
    Pods,
    Received(u16),
    Sent(u16),
}

/// Family and table, such as `ip filter`, and the name of a chain.
pub(super) type ChainName = (String, String);

/// A chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chain {
    /// The hook that calls it; `None` for a chain that only other chains call.
    pub(super) hook: Option<ChainHook>,
    /// The rules as they judge packets of each kind.
    pub(super) sums: BTreeMap<Traffic, Sum>,
    /// The chains that any rule leads to.
    pub(super) targets: BTreeSet<String>,
    /// True if a rule names the port of the tunnel.
    pub(super) names_port: bool,
    /// True if such a rule drops.
    pub(super) drops_at_port: bool,
    /// The rules for all packets.
    pub(super) for_all: ForAll,
}

/// The rules of a chain for all packets, up to the first that may accept some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ForAll {
    /// True behind a rule that may have accepted some packets, or led them elsewhere.
    pub(super) is_over: bool,
    /// The chains that all packets get to from here.
    pub(super) targets: BTreeSet<String>,
    /// True if a rule drops all packets.
    pub(super) drops: bool,
}

/// The rules of a chain as they judge packets of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    /// The elements that may differ between packets of a flow.
    pub(super) labels: BTreeSet<String>,
    /// The chains that such packets get to.
    pub(super) targets: BTreeSet<String>,
}

/// The hook of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChainHook {
    /// `prerouting`, `input`, `forward`, `output`, `postrouting`, `ingress`, `egress`, `brouting`.
    pub(super) at: String,
    pub(super) nat: bool,
    pub(super) drops: bool,
    /// The devices of a chain of devices.
    pub(super) devices: Vec<String>,
}

/// A rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HostRule {
    pub(super) table: String,
    pub(super) chain: String,
    pub(super) parts: Vec<Part>,
    /// Chains it leads to.
    pub(super) targets: BTreeSet<String>,
    /// True if it drops or rejects.
    pub(super) drops: bool,
    /// True if it accepts.
    pub(super) accepts: bool,
    /// True if it is for all packets that get to it.
    pub(super) is_for_all: bool,
}

/// A part of a rule that decides about replayed packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The rule goes on for these packets only.
    Only(Packets),
    /// Something that may differ between packets of one flow.
    PerPacket(String),
    /// The same for packets of one flow, and different for tunnel packets to one peer.
    PerTunnelPacket(String),
    /// An extension whose options are not known.
    Hidden(String),
}

/// Packets a rule is limited to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Packets {
    /// Those of these protocols, of all others, or of neither.
    Protocols { tcp: bool, udp: bool },
    /// Those that always take the kernel's path.
    KernelPath,
    /// Those of connections that conntrack saw no reply of.
    NewConnections,
    /// Those to these ports, or to all others.
    Ports(Ports),
    /// Those from these ports, or from all others.
    SourcePorts(Ports),
}

/// Ports that a rule names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ports {
    /// First and last.
    pub(super) ranges: Vec<(u16, u16)>,
    pub(super) negated: bool,
}

impl Ports {
    /// True if the rule names the port, negated or not.
    pub(super) fn name(&self, port: u16) -> bool {
        self.ranges
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&port))
    }

    pub(super) fn match_port(&self, port: u16) -> bool {
        self.name(port) != self.negated
    }
}

impl HostRule {
    pub(super) fn new(table: &str, chain: &str) -> Self {
        Self {
            table: table.to_owned(),
            chain: chain.to_owned(),
            ..Self::default()
        }
    }

    /// Adds what the catalogue says of an element.
    pub(super) fn add(&mut self, element: &Element<'_>) {
        let part = match element.verdict() {
            Judgement::Exact => return,
            Judgement::KernelPath => Part::Only(Packets::KernelPath),
            Judgement::NewConnections => Part::Only(Packets::NewConnections),
            Judgement::PerPacket(label) => Part::PerPacket(label),
            Judgement::PerTunnelPacket(label) => Part::PerTunnelPacket(label),
            Judgement::Hidden(label) => Part::Hidden(label),
        };
        self.parts.push(part);
    }

    pub(super) fn limit_to(&mut self, packets: Packets) {
        self.parts.push(Part::Only(packets));
    }
}

impl Ruleset {
    /// An empty set, for a tunnel at this port.
    pub(super) fn new(port: Option<u16>) -> Self {
        let tunnel = port
            .into_iter()
            .flat_map(|port| [Traffic::Received(port), Traffic::Sent(port)]);
        let traffic = [Traffic::Pods].into_iter().chain(tunnel).collect();
        Self {
            chains: BTreeMap::new(),
            traffic,
            port,
        }
    }

    /// Adds a chain, with or without a hook. Does not change a chain that is known.
    pub(super) fn add_chain(&mut self, table: &str, name: &str, hook: Option<ChainHook>) {
        let chain = self
            .chains
            .entry((table.to_owned(), name.to_owned()))
            .or_default();
        chain.hook = chain.hook.take().or(hook);
    }
}
