//! Rules of any bytes: each is judged, and none ends the agent.

use std::time::Duration;

use flannel_netfilter::{Attributes, Expression};

use super::{
    keys,
    rule::RuleReader,
    set_facts::{SetFacts, Sets},
};
use crate::model::{ChainHook, HostRule, Ruleset};

const PORT: u16 = 8472;
const FAMILIES: [u8; 4] = [keys::INET, keys::IPV4, keys::IPV6, keys::BRIDGE];

/// Sets that have values, or not, by their names.
struct AnySets;

impl Sets for AnySets {
    fn facts(&mut self, name: &str) -> SetFacts {
        let length = u32::try_from(name.len()).unwrap_or_default();
        let values = name
            .starts_with('_')
            .then(|| vec![(vec![0, 80], vec![0x21, 0x18]), (vec![6], vec![17])]);
        let timeout = name.ends_with('t').then_some(Duration::from_secs(1));
        SetFacts {
            key_length: length,
            values,
            timeout,
            ..SetFacts::default()
        }
    }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).expect("short");
    let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

fn text(kind: u16, text: &str) -> Vec<u8> {
    attribute(kind, format!("{text}\0").as_bytes())
}

fn data(kind: u16, value: &[u8]) -> Vec<u8> {
    attribute(kind, &attribute(1, value))
}

fn expression(name: &str, attributes: &[Vec<u8>]) -> Vec<u8> {
    attribute(
        1,
        &[text(1, name), attribute(2, &attributes.concat())].concat(),
    )
}

fn payload(base: u32, offset: u32, length: u32) -> Vec<u8> {
    expression(
        "payload",
        &[
            number(1, 1),
            number(2, base),
            number(3, offset),
            number(4, length),
        ],
    )
}

fn compare(op: u32, value: &[u8]) -> Vec<u8> {
    expression("cmp", &[number(1, 1), number(2, op), data(3, value)])
}

/// The expressions of a rule.
type Rule = Vec<Vec<u8>>;

fn protocol() -> Vec<u8> {
    let load = expression("meta", &[number(1, 1), number(2, 16)]);
    [load, compare(0, &[6])].concat()
}

fn masked() -> Vec<u8> {
    let value = [
        number(1, 1),
        number(2, 1),
        number(3, 2),
        data(4, &[0xff, 0]),
        data(5, &[0, 0]),
    ];
    expression("bitwise", &value)
}

fn jump() -> Vec<u8> {
    let verdict = attribute(2, &[number(1, u32::MAX - 2), text(2, "KUBE")].concat());
    expression("immediate", &[number(1, 0), attribute(2, &verdict)])
}

fn rules_with_comparisons() -> Vec<Rule> {
    vec![
        vec![protocol(), payload(2, 2, 2), compare(0, &[0, 80]), jump()],
        vec![payload(1, 6, 2), masked(), compare(1, &[0, 0])],
        vec![
            protocol(),
            payload(2, 2, 2),
            compare(5, &[0, 80]),
            compare(3, &[0x21, 0x18]),
        ],
        vec![
            payload(1, 16, 4),
            expression(
                "range",
                &[
                    number(1, 1),
                    number(2, 0),
                    data(3, &[10; 4]),
                    data(4, &[11; 4]),
                ],
            ),
        ],
        vec![
            payload(2, 0, 4),
            expression("lookup", &[text(1, "__set0"), number(2, 1), number(5, 1)]),
        ],
        vec![
            expression("ct", &[number(1, 1), number(2, 0)]),
            masked(),
            compare(1, &[0, 0, 0, 0]),
        ],
        vec![
            expression("limit", &[number(1, 5)]),
            expression("reject", &[]),
        ],
    ]
}

fn rules_with_state() -> Vec<Rule> {
    vec![
        vec![expression(
            "dynset",
            &[
                text(1, "set"),
                number(2, 1),
                number(3, 1),
                attribute(6, &[0; 8]),
            ],
        )],
        vec![
            expression("objref", &[number(1, 4), text(2, "object")]),
            expression("numgen", &[number(1, 1)]),
        ],
        vec![
            expression(
                "hash",
                &[number(1, 1), number(2, 1), number(3, 8), number(7, 0)],
            ),
            payload(0, 12, 2),
        ],
    ]
}

fn rules_with_extensions() -> Vec<Rule> {
    vec![
        vec![expression(
            "match",
            &[text(1, "tcp"), number(2, 0), attribute(3, &[0; 16])],
        )],
        vec![expression(
            "match",
            &[text(1, "multiport"), number(2, 1), attribute(3, &[1; 48])],
        )],
        vec![expression(
            "match",
            &[text(1, "conntrack"), number(2, 3), attribute(3, &[1; 168])],
        )],
        vec![expression(
            "target",
            &[text(1, "DNAT"), number(2, 2), attribute(3, &[1; 44])],
        )],
        vec![expression(
            "target",
            &[text(1, "IDLETIMER"), number(2, 1), attribute(3, &[1; 48])],
        )],
        vec![
            expression("exthdr", &[number(1, 1), number(2, 2), number(6, 1)]),
            expression("fib", &[number(1, 1)]),
        ],
        vec![expression(
            "nat",
            &[number(1, 1), number(2, 2), number(3, 1), number(5, 2)],
        )],
    ]
}

/// Rules with expressions of each kind, each behind the number of a family.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let rules = [
        rules_with_comparisons(),
        rules_with_state(),
        rules_with_extensions(),
    ];
    rules
        .concat()
        .iter()
        .enumerate()
        .map(|(n, rule)| {
            [
                vec![u8::try_from(n).unwrap_or(0)],
                attribute(4, &rule.concat()),
            ]
            .concat()
        })
        .collect()
}

/// The first byte is the family.
#[test]
fn fuzz_nftables_rules() {
    let seeds = seeds();
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    flannel_fuzz::run("nftables_rules", &seeds, |input| {
        let Some((first, rule)) = input.split_first() else {
            return;
        };
        let family = FAMILIES[usize::from(*first) % FAMILIES.len()];
        let expressions: Vec<Expression<'_>> =
            Attributes::new(rule).list(4).map(Expression::new).collect();
        let table = format!("{} filter", keys::family(family).expect("a family"));
        let mut rules = Ruleset::new(Some(PORT));
        let hook = ChainHook {
            at: "forward".to_owned(),
            ..ChainHook::default()
        };
        rules.add_chain(&table, "FORWARD", Some(hook));
        rules.add(
            RuleReader::new(&mut AnySets, family, HostRule::new(&table, "FORWARD"))
                .read(&expressions),
        );
        rules.per_packet();
        rules.at_port();
        rules.dropping_policies("forward");
    });
}
