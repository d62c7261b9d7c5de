//! Statements.

use serde_json::Value;

use super::{Reader, only_member, texts};
use crate::firewall::{
    catalogue::{Element, ElementFacts, ElementKind},
    model::{Packets, Part, Ports},
};

/// Protocols of the transport layer whose presence a field of theirs asks for, except TCP and UDP.
const OTHERS: [&str; 10] = ["icmp", "icmpv6", "igmp", "esp", "ah", "comp", "udplite", "dccp", "sctp", "gre"];

impl Reader<'_> {
    pub(super) fn statements(&mut self, list: &Value) {
        for statement in list.as_array().into_iter().flatten() {
            match only_member(statement) {
                Some((name, member)) => self.statement(name, member),
                None => self.name(ElementKind::Statement, statement.as_str().unwrap_or("?"), ElementFacts::None),
            }
        }
    }

    fn statement(&mut self, name: &str, member: &Value) {
        match name {
            "match" => self.match_statement(member),
            "mangle" => self.mangle(member),
            "reset" => self.rewrite(member),
            "vmap" => {
                self.expression(&member["key"]);
                self.expression(&member["data"]);
            }
            "set" | "map" => self.set_statement(member),
            "meter" => self.meter(member),
            "xt" => self.extension(member),
            "counter" if member.is_string() || member.get("map").is_some() => {
                self.name(ElementKind::Statement, "counter object", ElementFacts::None);
                self.expression(member);
            }
            "jump" | "goto" => self.verdict(name, member),
            "drop" | "reject" => {
                self.rule.drops = true;
                self.name(ElementKind::Statement, name, ElementFacts::None);
            }
            _ => {
                self.name(ElementKind::Statement, name, ElementFacts::None);
                self.arguments(member);
            }
        }
    }

    /// Addresses, ports, devices: expressions, or plain words and numbers.
    fn arguments(&mut self, member: &Value) {
        if member.get("map").is_some() {
            return self.expression(member);
        }
        for value in member.as_object().into_iter().flat_map(serde_json::Map::values).filter(|value| value.is_object())
        {
            self.expression(value);
        }
    }

    pub(super) fn name(&mut self, kind: ElementKind, name: &str, facts: ElementFacts<'_>) {
        self.rule.add(&Element::new(kind, name, facts));
    }

    fn set_statement(&mut self, member: &Value) {
        let elem = &member["elem"];
        let set = member["set"].as_str().or_else(|| member["map"].as_str()).unwrap_or_default();
        let own = elem["elem"]["timeout"].as_u64();
        let timeout = own.or_else(|| self.set(set).and_then(|set| set.timeout));
        let name = format!("set {}", member["op"].as_str().unwrap_or("?"));
        self.name(ElementKind::Statement, &name, ElementFacts::Timeout(timeout));
        self.refer(set);
        self.expression(elem);
        self.expression(&member["data"]);
        self.statements(&member["stmt"]);
    }

    fn meter(&mut self, member: &Value) {
        self.expression(&member["key"]);
        match &member["stmt"] {
            list @ Value::Array(_) => self.statements(list),
            one => self.statements(&Value::Array(vec![one.clone()])),
        }
    }

    /// An extension of iptables or ebtables, by its name; nft does not show the options.
    fn extension(&mut self, member: &Value) {
        let is_bridge = self.rule.table.starts_with("bridge ");
        let kind = match member["type"].as_str() {
            _ if is_bridge => ElementKind::Bridge,
            Some("match") => ElementKind::Match,
            Some("target") => ElementKind::Target,
            _ => return self.rule.parts.push(Part::Hidden("extension".to_owned())),
        };
        match member["name"].as_str() {
            Some(name) => self.name(kind, name, ElementFacts::Hidden),
            None => self.rule.parts.push(Part::Hidden("extension".to_owned())),
        }
    }

    fn mangle(&mut self, member: &Value) {
        self.rewrite(&member["key"]);
        self.expression(&member["value"]);
    }

    fn rewrite(&mut self, target: &Value) {
        let name = only_member(target).and_then(|(kind, field)| super::expression::field_name(kind, field));
        self.name(ElementKind::Rewrite, name.as_deref().unwrap_or("?"), ElementFacts::None);
    }

    /// A comparison: what is looked at, and to which packets it limits the rest of the rule.
    fn match_statement(&mut self, member: &Value) {
        let (op, left, right) = (member["op"].as_str().unwrap_or("=="), &member["left"], &member["right"]);
        let (field, mask) = match left.get("&").and_then(Value::as_array).map(Vec::as_slice) {
            Some([field, mask]) => (field, Some(mask)),
            _ => (left, None),
        };
        let name = only_member(field).and_then(|(kind, field)| super::expression::field_name(kind, field));
        match (name.as_deref(), op) {
            (Some("tcp flags"), _) => {
                let test = super::expression::flag_tests(op, mask, right);
                for test in test {
                    self.name(ElementKind::Field, "tcp flags", ElementFacts::Flags(test));
                }
                self.rule.limit_to(Packets::Protocols { tcp: true, udp: false });
                return;
            }
            // Either half of the field makes a packet a fragment; DF does not.
            (Some("ip frag-off"), "!=") if *right == 0 && mask.and_then(Value::as_u64).is_some_and(is_of_fragments) => {
                return self.rule.limit_to(Packets::KernelPath);
            }
            (Some("ip frag-off"), _) => {
                let facts = mask.and_then(Value::as_u64).map_or(ElementFacts::None, ElementFacts::Mask);
                return self.name(ElementKind::Field, "ip frag-off", facts);
            }
            (Some("ct state"), "==" | "in") => {
                let states = texts(right);
                let states: Vec<&str> = states.iter().map(String::as_str).collect();
                return self.name(ElementKind::Field, "ct state", ElementFacts::States(&states));
            }
            (Some("meta l4proto" | "ip protocol" | "ip6 nexthdr"), "==" | "!=") if mask.is_none() => {
                self.rule.limit_to(protocols(right, op == "!="));
            }
            (Some(name), _) => self.limit_by_field(name, op, mask, right),
            (None, _) => {}
        }
        if !name.is_some_and(|name| name.ends_with(" sport")) {
            self.expression(left);
        }
        self.expression(right);
    }

    fn limit_by_field(&mut self, name: &str, op: &str, mask: Option<&Value>, right: &Value) {
        let (protocol, field) = name.split_once(' ').unwrap_or((name, ""));
        match protocol {
            "tcp" => self.rule.limit_to(Packets::Protocols { tcp: true, udp: false }),
            "udp" => self.rule.limit_to(Packets::Protocols { tcp: false, udp: true }),
            other if OTHERS.contains(&other) => self.rule.limit_to(Packets::Protocols { tcp: false, udp: false }),
            _ => {}
        }
        let ranges = (mask.is_none() && ["==", "!="].contains(&op)).then(|| ranges(right)).flatten();
        let ports = ranges.map(|ranges| Ports { ranges, negated: op == "!=" });
        match (field, ports) {
            ("dport", Some(ports)) if ["udp", "tcp", "th"].contains(&protocol) => {
                self.rule.limit_to(Packets::Ports(ports));
            }
            ("sport", Some(ports)) => self.rule.limit_to(Packets::SourcePorts(ports)),
            ("sport", None) => self.rule.parts.push(Part::PerTunnelPacket("source port".to_owned())),
            _ => {}
        }
    }
}

const fn is_of_fragments(mask: u64) -> bool {
    mask & 0xc000 == 0
}

/// One protocol or a set of them; which ones a variable stands for is not known.
fn protocols(value: &Value, negated: bool) -> Packets {
    let names = texts(value);
    let is_known = !names.iter().any(|name| name.starts_with('@')) && value.get("range").is_none();
    let is = |known: [&str; 2]| !is_known || known.iter().any(|name| names.contains(*name)) != negated;
    Packets::Protocols { tcp: is(["tcp", "6"]), udp: is(["udp", "17"]) }
}

/// The ports of a value: one, a range, or a set; none if it is something else.
fn ranges(value: &Value) -> Option<Vec<(u16, u16)>> {
    let port = |value: &Value| u16::try_from(value.as_u64()?).ok();
    match value {
        Value::Number(_) => port(value).map(|port| vec![(port, port)]),
        Value::Object(members) => {
            if let Some([first, last]) = members.get("range").and_then(Value::as_array).map(Vec::as_slice) {
                return Some(vec![(port(first)?, port(last)?)]);
            }
            let ranges: Option<Vec<_>> = members.get("set")?.as_array()?.iter().map(ranges).collect();
            Some(ranges?.concat())
        }
        _ => None,
    }
}
