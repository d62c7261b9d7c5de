//! The meaning of the rules for pods' packets, and for the tunnel's. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::model::{ChainHook, HostChain, HostRule, Packets, Part, Ruleset};

/// The hooks pods' packets pass on their way through the host.
const FORWARDED: [&str; 4] = ["ingress", "prerouting", "forward", "postrouting"];
/// Those tunnel packets pass as they come.
const RECEIVED: [&str; 2] = ["prerouting", "input"];
/// And as they leave.
const SENT: [&str; 2] = ["output", "postrouting"];
/// Those tunnel packets pass, on whatever device.
const OUTER: [&str; 6] = ["prerouting", "input", "output", "postrouting", "ingress", "egress"];
/// Ports below this are never a tunnel packet's source.
const FIRST_SOURCE_PORT: u16 = 1024;

/// Rules of one chain that look at single packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerPacket {
    /// Family, table and chain, and the devices it hangs on.
    pub chain: String,
    /// The elements they look at in packets of pods, each once.
    pub pods: BTreeSet<String>,
    /// The same for tunnel packets that come.
    pub received: BTreeSet<String>,
    /// The same for tunnel packets that leave.
    pub sent: BTreeSet<String>,
}

impl PerPacket {
    /// True if mode `encap`, too, hides packets from them.
    pub fn concerns_encap(&self) -> bool {
        !self.sent.is_empty()
    }

    fn of(&mut self, packets: Seen) -> &mut BTreeSet<String> {
        match packets {
            Seen::Pods => &mut self.pods,
            Seen::Received(_) => &mut self.received,
            Seen::Sent(_) => &mut self.sent,
        }
    }
}

impl fmt::Display for PerPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |labels: &mut dyn Iterator<Item = &String>| labels.cloned().collect::<Vec<_>>().join(", ");
        let tunnel: BTreeSet<&String> = self.received.union(&self.sent).collect();
        let more = join(&mut tunnel.iter().copied().filter(|label| !self.pods.contains(*label)));
        f.write_str(&self.chain)?;
        if !self.pods.is_empty() {
            write!(f, " ({})", join(&mut self.pods.iter()))?;
        }
        match (more.is_empty(), self.pods.is_empty()) {
            (true, _) => Ok(()),
            (false, true) => write!(f, " ({more}) for tunnel packets"),
            (false, false) => write!(f, " and ({more}) for tunnel packets"),
        }
    }
}

/// Packets that pass the hooks; those of the tunnel with its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Pods,
    Received(u16),
    Sent(u16),
}

impl Seen {
    /// Tunnel packets pass chains of bridges and devices too; elements there are named once, as
    /// those of pods.
    fn pass(self, table: &str, hook: &ChainHook) -> bool {
        if hook.nat || table.starts_with("arp ") {
            return false;
        }
        let on_device = table.starts_with("bridge ") || table.starts_with("netdev ");
        let is_at = |hooks: &[&str]| hooks.contains(&hook.at.as_str());
        match self {
            Self::Pods => on_device || is_at(&FORWARDED),
            Self::Received(_) => !on_device && is_at(&RECEIVED),
            Self::Sent(_) => !on_device && is_at(&SENT),
        }
    }
}

/// A walk along the parts of a rule.
struct Walk {
    packets: Seen,
    tcp: bool,
    udp: bool,
    labels: Vec<String>,
}

impl Walk {
    /// Returns the elements that look at these packets one by one; and true if any packet gets to
    /// the end of the rule.
    fn through(rule: &HostRule, packets: Seen) -> (Vec<String>, bool) {
        let mut walk = Self { packets, tcp: true, udp: true, labels: Vec::new() };
        let passes = rule.parts.iter().all(|part| walk.passes(part));
        (walk.labels, passes)
    }

    fn passes(&mut self, part: &Part) -> bool {
        match part {
            Part::Only(packets) => return self.are_among(packets),
            Part::PerPacket(label) => self.labels.push(label.clone()),
            Part::Hidden(label) => self.labels.push(format!("{label} with unknown options")),
            Part::PerTunnelPacket(label) if self.packets != Seen::Pods => self.labels.push(label.clone()),
            Part::PerTunnelPacket(_) => {}
        }
        true
    }

    /// True if replayed packets of this kind may be among `packets`.
    fn are_among(&mut self, packets: &Packets) -> bool {
        match (packets, self.packets) {
            (Packets::KernelPath, _) => false,
            (Packets::Protocols { tcp, udp }, seen) => {
                self.tcp &= tcp;
                self.udp &= udp;
                self.udp || (self.tcp && seen == Seen::Pods)
            }
            // Of TCP only connections both ends of which were seen are replayed.
            (Packets::NewConnections, Seen::Pods) => self.udp,
            (Packets::Ports(ports), Seen::Received(port) | Seen::Sent(port)) => ports.match_port(port),
            (Packets::SourcePorts(ports), Seen::Received(_) | Seen::Sent(_)) => {
                let is_low = |(_, last): &(u16, u16)| *last < FIRST_SOURCE_PORT;
                let passes = ports.negated || !ports.ranges.iter().all(is_low);
                // Known flows keep their port, but a path is judged by the packets of any flow.
                if passes && matches!(self.packets, Seen::Sent(_)) {
                    self.labels.push("source port".to_owned());
                }
                passes
            }
            _ => true,
        }
    }
}

