//! The judge: two records of one scenario, and what the modes may not differ in. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{
    allowed::{Allowed, CHANGES, COPIES, COUNTERS, IDENTIFICATION, ORDER, RESET, VERDICTS},
    packets::{self, Key},
    record::{Record, Way},
    scenario::{Action, Direction, Flow, Kind, Match, Rule, Scenario, Scope, State},
};
use crate::load::rr::Protocol;

/// A property in which two records differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aspect {
    /// Packets that arrived in mode `kernel` alone.
    Lost,
    /// Packets that arrived in mode `fast` alone.
    Passed,
    /// Packets that arrived another number of times.
    Repeated,
    /// A header field, or one of conntrack's entry.
    Field(&'static str),
    /// Order of arrival.
    Order,
    /// Identifications of outer packets that came again too soon.
    OuterIds,
    /// The same, of another flow's packets.
    SharedIds,
    /// Packets at pods they were not for.
    Copies,
    /// Packets that a filter on a cable saw.
    Mirrored,
    /// Errors of ICMP.
    Errors(u8, u8),
    /// The count of a rule.
    Counter(u16),
    /// The outcome of a conversation.
    Outcome,
}

/// A difference is known by these: it counts if it comes again.
pub type Signature = (Aspect, Option<u16>, Option<Direction>);

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The property.
    pub aspect: Aspect,
    /// The flow, if it is of one.
    pub flow: Option<u16>,
    /// In which direction.
    pub direction: Option<Direction>,
    /// The extent, with an example.
    pub detail: String,
    /// The row of the table that allows it.
    pub allowed: Option<Allowed>,
}

impl Difference {
    /// Its identity in another pair of runs.
    pub const fn signature(&self) -> Signature {
        (self.aspect, self.flow, self.direction)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(flow) = self.flow {
            write!(f, "flow {flow}")?;
        }
        if let Some(direction) = self.direction {
            write!(f, " {direction:?}")?;
        }
        write!(f, " {:?}: {}", self.aspect, self.detail)?;
        match self.allowed {
            Some(row) => write!(f, " (allowed: {})", row.name),
            None => Ok(()),
        }
    }
}

/// All differences, with the rows that allow some of them.
pub fn differences(scenario: &Scenario, kernel: &Record, fast: &Record) -> Vec<Difference> {
    let judge = Judge {
        scenario,
        kernel,
        fast,
    };
    let mut found = Vec::new();
    for flow in &scenario.flows {
        for direction in Direction::ALL {
            judge.arrivals(&mut found, flow, direction);
            judge.fields(&mut found, flow, direction);
            judge.order(&mut found, (flow.id, direction));
            judge.copies(&mut found, (flow.id, direction));
            judge.mirrored(&mut found, flow, direction);
        }
        judge.outcome(&mut found, flow);
        judge.tracked(&mut found, flow);
        judge.errors(&mut found, flow);
    }
    judge.counters(&mut found);
    found
}

/// One packet in this many may be overtaken.
const OVERTAKEN: u32 = 4;

struct Judge<'a> {
    scenario: &'a Scenario,
    kernel: &'a Record,
    fast: &'a Record,
}

