//! What the rules mean for pods' packets. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{Chain, Hook, Rule, Ruleset};

/// The hooks pods' packets pass on their way through the host.
const FORWARDED: [&str; 3] = ["prerouting", "forward", "postrouting"];
/// Those outer packets pass.
const OUTER: [&str; 5] = ["prerouting", "input", "output", "postrouting", "ingress"];

/// Rules of one chain that look at single packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerPacket {
    /// Family, table and chain.
    pub chain: String,
    /// What they look at, each once.
    pub matches: BTreeSet<&'static str>,
}

impl fmt::Display for PerPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let matches: Vec<&str> = self.matches.iter().copied().collect();
        write!(f, "{} ({})", self.chain, matches.join(", "))
    }
}

impl Ruleset {
    /// The chains with rules that judge each of a pod's packets for itself.
    pub fn per_packet(&self) -> Vec<PerPacket> {
        let reached = self.reached(|hook| !hook.nat && FORWARDED.contains(&hook.at.as_str()));
        let mut found: BTreeMap<String, BTreeSet<&'static str>> = BTreeMap::new();
        for rule in self.rules.iter().filter(|rule| !rule.per_packet.is_empty() && reached.contains(&place(rule))) {
            found.entry(format!("{} {}", rule.table, rule.chain)).or_default().extend(&rule.per_packet);
        }
        found.into_iter().map(|(chain, matches)| PerPacket { chain, matches }).collect()
    }

    /// The chains outer packets pass with rules that name this port, and whether one of them drops.
    pub fn at_port(&self, port: u16) -> BTreeMap<String, bool> {
        let reached = self.reached(|hook| OUTER.contains(&hook.at.as_str()));
        let mut found = BTreeMap::new();
        for rule in self.rules.iter().filter(|rule| rule.ports.contains(&port) && reached.contains(&place(rule))) {
            *found.entry(format!("{} {}", rule.table, rule.chain)).or_default() |= rule.drops;
        }
        found
    }

    /// The chains at this hook that drop what no rule accepts.
    pub fn dropping_policies(&self, at: &str) -> Vec<String> {
        let drops = |chain: &&Chain| chain.hook.as_ref().is_some_and(|hook| hook.at == at && hook.drops && !hook.nat);
        self.chains.iter().filter(drops).map(|chain| format!("{} {}", chain.table, chain.name)).collect()
    }

    /// Whether there is a chain of this name, in whatever table.
    pub fn has_chain(&self, name: &str) -> bool {
        self.chains.iter().any(|chain| chain.name == name)
    }

    /// The chains that packets come to from hooks of this kind, by table and name.
    fn reached(&self, from: impl Fn(&Hook) -> bool) -> BTreeSet<(&str, &str)> {
        let called = |chain: &&Chain| chain.hook.as_ref().is_some_and(&from);
        let mut reached: BTreeSet<(&str, &str)> =
            self.chains.iter().filter(called).map(|chain| (chain.table.as_str(), chain.name.as_str())).collect();
        let mut calls: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for rule in &self.rules {
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

fn place(rule: &Rule) -> (&str, &str) {
    (&rule.table, &rule.chain)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{nft, save},
        *,
    };

    const SAVED: &str = "\
*filter
:INPUT DROP [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:CALLED - [0:0]
:LOCAL - [0:0]
-A INPUT -j LOCAL
-A LOCAL -m limit --limit 5/sec -j ACCEPT
-A INPUT -p udp -m udp --dport 8472 -j DROP
-A FORWARD -m conntrack --ctstate INVALID -j DROP
-A FORWARD -j CALLED
-A CALLED -m string --string \"foo\" --algo bm -j DROP
-A CALLED -m quota --quota 1000 -j ACCEPT
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
-A PREROUTING -m statistic --mode random --probability 0.5 -j RETURN
COMMIT
";

    const LISTED: &str = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
        {"chain": {"family": "inet", "table": "t", "name": "f", "handle": 1, "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}},
        {"chain": {"family": "inet", "table": "t", "name": "by-map", "handle": 2}},
        {"chain": {"family": "inet", "table": "t", "name": "services", "handle": 3}},
        {"chain": {"family": "inet", "table": "t", "name": "n", "handle": 4, "type": "nat", "hook": "prerouting", "prio": -100, "policy": "accept"}},
        {"map": {"family": "inet", "name": "m", "table": "t", "type": "mark", "map": "verdict", "elem": [[1, {"jump": {"target": "by-map"}}]]}},
        {"rule": {"family": "inet", "table": "t", "chain": "f", "handle": 5, "expr": [{"vmap": {"key": {"meta": {"key": "mark"}}, "data": "@m"}}]}},
        {"rule": {"family": "inet", "table": "t", "chain": "f", "handle": 6, "expr": [{"match": {"op": "==", "left": {"meta": {"key": "length"}}, "right": 100}}, {"drop": null}]}},
        {"rule": {"family": "inet", "table": "t", "chain": "by-map", "handle": 7, "expr": [{"limit": {"rate": 5, "burst": 5, "per": "second"}}, {"accept": null}]}},
        {"rule": {"family": "inet", "table": "t", "chain": "n", "handle": 8, "expr": [{"jump": {"target": "services"}}]}},
        {"rule": {"family": "inet", "table": "t", "chain": "services", "handle": 9, "expr": [{"match": {"op": "==", "left": {"numgen": {"mode": "random", "mod": 2, "offset": 0}}, "right": 0}}]}},
        {"rule": {"family": "inet", "table": "t", "chain": "f", "handle": 10, "expr": [{"xt": {"type": "match", "name": "string"}}, {"drop": null}]}},
        {"chain": {"family": "inet", "table": "t", "name": "o", "handle": 11, "type": "filter", "hook": "output", "prio": 0, "policy": "accept"}},
        {"rule": {"family": "inet", "table": "t", "chain": "o", "handle": 12, "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": {"set": [53, 8472]}}}, {"accept": null}]}}
    ]}"#;

    fn told(rules: &Ruleset) -> Vec<String> {
        rules.per_packet().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rules_for_single_packets_are_found_where_pods_packets_pass() {
        assert_eq!(told(&save::parse("ip", SAVED)), ["ip filter CALLED (quota, string)"]);
        let listed = nft::parse(LISTED).expect("a document");
        assert_eq!(told(&listed), ["inet t by-map (limit)", "inet t f (length, string)"]);
        assert_eq!(nft::parse("{}"), None);
    }

    #[test]
    fn rules_at_the_tunnels_port_and_policies_that_drop_are_found() {
        let saved = save::parse("ip", SAVED);
        assert_eq!(saved.at_port(8472), BTreeMap::from([("ip filter INPUT".to_owned(), true)]));
        assert_eq!(saved.at_port(4789), BTreeMap::new());
        assert_eq!(saved.dropping_policies("input"), ["ip filter INPUT"]);
        let listed = nft::parse(LISTED).expect("a document");
        assert_eq!(listed.at_port(8472), BTreeMap::from([("inet t o".to_owned(), false)]));
        assert_eq!(listed.dropping_policies("forward"), ["inet t f"]);
        assert!(saved.has_chain("CALLED") && !saved.has_chain("FLANNEL-FWD"));
    }
}
