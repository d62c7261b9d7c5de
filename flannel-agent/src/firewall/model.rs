//! The rules of a host as data: what both readers fill in and the judge reads.
//!
//! A rule keeps no more than decides about replayed packets: what it looks at that may differ
//! between them, and by what it is limited to packets that are never replayed. Both stand in the
//! order in which the kernel evaluates them, because a limit before a condition counts packets the
//! condition would have spared.

use std::collections::{BTreeMap, BTreeSet};

use super::catalogue::{Element, ElementFacts, ElementKind, Judgement};

/// Chains and rules of every table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    pub(super) chains: Vec<HostChain>,
    pub(super) rules: Vec<HostRule>,
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostChain {
    /// Family and table, such as `ip filter`.
    pub(super) table: String,
    pub(super) name: String,
    /// The hook that calls it; none for one that only other chains call.
    pub(super) hook: Option<ChainHook>,
}

/// The hook of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChainHook {
    /// `prerouting`, `input`, `forward`, `output`, `postrouting`, `ingress`, `egress`, `brouting`.
    pub(super) at: String,
    pub(super) nat: bool,
    pub(super) drops: bool,
    /// The devices of a chain that hangs on devices.
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
    /// It drops or rejects.
    pub(super) drops: bool,
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
    /// An extension whose options the reader is not shown.
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
        self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&port))
    }

    pub(super) fn match_port(&self, port: u16) -> bool {
        self.name(port) != self.negated
    }
}

impl HostRule {
    pub(super) fn new(table: &str, chain: &str) -> Self {
        Self { table: table.to_owned(), chain: chain.to_owned(), ..Self::default() }
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

    fn place(&self) -> (String, String) {
        (self.table.clone(), self.chain.clone())
    }

    /// True if a listing of `shown` rules can be one of a chain of `count` rules. nft shows the
    /// policy of ebtables' own chains as a rule at their end.
    fn corresponds(&self, shown: usize, count: usize) -> bool {
        shown == count || (self.table.starts_with("bridge ") && shown + 1 == count)
    }

    /// Rules of bridges keep what was seen of them, because ebtables-nft leaves limits out of its
    /// listing.
    fn reveal(&mut self, shown: &Self) {
        let mut parts = std::mem::take(&mut self.parts);
        parts.retain(|part| !part.is_hidden() && self.table.starts_with("bridge "));
        parts.extend(shown.parts.iter().cloned());
        *self = Self { parts, ..shown.clone() };
    }

    fn has_hidden(&self) -> bool {
        self.parts.iter().any(Part::is_hidden)
    }
}

impl Part {
    const fn is_hidden(&self) -> bool {
        matches!(self, Self::Hidden(_))
    }
}

impl Ruleset {
    pub(super) fn extend(&mut self, other: Self) {
        self.chains.extend(other.chains);
        self.rules.extend(other.rules);
    }

    /// Adds calls of what is no chain of the table as elements of this kind: extensions.
    pub(super) fn settle_targets(&mut self, kind: ElementKind) {
        let chains: BTreeSet<(&str, &str)> =
            self.chains.iter().map(|chain| (chain.table.as_str(), chain.name.as_str())).collect();
        for rule in &mut self.rules {
            let unknown = |target: &&String| !chains.contains(&(rule.table.as_str(), target.as_str()));
            let unknown: Vec<String> = rule.targets.iter().filter(unknown).cloned().collect();
            for target in unknown {
                rule.targets.remove(&target);
                rule.add(&Element::new(kind, &target, ElementFacts::Hidden));
            }
        }
    }

    /// The families of tables with extensions whose options are not known.
    pub(super) fn families_with_hidden(&self) -> BTreeSet<String> {
        let hidden = self.rules.iter().filter(|rule| rule.has_hidden());
        hidden.filter_map(|rule| rule.table.split(' ').next().map(str::to_owned)).collect()
    }

    /// Puts rules of `shown`, another listing of some of these tables, in the place of those with
    /// hidden options.
    ///
    /// Rules correspond by their place in a chain. Where the listings disagree about the number of
    /// rules, because they changed in between or one leaves some out, options stay hidden.
    pub(super) fn reveal(&mut self, shown: Self) {
        let mut chains: ByName<Vec<HostRule>> = ByName::new();
        for rule in shown.rules {
            chains.entry(rule.place()).or_default().push(rule);
        }
        let mut counts: ByName<usize> = ByName::new();
        for rule in &self.rules {
            *counts.entry(rule.place()).or_default() += 1;
        }
        let mut places: ByName<usize> = ByName::new();
        for rule in &mut self.rules {
            let place = places.entry(rule.place()).or_default();
            let count = counts.get(&rule.place()).copied().unwrap_or_default();
            let of_chain = chains.get(&rule.place()).filter(|rules| rule.corresponds(rules.len(), count));
            if let Some(shown) = of_chain.and_then(|rules| rules.get(*place)).filter(|_| rule.has_hidden()) {
                rule.reveal(shown);
            }
            *place += 1;
        }
    }
}

/// By table and name; names of sets begin with `@`.
pub(super) type ByName<T> = BTreeMap<(String, String), T>;