impl Judge<'_> {
    /// The row that allows a difference of a flow's packets, if a rule judges them one by one.
    fn if_judged(&self, flow: &Flow, row: Allowed) -> Option<Allowed> {
        self.scenario.is_judged_per_packet(flow).then_some(row)
    }

    fn arrivals(&self, found: &mut Vec<Difference>, flow: &Flow, direction: Direction) {
        let of = |record: &Record| way(&record.delivered, (flow.id, direction));
        let (kernel, fast) = (of(self.kernel), of(self.fast));
        let numbers_only_in =
            |these: &BTreeMap<u32, u32>, those: &BTreeMap<u32, u32>| -> Vec<u32> {
                these
                    .keys()
                    .filter(|number| !those.contains_key(number))
                    .copied()
                    .collect()
            };
        let (lost, passed) = (
            numbers_only_in(&kernel, &fast),
            numbers_only_in(&fast, &kernel),
        );
        let counted: Vec<u32> = kernel
            .iter()
            .filter(|(number, count)| fast.get(number).is_some_and(|other| other != *count))
            .map(|(number, _)| *number)
            .collect();
        let total = kernel.len().max(fast.len());
        for (aspect, numbers, allowed) in [
            (Aspect::Lost, lost, None),
            (Aspect::Passed, passed, self.if_judged(flow, VERDICTS)),
            (Aspect::Repeated, counted, None),
        ] {
            if !numbers.is_empty() {
                let some = &numbers[..numbers.len().min(8)];
                let detail = format!("{} of {total} packets, such as {some:?}", numbers.len());
                found.push(Difference {
                    aspect,
                    flow: Some(flow.id),
                    direction: Some(direction),
                    detail,
                    allowed,
                });
            }
        }
    }

    /// Headers, inner and outer, of packets that arrived in both modes.
    fn fields(&self, found: &mut Vec<Difference>, flow: &Flow, direction: Direction) {
        if flow.kind == Kind::Segmented {
            return;
        }
        let inner = |record: &Record| -> BTreeMap<u32, Vec<(&'static str, String)>> {
            way(&record.headers, (flow.id, direction))
                .into_iter()
                .map(|(key, header)| (key, header.fields()))
                .collect()
        };
        let outer = |record: &Record| -> BTreeMap<u32, Vec<(&'static str, String)>> {
            way(&record.outer, (flow.id, direction))
                .into_iter()
                .map(|(key, outer)| (key, outer.fields()))
                .collect()
        };
        for (kernel, fast) in [
            (inner(self.kernel), inner(self.fast)),
            (outer(self.kernel), outer(self.fast)),
        ] {
            let values = by_name(&kernel);
            let mut differing: BTreeMap<&'static str, (Vec<String>, bool)> = BTreeMap::new();
            for (number, fields) in &kernel {
                for ((name, one), (_, other)) in
                    fields.iter().zip(fast.get(number).into_iter().flatten())
                {
                    // Where a datagram comes in pieces they may be together again before the
                    // capture has copied the first.
                    let is_chance =
                        *name == "length" && self.is_fragmented(flow, direction, *number);
                    if one != other && !is_chance {
                        let (examples, is_anothers) =
                            differing.entry(name).or_insert((Vec::new(), true));
                        examples.push(format!("packet {number}: {one} in kernel, {other} in fast"));
                        let is_an_acknowledgements =
                            || self.leaves_as_sent(flow, direction, *number, name, other);
                        *is_anothers &= values[name].contains(other) || is_an_acknowledgements();
                    }
                }
            }
            for (name, (examples, is_anothers)) in differing {
                let detail = format!(
                    "{} of {} packets, {}",
                    examples.len(),
                    kernel.len(),
                    examples[0]
                );
                let allowed = self
                    .if_judged(flow, CHANGES)
                    .filter(|_| is_anothers || is_derived(name));
                let (flow, direction) = (Some(flow.id), Some(direction));
                found.push(Difference {
                    aspect: Aspect::Field(name),
                    flow,
                    direction,
                    detail,
                    allowed,
                });
            }
        }
    }

    /// Acknowledgements without data bear no number, so no record has them. They are short and
    /// without PSH: they leave as they were sent, and data of the same fields may do so after one
    /// of them was seen.
    fn leaves_as_sent(
        &self,
        flow: &Flow,
        direction: Direction,
        number: u32,
        name: &str,
        value: &str,
    ) -> bool {
        let sent = packets::fields(flow, direction, number, self.scenario.phases);
        let Ok(value) = value.parse::<u8>() else {
            return false;
        };
        flow.protocol() == Protocol::Tcp
            && match name {
                "dscp" => value == sent.dscp,
                // Two nodes at most forward it; within one the bridge does.
                "ttl" => (0..=2).contains(&sent.ttl.wrapping_sub(value)),
                _ => false,
            }
    }

    fn is_fragmented(&self, flow: &Flow, direction: Direction, number: u32) -> bool {
        packets::fields(flow, direction, number, self.scenario.phases).fragmented
    }

    fn order(&self, found: &mut Vec<Difference>, way: Way) {
        for (aspect, kernel, fast) in [
            (Aspect::Order, &self.kernel.late, &self.fast.late),
            (
                Aspect::OuterIds,
                &self.kernel.repeated_ids,
                &self.fast.repeated_ids,
            ),
            (
                Aspect::SharedIds,
                &self.kernel.shared_ids,
                &self.fast.shared_ids,
            ),
        ] {
            let [kernel, fast] = [kernel, fast].map(|of| of.get(&way).copied().unwrap_or(0));
            if kernel == 0 && fast > 0 {
                let detail = format!("{fast} packets in fast, none in kernel");
                let (flow, direction) = (Some(way.0), Some(way.1));
                let packets = self.way_packets(way);
                let allowed = match aspect {
                    Aspect::SharedIds => Some(IDENTIFICATION),
                    Aspect::Order if fast <= packets / OVERTAKEN => Some(ORDER),
                    _ => None,
                };
                found.push(Difference {
                    aspect,
                    flow,
                    direction,
                    detail,
                    allowed,
                });
            }
        }
    }

    fn way_packets(&self, of: Way) -> u32 {
        u32::try_from(way(&self.fast.headers, of).len()).unwrap_or(u32::MAX)
    }

    /// At least one if there are any, and never more.
    fn copies(&self, found: &mut Vec<Difference>, way: Way) {
        let [kernel, fast] =
            [self.kernel, self.fast].map(|record| record.copies.get(&way).copied().unwrap_or(0));
        if kernel != fast {
            let is_within = fast < kernel && fast > 0;
            let detail = format!("{kernel} in kernel, {fast} in fast");
            let (flow, direction) = (Some(way.0), Some(way.1));
            let allowed = is_within.then_some(COPIES);
            found.push(Difference {
                aspect: Aspect::Copies,
                flow,
                direction,
                detail,
                allowed,
            });
        }
    }

    /// A filter sees what it sees in mode `kernel`, but for what a rule about single packets
    /// changes.
    fn mirrored(&self, found: &mut Vec<Difference>, flow: &Flow, direction: Direction) {
        if flow.kind != Kind::Datagrams || self.scenario.is_judged_per_packet(flow) {
            return;
        }
        let of = |record: &Record| {
            let is_meant = |key: &&Key| key.flow == flow.id && key.direction == direction;
            record.mirrored.iter().filter(is_meant).count()
        };
        let (kernel, fast) = (of(self.kernel), of(self.fast));
        if kernel != fast {
            let detail = format!("{kernel} in kernel, {fast} in fast");
            let (flow, direction) = (Some(flow.id), Some(direction));
            found.push(Difference {
                aspect: Aspect::Mirrored,
                flow,
                direction,
                detail,
                allowed: None,
            });
        }
    }

    fn outcome(&self, found: &mut Vec<Difference>, flow: &Flow) {
        let [kernel, fast] = [self.kernel, self.fast].map(|record| record.outcomes.get(&flow.id));
        if kernel != fast {
            let allowed = self
                .if_judged(flow, VERDICTS)
                .filter(|_| kernel.is_some_and(|outcome| outcome != "ok"));
            let detail = format!("{kernel:?} in kernel, {fast:?} in fast");
            found.push(Difference {
                aspect: Aspect::Outcome,
                flow: Some(flow.id),
                direction: None,
                detail,
                allowed,
            });
        }
    }

    fn tracked(&self, found: &mut Vec<Difference>, flow: &Flow) {
        let tuples = self.kernel.tracked.iter().chain(&self.fast.tracked);
        let tuples: BTreeSet<_> = tuples
            .filter(|(_, entry)| entry.client_port == flow.client_port())
            .map(|(tuple, _)| tuple)
            .collect();
        for tuple in tuples {
            let fields =
                |record: &Record| record.tracked.get(tuple).map(super::tracked::Entry::fields);
            let (kernel, fast) = (fields(self.kernel), fields(self.fast));
            let mut differ = |name, kernel: &str, fast: &str, allowed| {
                let detail = format!(
                    "{:?} {}: {kernel} in kernel, {fast} in fast",
                    tuple.side, tuple.original
                );
                let aspect = Aspect::Field(name);
                found.push(Difference {
                    aspect,
                    flow: Some(flow.id),
                    direction: None,
                    detail,
                    allowed,
                });
            };
            let (Some(kernel), Some(fast)) = (&kernel, &fast) else {
                let word = |there: bool| if there { "there" } else { "missing" };
                let allowed = self.if_judged(flow, VERDICTS).filter(|_| kernel.is_none());
                differ(
                    "conntrack entry",
                    word(kernel.is_some()),
                    word(fast.is_some()),
                    allowed,
                );
                continue;
            };
            for ((name, kernel), (_, fast)) in
                kernel.iter().zip(fast).filter(|(one, other)| one != other)
            {
                let allowed = match *name {
                    // Only a reset leads to CLOSE: one of the scenario, or one that answers a
                    // rejected packet.
                    "conntrack state" if kernel == "CLOSE" && fast == "ESTABLISHED" => Some(RESET),
                    "conntrack mark" => self.if_judged(flow, CHANGES),
                    _ => self.if_judged(flow, VERDICTS),
                };
                differ(name, kernel, fast, allowed);
            }
        }
    }

    fn errors(&self, found: &mut Vec<Difference>, flow: &Flow) {
        let of = |record: &Record| {
            let mut sums: BTreeMap<(u8, u8), u32> = BTreeMap::new();
            for ((_, error), count) in &record.errors {
                if error.client_port == flow.client_port() {
                    *sums.entry((error.kind, error.code)).or_default() += count;
                }
            }
            sums
        };
        let (kernel, fast) = (of(self.kernel), of(self.fast));
        // Of a connection's segments it is chance how many are sent again.
        let is_exact = matches!(flow.kind, Kind::Datagrams | Kind::Refused);
        for what in kernel.keys().chain(fast.keys()).collect::<BTreeSet<_>>() {
            let [one, other] = [&kernel, &fast].map(|sums| sums.get(what).copied().unwrap_or(0));
            let differs = if is_exact {
                one != other
            } else {
                (one == 0) != (other == 0)
            };
            if differs {
                let allowed = self.if_judged(flow, VERDICTS).filter(|_| other < one);
                let detail = format!("{one} in kernel, {other} in fast");
                let aspect = Aspect::Errors(what.0, what.1);
                found.push(Difference {
                    aspect,
                    flow: Some(flow.id),
                    direction: None,
                    detail,
                    allowed,
                });
            }
        }
    }

    fn counters(&self, found: &mut Vec<Difference>) {
        for rule in &self.scenario.rules {
            let Some(is_exact) = exactness(self.scenario, rule) else {
                continue;
            };
            let [kernel, fast] =
                [self.kernel, self.fast].map(|record| record.counters.get(&rule.id).copied());
            if kernel != fast {
                let allowed = (fast < kernel && !is_exact).then_some(COUNTERS);
                let detail = format!("{kernel:?} in kernel, {fast:?} in fast");
                let aspect = Aspect::Counter(rule.id);
                found.push(Difference {
                    aspect,
                    flow: None,
                    direction: None,
                    detail,
                    allowed,
                });
            }
        }
    }
}