impl Ruleset {
    /// The chains with rules that look at each packet for itself: at those of pods, and at the
    /// tunnel's, whose port is `port`.
    pub fn per_packet(&self, port: Option<u16>) -> Vec<PerPacket> {
        let tunnel = port.into_iter().flat_map(|port| [Seen::Received(port), Seen::Sent(port)]);
        let mut found: BTreeMap<(&str, &str), PerPacket> = BTreeMap::new();
        for packets in [Seen::Pods].into_iter().chain(tunnel) {
            let leads = |rule: &HostRule| Walk::through(rule, packets).1;
            let reached = self.reached(|table, hook| packets.pass(table, hook), leads);
            for rule in self.rules.iter().filter(|rule| reached.contains(&place(rule))) {
                let (labels, _) = Walk::through(rule, packets);
                if !labels.is_empty() {
                    found.entry(place(rule)).or_default().of(packets).extend(labels);
                }
            }
        }
        let named = |(place, found)| PerPacket { chain: self.describe(place), ..found };
        found.into_iter().map(named).collect()
    }

    fn describe(&self, (table, name): (&str, &str)) -> String {
        let hook = self.chains.iter().find(|chain| chain.table == table && chain.name == name);
        match hook.and_then(|chain| chain.hook.as_ref()).map(|hook| hook.devices.join(", ")) {
            Some(devices) if !devices.is_empty() => format!("{table} {name} on {devices}"),
            _ => format!("{table} {name}"),
        }
    }

    /// The chains tunnel packets pass with rules that name this port; true if one of them drops.
    pub fn at_port(&self, port: u16) -> BTreeMap<String, bool> {
        let reached = self.reached(|_, hook| OUTER.contains(&hook.at.as_str()), |_| true);
        let mut found = BTreeMap::new();
        for rule in self.rules.iter().filter(|rule| rule.names(port) && reached.contains(&place(rule))) {
            *found.entry(format!("{} {}", rule.table, rule.chain)).or_default() |= rule.drops;
        }
        found
    }

    /// The chains at this hook that drop what no rule accepts.
    pub fn dropping_policies(&self, at: &str) -> Vec<String> {
        let drops =
            |chain: &&HostChain| chain.hook.as_ref().is_some_and(|hook| hook.at == at && hook.drops && !hook.nat);
        self.chains.iter().filter(drops).map(|chain| format!("{} {}", chain.table, chain.name)).collect()
    }

    /// True if any table has a chain of this name.
    pub fn has_chain(&self, name: &str) -> bool {
        self.chains.iter().any(|chain| chain.name == name)
    }

    /// The chains that packets come to from hooks of this kind, by table and name, over rules of
    /// this kind.
    fn reached(
        &self,
        from: impl Fn(&str, &ChainHook) -> bool,
        leads: impl Fn(&HostRule) -> bool,
    ) -> BTreeSet<(&str, &str)> {
        let called = |chain: &&HostChain| chain.hook.as_ref().is_some_and(|hook| from(&chain.table, hook));
        let mut reached: BTreeSet<(&str, &str)> =
            self.chains.iter().filter(called).map(|chain| (chain.table.as_str(), chain.name.as_str())).collect();
        let mut calls: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for rule in self.rules.iter().filter(|rule| !rule.targets.is_empty() && leads(rule)) {
            calls.entry(place(rule)).or_default().extend(rule.targets.iter().map(String::as_str));
        }
        let mut waiting: Vec<(&str, &str)> = reached.iter().copied().collect();
        while let Some(chain) = waiting.pop() {
            let targets = calls.get(&chain).into_iter().flatten().map(|target| (chain.0, *target));
            waiting.extend(targets.filter(|target| reached.insert(*target)));
        }
        reached
    }
}

impl HostRule {
    /// True if it names this UDP port as a destination.
    fn names(&self, port: u16) -> bool {
        let named =
            |part: &Part| matches!(part, Part::Only(Packets::Ports(ports)) if !ports.negated && ports.name(port));
        let spares_udp = |part: &Part| matches!(part, Part::Only(Packets::Protocols { udp: false, .. }));
        self.parts.iter().any(named) && !self.parts.iter().any(spares_udp)
    }
}

fn place(rule: &HostRule) -> (&str, &str) {
    (&rule.table, &rule.chain)
}

#[cfg(test)]
mod tests;
