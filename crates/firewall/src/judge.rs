//! The meaning of the rules for pods' packets, and for the tunnel's. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::model::{ChainHook, ChainName, HostRule, Packets, Part, Ruleset, Traffic};

/// The chain of flannel's rules for forwarded packets, in iptables.
const FORWARD_CHAIN: &str = "FLANNEL-FWD";

/// The hooks pods' packets pass on their way through the host.
const FORWARDED: [&str; 4] = ["ingress", "prerouting", "forward", "postrouting"];
/// Those tunnel packets pass as they come.
const RECEIVED: [&str; 2] = ["prerouting", "input"];
/// And as they leave.
const SENT: [&str; 2] = ["output", "postrouting"];
/// Those tunnel packets pass, on whatever device.
const OUTER: [&str; 6] = [
    "prerouting",
    "input",
    "output",
    "postrouting",
    "ingress",
    "egress",
];
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

    /// The chain and what it looks at in tunnel packets that come, if it does.
    pub fn of_received(&self) -> Option<String> {
        let labels = self.received.iter().cloned().collect::<Vec<_>>().join(", ");
        (!labels.is_empty()).then(|| format!("{} ({labels})", self.chain))
    }

    fn of(&mut self, packets: Traffic) -> &mut BTreeSet<String> {
        match packets {
            Traffic::Pods => &mut self.pods,
            Traffic::Received(_) => &mut self.received,
            Traffic::Sent(_) => &mut self.sent,
        }
    }
}

impl fmt::Display for PerPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |labels: &mut dyn Iterator<Item = &String>| {
            labels.cloned().collect::<Vec<_>>().join(", ")
        };
        let tunnel: BTreeSet<&String> = self.received.union(&self.sent).collect();
        let more = join(
            &mut tunnel
                .iter()
                .copied()
                .filter(|label| !self.pods.contains(*label)),
        );
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

impl Traffic {
    /// Returns the elements that look at these packets one by one; and true if any packet gets to
    /// the end of the rule.
    fn judge(self, rule: &HostRule) -> (Vec<String>, bool) {
        let mut walk = Walk {
            packets: self,
            tcp: true,
            udp: true,
            labels: Vec::new(),
        };
        let passes = rule.parts.iter().all(|part| walk.passes(part));
        (walk.labels, passes)
    }

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
    packets: Traffic,
    tcp: bool,
    udp: bool,
    labels: Vec<String>,
}

impl Walk {
    fn passes(&mut self, part: &Part) -> bool {
        match part {
            Part::Only(packets) => return self.are_among(packets),
            Part::PerPacket(label) => self.labels.push(label.clone()),
            Part::Hidden(label) => self.labels.push(format!("{label} with unknown options")),
            Part::PerTunnelPacket(label) if self.packets != Traffic::Pods => {
                self.labels.push(label.clone());
            }
            Part::PerTunnelPacket(_) => {}
        }
        true
    }

    /// True if replayed packets of this kind may be among those of the limit.
    fn are_among(&mut self, limit: &Packets) -> bool {
        match (limit, self.packets) {
            (Packets::KernelPath, _) => false,
            (Packets::Protocols { tcp, udp }, packets) => {
                self.tcp &= tcp;
                self.udp &= udp;
                self.udp || (self.tcp && packets == Traffic::Pods)
            }
            // Of TCP only connections both ends of which were seen are replayed.
            (Packets::NewConnections, Traffic::Pods) => self.udp,
            (Packets::Ports(ports), Traffic::Received(port) | Traffic::Sent(port)) => {
                ports.match_port(port)
            }
            (Packets::SourcePorts(ports), Traffic::Received(_) | Traffic::Sent(_)) => {
                let is_low = |(_, last): &(u16, u16)| *last < FIRST_SOURCE_PORT;
                let passes = ports.negated || !ports.ranges.iter().all(is_low);
                // Known flows keep their port, but a path and a reception are validated by the
                // packets of any flow.
                if passes {
                    self.labels.push("source port".to_owned());
                }
                passes
            }
            _ => true,
        }
    }
}

impl Ruleset {
    /// Judges a rule, and adds the result to its chain.
    pub(super) fn add(&mut self, rule: HostRule) {
        let judgements: Vec<_> = self
            .traffic
            .iter()
            .map(|traffic| (*traffic, traffic.judge(&rule)))
            .collect();
        let names_port = self.port.is_some_and(|port| rule.names(port));
        let chain = self.chains.entry((rule.table, rule.chain)).or_default();
        for (traffic, (labels, passes)) in judgements {
            let leads = passes && !rule.targets.is_empty();
            if !labels.is_empty() || leads {
                let sum = chain.sums.entry(traffic).or_default();
                sum.labels.extend(labels);
                sum.targets
                    .extend(rule.targets.iter().filter(|_| passes).cloned());
            }
        }
        chain.names_port |= names_port;
        chain.drops_at_port |= names_port && rule.drops;
        if rule.is_for_all && !chain.for_all.is_over {
            chain.for_all.drops |= rule.drops;
            chain.for_all.targets.extend(rule.targets.iter().cloned());
        }
        chain.for_all.is_over |= rule.accepts || !rule.targets.is_empty();
        chain.targets.extend(rule.targets);
    }

