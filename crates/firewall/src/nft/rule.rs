//! The expressions of a rule of nf_tables as parts of a rule of the model. Pure.
//!
//! Loads fill registers, later expressions use them. A field is looked at when its register is
//! used: a comparison may limit the rule to some packets, all other uses name the field.
//! Expressions that the catalogue does not have are named as unknown.

use flannel_netfilter::{Attributes, Expression};

use super::{
    fields::{Headers, Span},
    keys,
    load::{Load, Source},
    set_facts::{SetFacts, Sets},
};
use crate::{
    catalogue::{Element, ElementFacts, ElementKind},
    model::{HostRule, Packets, Part, Ports},
    saved, xtables,
};

/// Verdicts: `NF_DROP`, `NFT_JUMP` and `NFT_GOTO`.
pub(super) const DROP: i32 = 0;
/// `NF_ACCEPT`.
const ACCEPT: i32 = 1;
const CHAINS: [i32; 2] = [-3, -4];
/// `NFT_REG_VERDICT`.
const VERDICT_REGISTER: u64 = 0;
/// `NFT_CMP_*`.
const EQUAL: u64 = 0;
const NOT_EQUAL: u64 = 1;
const AT_MOST: u64 = 3;
const AT_LEAST: u64 = 5;

/// A rule that is being read.
pub(super) struct RuleReader<'a> {
    pub(super) sets: &'a mut dyn Sets,
    pub(super) rule: HostRule,
    headers: Headers,
    loads: Vec<Load>,
}

/// The relation of a field to the values it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// It is one of them.
    Among,
    /// It is none of them.
    NotAmong,
    /// Smaller or larger.
    Ordered,
}

/// First and last values; `None` if they are not known.
pub(super) type Values = Option<Vec<(u64, u64)>>;

impl<'a> RuleReader<'a> {
    /// A reader of one rule in a chain, in a table of this family.
    pub(super) fn new(sets: &'a mut dyn Sets, family: u8, rule: HostRule) -> Self {
        Self {
            sets,
            rule,
            headers: Headers::of_family(family),
            loads: Vec::new(),
        }
    }