/// True for a field that follows from others.
fn is_derived(name: &str) -> bool {
    name == "checksum"
}

/// The packets of one way, by number.
fn way<T: Clone>(of: &BTreeMap<Key, T>, (flow, direction): Way) -> BTreeMap<u32, T> {
    let range = Key {
        flow,
        direction,
        number: 0,
    }..=Key {
        flow,
        direction,
        number: u32::MAX,
    };
    of.range(range)
        .map(|(key, value)| (key.number, value.clone()))
        .collect()
}

/// The values each field has in some packet.
fn by_name(
    packets: &BTreeMap<u32, Vec<(&'static str, String)>>,
) -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut values: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
    for (name, value) in packets.values().flatten() {
        values.entry(name).or_default().insert(value.clone());
    }
    values
}

/// True if a rule must count the same in both modes; `None` where its count is chance:
/// acknowledgements, segments sent again, and what the nodes themselves send, of which the tunnel's
/// packets are some.
fn exactness(scenario: &Scenario, rule: &Rule) -> Option<bool> {
    if !matches!(rule.scope, Scope::Flows(..)) {
        return None;
    }
    let sees = |flow: &&Flow| {
        Direction::ALL
            .iter()
            .any(|direction| rule.may_see(flow, *direction))
    };
    let flows: Vec<_> = scenario.flows.iter().filter(sees).collect();
    if !flows
        .iter()
        .all(|flow| matches!(flow.kind, Kind::Datagrams | Kind::Refused))
    {
        return None;
    }
    let is_judged = flows.iter().any(|flow| scenario.is_judged_per_packet(flow));
    let is_copied = scenario
        .rules
        .iter()
        .any(|rule| matches!(rule.action, Action::Copy(_)));
    // Without an answer a flow stays new.
    let is_answered = flows.iter().all(|flow| flow.kind == Kind::Datagrams);
    let is_new = is_answered && rule.matches.contains(&Match::State(State::New));
    let is_control = rule.action.ends_packet() || is_new;
    Some(is_control && !is_judged && !is_copied)
}

#[cfg(test)]
mod tests;