    /// The chains with rules that look at each packet for itself: at those of pods, and at the
    /// tunnel's.
    pub fn per_packet(&self) -> Vec<PerPacket> {
        let mut found: BTreeMap<&ChainName, PerPacket> = BTreeMap::new();
        for packets in &self.traffic {
            let reached = self.reached(
                |table, hook| packets.pass(table, hook),
                |name| {
                    self.chains
                        .get(name)?
                        .sums
                        .get(packets)
                        .map(|sum| &sum.targets)
                },
            );
            for name in &reached {
                let Some((name, chain)) = self.chains.get_key_value(name) else {
                    continue;
                };
                if let Some(sum) = chain.sums.get(packets).filter(|sum| !sum.labels.is_empty()) {
                    found
                        .entry(name)
                        .or_default()
                        .of(*packets)
                        .extend(sum.labels.iter().cloned());
                }
            }
        }
        found
            .into_iter()
            .map(|(name, found)| PerPacket {
                chain: self.describe(name),
                ..found
            })
            .collect()
    }

    fn describe(&self, name: &ChainName) -> String {
        let hook = self.chains.get(name).and_then(|chain| chain.hook.as_ref());
        match hook.map(|hook| hook.devices.join(", ")) {
            Some(devices) if !devices.is_empty() => format!("{} {} on {devices}", name.0, name.1),
            _ => format!("{} {}", name.0, name.1),
        }
    }

    /// The chains tunnel packets pass with rules that name the tunnel's port; true if one of them
    /// drops.
    pub fn at_port(&self) -> BTreeMap<String, bool> {
        let reached = self.reached(
            |_, hook| OUTER.contains(&hook.at.as_str()),
            |name| self.chains.get(name).map(|chain| &chain.targets),
        );
        let chains = reached
            .iter()
            .filter_map(|name| self.chains.get_key_value(name));
        let naming = chains.filter(|(_, chain)| chain.names_port);
        naming
            .map(|((table, name), chain)| (format!("{table} {name}"), chain.drops_at_port))
            .collect()
    }

    /// The chains at this hook that drop what no rule accepts.
    pub fn dropping_policies(&self, at: &str) -> Vec<String> {
        let hooks = self
            .chains
            .iter()
            .filter_map(|(name, chain)| Some((name, chain.hook.as_ref()?)));
        let dropping = hooks.filter(|(_, hook)| hook.at == at && hook.drops && !hook.nat);
        dropping
            .map(|((table, name), _)| format!("{table} {name}"))
            .collect()
    }

    /// The chains that drop forwarded packets: by their policy what no rule accepts, while
    /// flannel's rules are not there, or by a rule for all packets, in front of any that could
    /// accept some.
    pub fn closed_forward(&self) -> Vec<String> {
        let closed = if self.has_chain(FORWARD_CHAIN) {
            Vec::new()
        } else {
            self.dropping_policies("forward")
        };
        let reached = self.reached(
            |table, hook| hook.at == "forward" && !table.starts_with("bridge "),
            |name| self.chains.get(name).map(|chain| &chain.for_all.targets),
        );
        let drops_all = |name: &ChainName| {
            self.chains
                .get(name)
                .is_some_and(|chain| chain.for_all.drops)
        };
        let dropping = reached
            .into_iter()
            .filter(drops_all)
            .map(|name| self.describe(&name));
        closed
            .into_iter()
            .chain(dropping)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }

    /// The chains with a rule that drops packets of the port with which the rules were read.
    pub fn dropping_at_port(&self) -> Vec<String> {
        self.at_port()
            .into_iter()
            .filter_map(|(chain, drops)| drops.then_some(chain))
            .collect()
    }

    /// True if packets of a hook that was read can get to a chain of this name.
    pub fn has_chain(&self, name: &str) -> bool {
        self.chains.keys().any(|(_, chain)| chain == name)
    }

    /// The chains that packets come to from hooks of this kind, over such targets of each chain.
    fn reached<'a>(
        &'a self,
        from: impl Fn(&str, &ChainHook) -> bool,
        targets: impl Fn(&ChainName) -> Option<&'a BTreeSet<String>>,
    ) -> BTreeSet<ChainName> {
        let hooks = self
            .chains
            .iter()
            .filter_map(|(name, chain)| Some((name, chain.hook.as_ref()?)));
        let mut waiting: Vec<ChainName> = hooks
            .filter(|(name, hook)| from(&name.0, hook))
            .map(|(name, _)| name.clone())
            .collect();
        let mut reached: BTreeSet<ChainName> = waiting.iter().cloned().collect();
        while let Some(name) = waiting.pop() {
            let found = targets(&name)
                .into_iter()
                .flatten()
                .map(|target| (name.0.clone(), target.clone()));
            waiting.extend(found.filter(|target| reached.insert(target.clone())));
        }
        reached
    }
}

impl HostRule {
    /// True if it names this UDP port as a destination.
    fn names(&self, port: u16) -> bool {
        let named = |part: &Part| {
            matches!(
                part,
                Part::Only(Packets::Ports(ports)) if !ports.negated && ports.name(port),
            )
        };
        let spares_udp =
            |part: &Part| matches!(part, Part::Only(Packets::Protocols { udp: false, .. }));
        self.parts.iter().any(named) && !self.parts.iter().any(spares_udp)
    }
}

#[cfg(test)]
mod tests;