    /// Reads all expressions.
    pub(super) fn read(mut self, expressions: &[Expression<'_>]) -> HostRule {
        self.rule.is_for_all = expressions.iter().all(is_for_all);
        let mut rest = expressions;
        while let [expression, next @ ..] = rest {
            rest = next;
            // A range is two comparisons of one register.
            if let [upper, after @ ..] = next
                && is_range(expression, upper)
            {
                self.compare_range(expression.data, upper.data);
                rest = after;
            } else {
                self.expression(expression);
            }
        }
        self.use_all();
        self.rule
    }

    fn expression(&mut self, expression: &Expression<'_>) {
        let data = expression.data;
        let number = |kind| data.number(kind).unwrap_or_default();
        match expression.name.as_str() {
            "payload" => self.payload(data),
            "meta" => self.key(data, &keys::meta(number(2)), 1, 3),
            "ct" => self.key(data, &keys::ct(number(2)), 1, 4),
            "exthdr" => self.key(data, &keys::option(number(6), number(2)), 1, 7),
            "rt" => self.load(data, 1, "rt key"),
            "socket" => self.load(data, 2, "socket key"),
            "osf" => self.load(data, 1, "osf name"),
            "tunnel" => self.load(data, 2, "tunnel key"),
            "xfrm" => self.load(data, 1, "ipsec key"),
            "fib" => self.load(data, 1, "fib"),
            "numgen" => self.load(data, 1, "numgen"),
            "hash" => self.hash(data),
            "inner" => self.name(ElementKind::Field, inner(number(2)), ElementFacts::None),
            "bitwise" => self.bitwise(data),
            "byteorder" => self.move_register(data, 1, 2),
            "cmp" => self.compare(data),
            "range" => self.range(data),
            "lookup" => self.look_up(data),
            "immediate" => self.immediate(data),
            "dynset" => self.set_statement(data),
            "objref" => self.object(data),
            "match" => self.extension(data, false),
            "target" => self.extension(data, true),
            other => self.statement(other, data),
        }
    }

    pub(super) fn name(&mut self, kind: ElementKind, name: &str, facts: ElementFacts<'_>) {
        self.rule.add(&Element::new(kind, name, facts));
    }

    /// A statement by the name that nft(8) has for it. It may use any register.
    fn statement(&mut self, expression: &str, data: Attributes<'_>) {
        let name = match (expression, data.number(1)) {
            ("connlimit", _) => "ct count",
            ("flow_offload", _) => "flow",
            ("masq", _) => "masquerade",
            ("redir", _) => "redirect",
            // NFT_NAT_SNAT
            ("nat", Some(0)) => "snat",
            ("nat", _) => "dnat",
            (name, _) => name,
        };
        self.rule.drops |= name == "reject";
        self.name(ElementKind::Statement, name, ElementFacts::None);
        self.use_all();
    }

    /// Loads or writes a value that has a name.
    fn key(&mut self, data: Attributes<'_>, name: &str, destination: u16, source: u16) {
        if data.get(destination).is_some() {
            self.load(data, destination, name);
        } else if data.get(source).is_some() || name.starts_with("tcp option") {
            // Without a register an option is removed.
            self.name(ElementKind::Rewrite, name, ElementFacts::None);
            self.use_all();
        }
    }

    fn load(&mut self, data: Attributes<'_>, destination: u16, name: &str) {
        self.fill(register(data, destination), Source::Named(name.to_owned()));
    }

    fn fill(&mut self, register: u32, source: Source) {
        self.loads.push(Load::new(register, source));
    }

    fn payload(&mut self, data: Attributes<'_>) {
        let number = |kind| data.number32(kind).unwrap_or_default();
        let span = Span {
            base: data.number(2).unwrap_or_default(),
            offset: number(3),
            length: number(4),
        };
        if data.get(1).is_some() {
            return self.fill(register(data, 1), Source::Packet(span, self.headers));
        }
        let source = register(data, 5);
        let of_write = |load: &Load| load.register == source && !load.written(span).is_empty();
        let covered = match self.loads.iter().position(of_write) {
            Some(place) => self.loads.remove(place).written(span),
            None => self.headers.fields(span, |_| true),
        };
        for field in covered {
            self.name(ElementKind::Rewrite, &field.name, ElementFacts::None);
        }
        self.use_all();
    }

    fn hash(&mut self, data: Attributes<'_>) {
        // NFT_HASH_SYM
        let name = if data.number(7) == Some(1) {
            "symhash"
        } else {
            "jhash"
        };
        let length = data.number32(3).unwrap_or_default();
        if data.get(1).is_some() {
            for load in self.take(register(data, 1), length) {
                self.name_fields(&load);
            }
        }
        self.load(data, 2, name);
    }

    fn bitwise(&mut self, data: Attributes<'_>) {
        let source = register(data, 1);
        // NFT_BITWISE_MASK_XOR is the operation of kernels that have no other, too.
        if data.number(6).unwrap_or_default() == 0
            && let Some(load) = self.loads.iter_mut().find(|load| load.register == source)
        {
            load.mask = Some(bytes(data, 4).to_vec());
            load.toggled = bytes(data, 5).to_vec();
        }
        self.move_register(data, 1, 2);
    }

    fn move_register(&mut self, data: Attributes<'_>, source: u16, destination: u16) {
        let (from, to) = (register(data, source), register(data, destination));
        for load in self.loads.iter_mut().filter(|load| load.register == from) {
            load.register = to;
        }
    }

    /// Takes the load out of a register.
    fn take_one(&mut self, register: u32) -> Option<Load> {
        let place = self
            .loads
            .iter()
            .position(|load| load.register == register)?;
        Some(self.loads.remove(place))
    }

    /// Takes the loads out of the registers of this number of bytes.
    fn take(&mut self, first: u32, bytes: u32) -> Vec<Load> {
        let registers = first..first.saturating_add(bytes.div_ceil(4).max(1));
        self.loads
            .extract_if(.., |load| registers.contains(&load.register))
            .collect()
    }

    /// Names the fields of all loads that no expression has used.
    fn use_all(&mut self) {
        for load in std::mem::take(&mut self.loads) {
            self.name_fields(&load);
        }
    }

    fn name_fields(&mut self, load: &Load) {
        for piece in load.pieces() {
            self.name(ElementKind::Field, &piece.name, ElementFacts::None);
        }
    }

    fn compare_range(&mut self, lower: Attributes<'_>, upper: Attributes<'_>) {
        self.match_load(lower, Relation::Among, bytes(lower, 3), bytes(upper, 3));
    }

    fn compare(&mut self, data: Attributes<'_>) {
        let relation = match data.number(2) {
            Some(EQUAL) => Relation::Among,
            Some(NOT_EQUAL) => Relation::NotAmong,
            _ => Relation::Ordered,
        };
        self.match_load(data, relation, bytes(data, 3), bytes(data, 3));
    }

    fn range(&mut self, data: Attributes<'_>) {
        let relation = if data.number(2) == Some(EQUAL) {
            Relation::Among
        } else {
            Relation::NotAmong
        };
        self.match_load(data, relation, bytes(data, 3), bytes(data, 4));
    }

    /// Compares each field of the load in the source register with first and last values.
    fn match_load(&mut self, data: Attributes<'_>, relation: Relation, first: &[u8], last: &[u8]) {
        let Some(load) = self.take_one(register(data, 1)) else {
            return;
        };
        for piece in load.pieces() {
            let range = piece.value(first).zip(piece.value(last));
            if let (Relation::Among, None, Some((first, last))) = (relation, piece.mask, range)
                && first == last
            {
                self.headers.limit(&piece.name, first);
            }
            self.match_field(
                &piece.name,
                relation,
                piece.mask,
                &range.map(|range| vec![range]),
            );
        }
    }

    fn look_up(&mut self, data: Attributes<'_>) {
        let facts = data
            .text(1)
            .map(|name| self.sets.facts(&name))
            .unwrap_or_default();
        let loads = self.take(register(data, 2), facts.key_length);
        let is_map = data.get(3).is_some();
        let pieces: Vec<_> = loads.iter().flat_map(Load::pieces).collect();
        // NFT_LOOKUP_F_INV
        let relation = if data.number(5) == Some(1) {
            Relation::NotAmong
        } else {
            Relation::Among
        };
        match (&pieces[..], is_map) {
            ([piece], false) => {
                let value = |(first, last): &(Vec<u8>, Vec<u8>)| {
                    Some((piece.value(first)?, piece.value(last)?))
                };
                let values = facts
                    .values
                    .as_ref()
                    .and_then(|values| values.iter().map(value).collect());
                self.match_field(&piece.name, relation, piece.mask, &values);
            }
            _ => loads.iter().for_each(|load| self.name_fields(load)),
        }
        self.refer(&facts);
    }

    /// Takes over what a set does at a look-up, and where it leads to.
    fn refer(&mut self, facts: &SetFacts) {
        self.rule.parts.extend(facts.sum.parts.iter().cloned());
        self.rule.targets.extend(facts.sum.targets.iter().cloned());
        self.rule.drops |= facts.sum.drops;
        self.rule.accepts |= facts.sum.accepts;
    }

    fn immediate(&mut self, data: Attributes<'_>) {
        let verdict = data.nested(2).and_then(|data| data.nested(2));
        if let (Some(VERDICT_REGISTER), Some(verdict)) = (data.number(1), verdict) {
            apply_verdict(&mut self.rule, verdict);
        }
    }

    fn set_statement(&mut self, data: Attributes<'_>) {
        let facts = data
            .text(1)
            .map(|name| self.sets.facts(&name))
            .unwrap_or_default();
        let own = data
            .number(6)
            .filter(|timeout| *timeout > 0)
            .map(|milliseconds| milliseconds / 1000);
        let timeout = own.or_else(|| facts.timeout.map(|timeout| timeout.as_secs()));
        let name = match data.number(3) {
            Some(0) | None => "set add",
            Some(1) => "set update",
            Some(_) => "set delete",
        };
        self.name(ElementKind::Statement, name, ElementFacts::Timeout(timeout));
        self.refer(&facts);
        self.use_all();
        for statement in data.expressions(7, 10) {
            self.expression(&statement);
        }
    }

    fn object(&mut self, data: Attributes<'_>) {
        let set = data.text(4).map(|name| self.sets.facts(&name));
        // A map has the type of its objects.
        let kind = data
            .number(1)
            .or_else(|| set.as_ref().map(|facts| facts.object_kind.into()));
        self.name(
            ElementKind::Statement,
            &keys::object(kind.unwrap_or_default()),
            ElementFacts::None,
        );
        self.use_all();
        self.refer(&set.unwrap_or_default());
    }

    /// An extension of iptables or ebtables.
    fn extension(&mut self, data: Attributes<'_>, is_target: bool) {
        let (Some(name), info) = (data.text(1), data.get(3).unwrap_or_default()) else {
            return;
        };
        let revision = data.number(2).unwrap_or_default();
        if self.rule.table.starts_with(saved::BRIDGE) {
            let options = xtables::bridge_options(&name, info);
            return self.with_words(options, |rule, facts| {
                rule.add(&Element::new(ElementKind::Bridge, &name, facts));
            });
        }
        let (flag, kind) = if is_target {
            ("-j", ElementKind::Target)
        } else {
            ("-m", ElementKind::Match)
        };
        let options = if is_target {
            xtables::target_options(&name, revision, info)
        } else {
            xtables::match_options(&name, revision, info)
        };
        self.rule.drops |= is_target && ["DROP", "REJECT"].contains(&name.as_str());
        self.with_words(options, |rule, facts| match facts {
            ElementFacts::Words(words) if !is_target || kind.knows(&name) => {
                saved::add_section(rule, &[&[flag, name.as_str()], words].concat());
            }
            facts => rule.add(&Element::new(kind, &name, facts)),
        });
    }

    fn with_words(
        &mut self,
        options: Option<Vec<String>>,
        add: impl FnOnce(&mut HostRule, ElementFacts<'_>),
    ) {
        match options {
            Some(options) => {
                let words: Vec<&str> = options.iter().map(String::as_str).collect();
                add(&mut self.rule, ElementFacts::Words(&words));
            }
            None => add(&mut self.rule, ElementFacts::Hidden),
        }
    }

    pub(super) fn limit_to(&mut self, packets: Packets) {
        self.rule.limit_to(packets);
    }

    pub(super) fn limit_to_ports(&mut self, name: &str, relation: Relation, values: &Values) {
        let port =
            |value: &(u64, u64)| Some((u16::try_from(value.0).ok()?, u16::try_from(value.1).ok()?));
        let ranges: Option<Vec<_>> = match relation {
            Relation::Ordered => None,
            _ => values
                .as_ref()
                .and_then(|values| values.iter().map(port).collect()),
        };
        let ports = ranges.map(|ranges| Ports {
            ranges,
            negated: relation == Relation::NotAmong,
        });
        match (name.rsplit(' ').next(), ports) {
            (Some("dport"), Some(ports)) => self.limit_to(Packets::Ports(ports)),
            (Some("sport"), Some(ports)) => self.limit_to(Packets::SourcePorts(ports)),
            (Some("sport"), None) => self
                .rule
                .parts
                .push(Part::PerTunnelPacket("source port".to_owned())),
            _ => {}
        }
    }
}

/// True if the rule goes on behind this expression for all packets.
fn is_for_all(expression: &Expression<'_>) -> bool {
    match expression.name.as_str() {
        "counter" | "log" | "immediate" | "reject" | "target" => true,
        "match" => expression
            .data
            .text(1)
            .is_some_and(|name| name == "comment"),
        _ => false,
    }
}

/// Returns true if two expressions compare one register with the ends of a range.
fn is_range(lower: &Expression<'_>, upper: &Expression<'_>) -> bool {
    let is = |expression: &Expression<'_>, op| {
        expression.name == "cmp" && expression.data.number(2) == Some(op)
    };
    is(lower, AT_LEAST) && is(upper, AT_MOST) && lower.data.get(1) == upper.data.get(1)
}

/// Adds the chain that a verdict leads to, or that it drops or accepts.
pub(super) fn apply_verdict(rule: &mut HostRule, verdict: Attributes<'_>) {
    rule.drops |= code(verdict) == Some(DROP);
    rule.accepts |= code(verdict) == Some(ACCEPT);
    rule.targets.extend(verdict_chain(verdict));
}

/// Returns the chain that a verdict leads to.
pub(crate) fn verdict_chain(verdict: Attributes<'_>) -> Option<String> {
    if code(verdict).is_some_and(|code| CHAINS.contains(&code)) {
        verdict.text(2)
    } else {
        None
    }
}

/// `NF_*` or `NFT_*`.
fn code(verdict: Attributes<'_>) -> Option<i32> {
    verdict
        .get(1)
        .and_then(|code| code.first_chunk())
        .map(|code| i32::from_be_bytes(*code))
}

/// The label of a look into a tunnel packet, by `NFTA_INNER_TYPE`.
const fn inner(kind: u64) -> &'static str {
    match kind {
        1 => "vxlan payload",
        2 => "geneve payload",
        _ => "raw payload",
    }
}

/// A register, counted in words of 32 bits: `NFT_REG_1` to `_4` are four words each.
pub(crate) fn register(data: Attributes<'_>, kind: u16) -> u32 {
    match data.number32(kind) {
        Some(number @ 1..=4) => (number - 1) * 4,
        Some(number @ 8..) => number - 8,
        _ => 0,
    }
}

/// The bytes of `NFTA_DATA_VALUE`.
pub(crate) fn bytes(data: Attributes<'_>, kind: u16) -> &[u8] {
    data.nested(kind)
        .and_then(|data| data.get(1))
        .unwrap_or_default()
}
