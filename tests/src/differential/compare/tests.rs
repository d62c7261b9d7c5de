//! Small records, and the judgement of each difference.

use super::*;
use crate::{
    differential::{
        frame::Header,
        generate,
        scenario::{Hook, Side, Table, Tool},
    },
    fast::Family,
};

fn scenario(rules: Vec<Rule>) -> Scenario {
    let mut scenario = generate::scenario(1);
    scenario.flows.truncate(1);
    scenario.flows[0].kind = Kind::Datagrams;
    scenario.flows[0].family = Family::V4;
    scenario.rules = rules;
    scenario
}

fn rule(matches: Vec<Match>, action: Action) -> Rule {
    let scope = Scope::Flows(vec![0], Direction::Forward);
    let (table, hook, family) = (Table::Mangle, Hook::Forward, Family::V4);
    Rule {
        id: 0,
        side: Side::A,
        tool: Tool::Nft,
        family,
        table,
        hook,
        nested: false,
        scope,
        matches,
        action,
    }
}

fn record(tos: impl Fn(u32) -> Option<u8>) -> Record {
    let mut record = Record::default();
    let end = "10.0.0.1:1".parse().expect("an address");
    for number in 0..10 {
        let key = Key {
            flow: 0,
            direction: Direction::Forward,
            number,
        };
        if let Some(tos) = tos(number) {
            let header = Header {
                ethernet: [0; 12],
                source: end,
                destination: end,
                tos,
                ttl: 64,
                df: false,
                id: 1,
                label: 0,
                length: 100,
                checksum: 7,
                is_tcp: false,
            };
            record.deliver(key);
            record.headers.insert(key, header);
        }
    }
    record
}

fn judged(rules: Vec<Rule>, kernel: &Record, fast: &Record) -> Vec<(Aspect, Option<&'static str>)> {
    let found = differences(&scenario(rules), kernel, fast);
    found
        .into_iter()
        .map(|difference| (difference.aspect, difference.allowed.map(|row| row.name)))
        .collect()
}

#[test]
fn equal_records_do_not_differ() {
    let one = record(|number| Some(if number > 5 { 8 } else { 0 }));
    assert_eq!(
        judged(vec![rule(vec![], Action::SetDscp(2))], &one, &one),
        []
    );
}

#[test]
fn a_field_that_differs_is_a_defect_unless_a_rule_judges_single_packets() {
    let (kernel, fast) = (
        record(|number| Some(if number > 5 { 8 } else { 0 })),
        record(|_| Some(0)),
    );
    let by_class = rule(vec![Match::Dscp(2, false)], Action::Count);
    assert_eq!(
        judged(vec![by_class], &kernel, &fast),
        [(Aspect::Field("dscp"), None)]
    );
    let by_length = rule(vec![Match::Longer(200)], Action::SetDscp(2));
    assert_eq!(
        judged(vec![by_length.clone()], &kernel, &fast),
        [(Aspect::Field("dscp"), Some(CHANGES.name))]
    );
    let others = record(|_| Some(0x40));
    assert_eq!(
        judged(vec![by_length], &kernel, &others),
        [(Aspect::Field("dscp"), None)]
    );
}

#[test]
fn data_may_leave_as_an_acknowledgement_that_no_record_has() {
    let mut scenario = scenario(vec![rule(vec![Match::Push], Action::SetDscp(2))]);
    let flow = &mut scenario.flows[0];
    flow.varying.dscp = false;
    let sent = packets::fields(flow, Direction::Forward, 0, scenario.phases).tos();
    let (kernel, fast) = (
        record(|_| Some(8)),
        record(|number| Some(if number > 5 { sent } else { 8 })),
    );
    for (kind, allowed) in [(Kind::Messages, Some(CHANGES)), (Kind::Datagrams, None)] {
        scenario.flows[0].kind = kind;
        let found = differences(&scenario, &kernel, &fast);
        let found: Vec<_> = found
            .into_iter()
            .map(|difference| (difference.aspect, difference.allowed))
            .collect();
        assert_eq!(found, [(Aspect::Field("dscp"), allowed)], "{kind:?}");
    }
}

#[test]
fn packets_may_pass_but_none_may_be_lost() {
    let (all, some) = (
        record(|_| Some(0)),
        record(|number| (number < 5).then_some(0)),
    );
    let by_length = || vec![rule(vec![Match::Longer(200)], Action::Drop)];
    assert_eq!(
        judged(by_length(), &some, &all),
        [(Aspect::Passed, Some(VERDICTS.name))]
    );
    assert_eq!(judged(by_length(), &all, &some), [(Aspect::Lost, None)]);
    assert_eq!(judged(vec![], &some, &all), [(Aspect::Passed, None)]);
}

#[test]
fn counters_count_less_unless_they_drop() {
    let counted = |count| Record {
        counters: [(0, count)].into(),
        ..Record::default()
    };
    let count =
        |action, kernel, fast| judged(vec![rule(vec![], action)], &counted(kernel), &counted(fast));
    assert_eq!(
        count(Action::Count, 9, 3),
        [(Aspect::Counter(0), Some(COUNTERS.name))]
    );
    assert_eq!(count(Action::Count, 3, 9), [(Aspect::Counter(0), None)]);
    assert_eq!(count(Action::Drop, 9, 3), [(Aspect::Counter(0), None)]);
}

#[test]
fn copies_are_fewer_but_not_none() {
    let copied = |count| Record {
        copies: [((0, Direction::Forward), count)].into(),
        ..Record::default()
    };
    assert_eq!(
        judged(vec![], &copied(9), &copied(2)),
        [(Aspect::Copies, Some(COPIES.name))]
    );
    assert_eq!(
        judged(vec![], &copied(9), &copied(0)),
        [(Aspect::Copies, None)]
    );
    assert_eq!(
        judged(vec![], &copied(0), &copied(1)),
        [(Aspect::Copies, None)]
    );
}
