//! Comparisons of fields: the packets to which they limit a rule. Pure.

use super::{
    keys,
    rule::{Relation, RuleReader, Values},
};
use crate::{
    catalogue::{CONTROL, ElementFacts, ElementKind, FlagTest, NOT_FRAGMENT},
    model::Packets,
};

/// Protocols of the transport layer that are never replayed, as their fields begin.
const OTHERS: [&str; 10] = [
    "icmp", "icmpv6", "igmp", "esp", "ah", "comp", "udplite", "dccp", "sctp", "gre",
];
/// All bits of a flag field.
const ALL: u64 = 0xff;
impl RuleReader<'_> {
    /// A comparison of a field with values.
    pub(super) fn match_field(
        &mut self,
        name: &str,
        relation: Relation,
        mask: Option<u64>,
        values: &Values,
    ) {
        match name {
            "tcp flags" => {
                for test in flag_tests(relation, mask, values) {
                    self.name(ElementKind::Field, name, ElementFacts::Flags(test));
                }
                return self.limit_to(Packets::Protocols {
                    tcp: true,
                    udp: false,
                });
            }
            "ip frag-off" => return self.match_fragments(relation, mask, values),
            "ct state" => return self.match_states(relation, mask, values),
            "meta l4proto" | "ip protocol" | "ip6 nexthdr"
                if mask.is_none() && relation != Relation::Ordered =>
            {
                self.limit_to(protocols(values, relation == Relation::NotAmong));
            }
            _ => self.limit_by_protocol(name),
        }
        if name.ends_with(" dport") || name.ends_with(" sport") {
            let known = if mask.is_none() { values } else { &None };
            self.limit_to_ports(name, relation, known);
        }
        if !name.ends_with(" sport") {
            self.name(ElementKind::Field, name, ElementFacts::None);
        }
    }

    /// A field of a protocol is looked at in packets of that protocol.
    fn limit_by_protocol(&mut self, name: &str) {
        match name.split(' ').next() {
            Some("tcp") => self.limit_to(Packets::Protocols {
                tcp: true,
                udp: false,
            }),
            Some("udp") => self.limit_to(Packets::Protocols {
                tcp: false,
                udp: true,
            }),
            Some(other) if OTHERS.contains(&other) => self.limit_to(Packets::Protocols {
                tcp: false,
                udp: false,
            }),
            _ => {}
        }
    }

    fn match_fragments(&mut self, relation: Relation, mask: Option<u64>, values: &Values) {
        let is_zero = values.as_deref() == Some(&[(0, 0)]);
        if relation == Relation::NotAmong
            && is_zero
            && mask.is_some_and(|mask| mask & NOT_FRAGMENT == 0)
        {
            return self.limit_to(Packets::KernelPath);
        }
        self.name(
            ElementKind::Field,
            "ip frag-off",
            mask.map_or(ElementFacts::None, ElementFacts::Mask),
        );
    }

    /// `ct state new` is a test of a bit, `ct state == new` and a set are tests of the value.
    fn match_states(&mut self, relation: Relation, mask: Option<u64>, values: &Values) {
        let listed = values
            .iter()
            .flatten()
            .fold(0, |bits, (first, _)| bits | first);
        let bits = match (relation, mask) {
            (Relation::NotAmong, Some(mask)) if listed == 0 => mask,
            (Relation::Among, _) => listed,
            _ => 0,
        };
        let states = keys::states(bits);
        let facts = if states.is_empty() {
            ElementFacts::None
        } else {
            ElementFacts::States(&states)
        };
        self.name(ElementKind::Field, "ct state", facts);
    }
}

/// One protocol or a set of them.
fn protocols(values: &Values, negated: bool) -> Packets {
    let known = values
        .as_ref()
        .filter(|values| values.iter().all(|(first, last)| first == last));
    let is = |number| known.is_none_or(|values| values.contains(&(number, number)) != negated);
    Packets::Protocols {
        tcp: is(6),
        udp: is(17),
    }
}

/// The tests a comparison of TCP flags makes; with a set, one for each element.
fn flag_tests(relation: Relation, mask: Option<u64>, values: &Values) -> Vec<FlagTest> {
    let Some(values) = values else {
        return vec![FlagTest::Other];
    };
    let tests: Vec<FlagTest> = values
        .iter()
        .map(|value| flag_test(relation, mask, *value))
        .collect();
    // A packet has to equal one of them: exact only if no replayed packet equals any.
    let is_never = |test: &FlagTest| {
        matches!(
            test,
            FlagTest::Equal { value, negated: false, .. } if value & CONTROL != 0,
        )
    };
    if tests.len() > 1 && !tests.iter().all(is_never) {
        vec![FlagTest::Other]
    } else {
        tests
    }
}

fn flag_test(relation: Relation, mask: Option<u64>, (first, last): (u64, u64)) -> FlagTest {
    let bits = (u8::try_from(mask.unwrap_or(ALL)), u8::try_from(first));
    match (relation, bits) {
        (Relation::Among, (Ok(mask), Ok(value))) if first == last => FlagTest::Equal {
            mask,
            value,
            negated: false,
        },
        (Relation::NotAmong, (Ok(bits), Ok(0))) if mask.is_some() => FlagTest::Any {
            mask: bits,
            negated: false,
        },
        (Relation::NotAmong, (Ok(mask), Ok(value))) if first == last => FlagTest::Equal {
            mask,
            value,
            negated: true,
        },
        _ => FlagTest::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_tested_by_bit_and_by_value() {
        let one = |value| Some(vec![(value, value)]);
        let equal = |mask, value, negated| {
            vec![FlagTest::Equal {
                mask,
                value,
                negated,
            }]
        };
        assert_eq!(
            flag_tests(Relation::Among, None, &one(2)),
            equal(0xff, 2, false)
        );
        assert_eq!(
            flag_tests(Relation::Among, Some(0x17), &one(2)),
            equal(0x17, 2, false)
        );
        assert_eq!(
            flag_tests(Relation::NotAmong, Some(0x17), &one(2)),
            equal(0x17, 2, true)
        );
        let any = vec![FlagTest::Any {
            mask: 2,
            negated: false,
        }];
        assert_eq!(flag_tests(Relation::NotAmong, Some(2), &one(0)), any);
        assert_eq!(
            flag_tests(Relation::Among, None, &Some(vec![(2, 2), (16, 16)])),
            [FlagTest::Other]
        );
        assert_eq!(
            flag_tests(Relation::Among, None, &Some(vec![(2, 2), (18, 18)])).len(),
            2
        );
        assert_eq!(
            flag_tests(Relation::Ordered, None, &one(2)),
            [FlagTest::Other]
        );
    }

    #[test]
    fn protocols_that_are_not_known_may_be_any() {
        let both = Packets::Protocols {
            tcp: true,
            udp: true,
        };
        assert_eq!(protocols(&None, false), both);
        assert_eq!(protocols(&Some(vec![(1, 200)]), false), both);
        assert_eq!(protocols(&Some(vec![(1, 1)]), true), both);
        assert_eq!(
            protocols(&Some(vec![(6, 6), (1, 1)]), false),
            Packets::Protocols {
                tcp: true,
                udp: false
            }
        );
    }
}
