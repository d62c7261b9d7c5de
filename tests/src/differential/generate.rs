//! Scenarios from seeds. Pure: a seed makes the same scenario everywhere.
//!
//! Values are few, so that rules meet packets: three marks, four DSCPs, four TTLs.

use super::{
    random::Random,
    scenario::{
        Action, Compare, Direction, Ending, Flow, Hook, Kind, Match, Phases, Place, Rule, Scenario,
        Scope, Side, State, Surroundings, Table, Tool, Varying, Via,
    },
};
use crate::{fast::Family, load::rr::Protocol};

/// DSCPs of packets and of rules.
pub const DSCPS: [u8; 4] = [0, 8, 10, 46];
/// TTLs of packets.
pub const TTLS: [u8; 4] = [64, 40, 128, 7];
const MARKS: [u32; 3] = [1, 2, 3];
/// Seeds every run begins with: together they have what comes up seldom.
pub const FIRST: [u64; 5] = [33, 25, 7, 56, 11];
/// Flows of a scenario.
const FLOWS: u16 = 16;

/// The scenario of a seed.
pub fn scenario(seed: u64) -> Scenario {
    let mut random = Random::new(seed);
    let flows: Vec<Flow> = (0..FLOWS).map(|id| flow(&mut random, id)).collect();
    let mut made = Vec::new();
    for _ in 0..3 + random.below(4) {
        made.extend(rules(&mut random, &flows));
    }
    for ftp in flows.iter().filter(|flow| flow.kind == Kind::Ftp) {
        made.extend(helper(&mut random, ftp));
    }
    for (id, rule) in (0..).zip(&mut made) {
        rule.id = id;
    }
    let after_silence = random.one_in(3).then_some(40);
    let surroundings = Surroundings {
        filters: random.one_in(8),
        wire: random.one_in(3),
    };
    let phases = Phases {
        warm_up: 70,
        varying: 60,
        after_silence,
    };
    Scenario {
        seed,
        rules: made,
        flows,
        phases,
        surroundings,
    }
}

fn flow(random: &mut Random, id: u16) -> Flow {
    let kind = match random.below(16) {
        0..=8 => Kind::Datagrams,
        9 => Kind::Refused,
        10 => Kind::Segmented,
        11..=13 => Kind::Messages,
        14 => Kind::Bulk,
        _ => Kind::Ftp,
    };
    let family = if random.one_in(2) {
        Family::V4
    } else {
        Family::V6
    };
    let to = random.pick(&[Place::Far, Place::Far, Place::Other, Place::Beside]);
    let is_service = kind == Kind::Ftp || kind != Kind::Refused && random.one_in(3);
    let mut half = || random.one_in(2);
    let varying = Varying {
        dscp: half(),
        ecn: kind == Kind::Datagrams && half(),
        ttl: half(),
        length: half(),
        label: kind == Kind::Datagrams && half(),
        fragments: kind == Kind::Datagrams && half() && half(),
    };
    let ending = random.pick(&[
        Ending::Open,
        Ending::Open,
        Ending::Close,
        Ending::Reset,
        Ending::Reuse,
    ]);
    // Both ends of a helper's connection name ports; one of them is enough.
    let family = if kind == Kind::Ftp {
        Family::V4
    } else {
        family
    };
    let to = if kind == Kind::Ftp && id.is_multiple_of(2) {
        Place::Far
    } else {
        to
    };
    let via = if is_service {
        Via::Service
    } else {
        Via::Direct
    };
    Flow {
        id,
        family,
        kind,
        to,
        via,
        varying,
        ending,
        seed: random.next(),
    }
}

/// A rule without a place yet.
fn rule(random: &mut Random, family: Family, place: (Table, Hook), scope: Scope) -> Rule {
    Rule {
        id: 0,
        side: if random.one_in(3) { Side::B } else { Side::A },
        tool: random.pick(&Tool::ALL),
        family,
        table: place.0,
        hook: place.1,
        nested: random.one_in(3),
        scope,
        matches: Vec::new(),
        action: Action::Count,
    }
}

fn family(random: &mut Random) -> Family {
    if random.one_in(2) {
        Family::V4
    } else {
        Family::V6
    }
}

fn direction(random: &mut Random) -> Direction {
    random.pick(&[Direction::Forward, Direction::Forward, Direction::Reply])
}

/// Some flows of one family and protocol.
fn some_flows(random: &mut Random, flows: &[Flow]) -> (Family, Scope) {
    let (family, protocol) = (
        family(random),
        if random.one_in(3) {
            Protocol::Tcp
        } else {
            Protocol::Udp
        },
    );
    let all: Vec<u16> = flows
        .iter()
        .filter(|flow| flow.family == family && flow.protocol() == protocol)
        .map(|flow| flow.id)
        .collect();
    let mut ids: Vec<u16> = all.iter().copied().filter(|_| random.one_in(2)).collect();
    if ids.is_empty() {
        ids = all.into_iter().take(1).collect();
    }
    if ids.is_empty() || random.one_in(8) {
        return (family, Scope::All(protocol));
    }
    (family, Scope::Flows(ids, direction(random)))
}

/// Chains in which pods' packets are changed.
const CHANGES: [(Table, Hook); 3] = [
    (Table::Mangle, Hook::Prerouting),
    (Table::Mangle, Hook::Forward),
    (Table::Mangle, Hook::Postrouting),
];
/// Chains in which pods' packets are judged.
const JUDGES: [(Table, Hook); 4] = [
    (Table::Filter, Hook::Forward),
    (Table::Filter, Hook::Forward),
    (Table::Mangle, Hook::Forward),
    (Table::Raw, Hook::Prerouting),
];

/// One rule, or a few that work together.
fn rules(random: &mut Random, flows: &[Flow]) -> Vec<Rule> {
    match random.below(15) {
        0..=2 => judged_by_field(random, flows),
        3..=4 => changed(random, flows),
        5..=7 => marked_then_met(random, flows),
        8 => per_packet(random, flows),
        9 => copied(random, flows),
        10 => conn_marked(random, flows),
        11 => by_state(random, flows),
        12 => translated(random, flows),
        13 if random.one_in(2) => queued(random, flows),
        _ => by_pods(random, flows),
    }
}

/// DSCP or TTL.
fn field(random: &mut Random) -> Match {
    if random.one_in(3) {
        let (compare, value) = random.pick(&[
            (Compare::Below, 30),
            (Compare::Above, 100),
            (Compare::Equal, 63),
            (Compare::Equal, 39),
        ]);
        Match::Ttl(compare, value)
    } else {
        Match::Dscp(random.pick(&DSCPS), random.one_in(3))
    }
}

fn verdict_or_change(random: &mut Random, table: Table) -> Action {
    match (table, random.below(5)) {
        (Table::Filter, 0) => Action::Reject,
        (Table::Mangle, 0) => Action::SetMark(random.pick(&MARKS)),
        (Table::Mangle, 1) => Action::SetDscp(random.pick(&DSCPS)),
        (Table::Mangle, 2) => Action::SetTtl(random.pick(&[30, 99, 200])),
        (_, 3) => Action::Count,
        _ => Action::Drop,
    }
}

fn judged_by_field(random: &mut Random, flows: &[Flow]) -> Vec<Rule> {
    let (family, scope) = some_flows(random, flows);
    let place = if random.one_in(2) {
        random.pick(&JUDGES)
    } else {
        random.pick(&CHANGES)
    };
    let mut rule = rule(random, family, place, scope);
    rule.matches.push(field(random));
    rule.action = verdict_or_change(random, rule.table);
    vec![rule]
}

/// Without a condition: bleached, or given a class.
fn changed(random: &mut Random, flows: &[Flow]) -> Vec<Rule> {
    let (family, scope) = some_flows(random, flows);
    let place = random.pick(&CHANGES);
    let mut rule = rule(random, family, place, scope);
    rule.action = match random.below(3) {
        0 => Action::SetTtl(random.pick(&[30, 99, 200])),
        _ => Action::SetDscp(random.pick(&DSCPS)),
    };
    vec![rule]
}

/// A mark, and what meets it later: on the packet itself, or on the tunnel.
fn marked_then_met(random: &mut Random, flows: &[Flow]) -> Vec<Rule> {
    let (family, scope) = some_flows(random, flows);
    let mark = random.pick(&MARKS);
    let place = random.pick(&CHANGES[..2]);
    let mut marks = rule(random, family, place, scope.clone());
    if random.one_in(3) {
        marks.matches.push(field(random));
    }
    marks.action = Action::SetMark(mark);
    let outer = [
        (Table::Filter, Hook::Output),
        (Table::Mangle, Hook::Output),
        (Table::Mangle, Hook::Postrouting),
    ];
    let mut meets = if random.one_in(3) {
        let place = random.pick(&[
            (Table::Filter, Hook::Forward),
            (Table::Mangle, Hook::Postrouting),
        ]);
        rule(random, family, place, scope)
    } else {
        let place = random.pick(&outer);
        rule(random, family, place, Scope::Outer)
    };
    meets.side = marks.side;
    meets.matches.push(Match::Mark(mark));
    meets.action = match (meets.table, random.below(4)) {
        (Table::Mangle, 0 | 1) => Action::SetDscp(random.pick(&DSCPS[1..])),
        (_, 2) => Action::Count,
        // nat has no part here, and the filter table of iptables cannot drop in postrouting.
        _ => Action::Drop,
    };
    vec![marks, meets]
}

/// Returns a rule about fields that differ between packets and do not belong to a flow.
fn per_packet(random: &mut Random, flows: &[Flow]) -> Vec<Rule> {
    let flow = random.pick(flows);
    let scope = Scope::Flows(vec![flow.id], direction(random));
    let place = random.pick(&CHANGES);
    let mut rule = rule(random, flow.family, place, scope);
    rule.matches.push(match (flow.protocol(), random.below(3)) {
        (Protocol::Tcp, 0) => Match::Push,
        (Protocol::Udp, 0) => Match::Ecn(random.pick(&[1, 2, 3])),
        _ => Match::Longer(200),
    });
    rule.action = match (flow.protocol(), verdict_or_change(random, rule.table)) {
        // Each packet that is lost ends a conversation.
        (Protocol::Tcp, Action::Drop) => Action::SetDscp(10),
        (_, action) => action,
    };
    vec![rule]
}

fn copied(random: &mut Random, flows: &[Flow]) -> Vec<Rule> {
    let flow = random.pick(flows);
    let scope = Scope::Flows(vec![flow.id], Direction::Forward);
    let place = random.pick(&CHANGES);
    let mut rule = rule(random, flow.family, place, scope);
    rule.action = if random.one_in(2) || flow.kind == Kind::Segmented {
        Action::Log
    } else {
        let monitor = match (rule.side, flow.to) {
            (Side::A, _) => Place::Beside,
            (Side::B, Place::Far) => Place::Other,
            (Side::B, _) => Place::Far,
        };
        if monitor == flow.to {
            Action::Log
        } else {
            Action::Copy(monitor)
        }
    };
    vec![rule]
}

/// Conntrack's mark: set, made the packet's, and met.
fn conn_marked(random: &mut Random, flows: &[Flow]) -> Vec<Rule> {
    let (family, scope) = some_flows(random, flows);
    let mark = random.pick(&MARKS);
    let mut sets = rule(
        random,
        family,
        (Table::Mangle, Hook::Prerouting),
        scope.clone(),
    );
    sets.action = Action::SetConnMark(mark);
    let mut made = vec![sets.clone()];
    if random.one_in(3) {
        made[0].action = Action::SetMark(mark);
        made.push(Rule {
            action: Action::SaveMark,
            tool: made[0].tool,
            ..sets.clone()
        });
    }
    let mut restores = rule(
        random,
        family,
        (Table::Mangle, Hook::Forward),
        scope.clone(),
    );
    restores.side = sets.side;
    restores.action = Action::RestoreMark;
    let mut meets = rule(random, family, (Table::Mangle, Hook::Postrouting), scope);
    meets.side = sets.side;
    meets.matches.push(if random.one_in(2) {
        Match::ConnMark(mark)
    } else {
        Match::Mark(mark)
    });
    meets.action = Action::SetDscp(random.pick(&DSCPS));
    made.extend([restores, meets]);
    made
}

fn by_state(random: &mut Random, flows: &[Flow]) -> Vec<Rule> {
    let (family, scope) = some_flows(random, flows);
    let place = random.pick(&[
        (Table::Filter, Hook::Forward),
        (Table::Mangle, Hook::Postrouting),
    ]);
    let mut rule = rule(random, family, place, scope);
    let (state, action) = random.pick(&[
        (State::New, Action::Count),
        (State::Established, Action::Accept),
        (State::Invalid, Action::Drop),
        (State::Established, Action::Count),
    ]);
    rule.matches.push(Match::State(state));
    rule.action = action;
    vec![rule]
}

fn translated(random: &mut Random, flows: &[Flow]) -> Vec<Rule> {
    let flow = random.pick(flows);
    if !matches!(flow.kind, Kind::Datagrams | Kind::Messages) {
        return Vec::new();
    }
    let scope = Scope::Flows(vec![flow.id], Direction::Forward);
    let is_source = flow.via == Via::Service || random.one_in(2);
    let hook = if is_source {
        Hook::Postrouting
    } else {
        Hook::Prerouting
    };
    let mut rule = rule(random, flow.family, (Table::Nat, hook), scope);
    // Only the first node: it must see the replies to the packets that it translates.
    rule.side = Side::A;
    rule.action = if is_source {
        Action::Masquerade
    } else {
        Action::Redirect(flow.id)
    };
    vec![rule]
}

fn by_pods(random: &mut Random, flows: &[Flow]) -> Vec<Rule> {
    let (family, scope) = some_flows(random, flows);
    let place = random.pick(&CHANGES);
    let mut rule = rule(random, family, place, scope);
    let pods = vec![
        random.pick(&Place::ALL),
        random.pick(&[Place::Far, Place::Beside]),
    ];
    rule.matches.push(if random.one_in(2) {
        Match::Sources(pods)
    } else {
        Match::Destinations(pods)
    });
    rule.action = verdict_or_change(random, rule.table);
    if rule.action.ends_packet() {
        rule.matches.push(field(random));
    }
    vec![rule]
}

/// By a program in userspace, which only iptables reaches on every kernel.
fn queued(random: &mut Random, flows: &[Flow]) -> Vec<Rule> {
    let flow = random.pick(flows);
    let scope = Scope::Flows(vec![flow.id], direction(random));
    let mut rule = rule(random, flow.family, (Table::Mangle, Hook::Forward), scope);
    rule.tool = random.pick(&[Tool::IptablesNft, Tool::IptablesLegacy]);
    rule.action = Action::Queue;
    vec![rule]
}

/// On the client's node, which translates.
fn helper(random: &mut Random, flow: &Flow) -> Vec<Rule> {
    let scope = Scope::Flows(vec![flow.id], Direction::Forward);
    let mut assigns = rule(
        random,
        flow.family,
        (Table::Raw, Hook::Prerouting),
        scope.clone(),
    );
    assigns.side = Side::A;
    if assigns.tool == Tool::Nft {
        // nft assigns helpers behind conntrack.
        assigns.table = Table::Mangle;
    }
    assigns.action = Action::AssignHelper;
    let mut meets = rule(
        random,
        flow.family,
        (Table::Mangle, Hook::Postrouting),
        scope,
    );
    meets.side = Side::A;
    meets.matches.push(Match::Helper);
    meets.action = Action::SetDscp(8);
    let with_match = usize::from(random.one_in(2));
    [assigns, meets].into_iter().take(1 + with_match).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn many() -> impl Iterator<Item = Scenario> {
        (0..500).map(scenario)
    }

    #[test]
    fn the_first_seeds_have_what_is_rare() {
        let scenarios = FIRST.map(scenario);
        let has = |what: fn(&Scenario) -> bool| scenarios.iter().any(what);
        assert!(has(|one| one.surroundings.filters) && has(|one| one.surroundings.wire));
        assert!(
            has(|one| !one.queues().is_empty()) && has(|one| one.phases.after_silence.is_some())
        );
        assert!(has(|one| one
            .rules
            .iter()
            .any(|rule| matches!(rule.action, Action::Copy(_)))));
        assert!(has(|one| one
            .rules
            .iter()
            .any(|rule| rule.action == Action::Masquerade)));
        assert!(has(|one| one
            .rules
            .iter()
            .any(|rule| matches!(rule.action, Action::Redirect(_)))));
        let drops = |rule: &Rule| rule.scope == Scope::Outer && rule.action == Action::Drop;
        assert!(scenarios.iter().any(|one| one.rules.iter().any(drops)));
        for kind in [Kind::Ftp, Kind::Segmented, Kind::Bulk] {
            assert!(
                scenarios
                    .iter()
                    .any(|one| one.flows.iter().any(|flow| flow.kind == kind))
            );
        }
    }

    #[test]
    fn a_seed_makes_one_scenario() {
        assert_eq!(scenario(42), scenario(42));
        assert_ne!(scenario(42).flows, scenario(43).flows);
    }

    #[test]
    fn rules_stand_where_their_tables_have_hooks() {
        for scenario in many() {
            for (id, rule) in (0..).zip(&scenario.rules) {
                assert_eq!(rule.id, id);
                assert!(
                    rule.table.hooks().contains(&rule.hook),
                    "seed {}: {rule:?}",
                    scenario.seed
                );
                if let Scope::Flows(ids, _) = &rule.scope {
                    let flows: Vec<_> = ids.iter().filter_map(|id| scenario.flow(*id)).collect();
                    assert!(!flows.is_empty() && flows.len() == ids.len());
                    assert!(
                        flows.iter().all(|flow| flow.family == rule.family),
                        "seed {}: {rule:?}",
                        scenario.seed
                    );
                    assert!(
                        flows
                            .iter()
                            .all(|flow| flow.protocol() == flows[0].protocol())
                    );
                }
            }
        }
    }

    #[test]
    fn what_ends_packets_has_a_condition() {
        for rule in many().flat_map(|scenario| scenario.rules) {
            assert!(
                !rule.action.ends_packet() || !rule.matches.is_empty(),
                "{rule:?}"
            );
            assert!(
                rule.action != Action::Reject || rule.table == Table::Filter,
                "{rule:?}"
            );
        }
    }

    #[test]
    fn everything_a_scenario_can_hold_comes_up() {
        let scenarios: Vec<_> = many().collect();
        let rules = || scenarios.iter().flat_map(|scenario| &scenario.rules);
        let flows = || scenarios.iter().flat_map(|scenario| &scenario.flows);
        for table in Table::ALL {
            for hook in [
                Hook::Prerouting,
                Hook::Forward,
                Hook::Output,
                Hook::Postrouting,
            ] {
                let is_expected = !matches!(
                    (table, hook),
                    (Table::Raw | Table::Nat, Hook::Output | Hook::Forward)
                        | (Table::Raw | Table::Filter, Hook::Postrouting)
                        | (Table::Filter, Hook::Prerouting)
                );
                assert_eq!(
                    rules().any(|rule| (rule.table, rule.hook) == (table, hook)),
                    is_expected,
                    "{table:?} {hook:?}"
                );
            }
        }
        for tool in Tool::ALL {
            assert!(
                rules().any(|rule| rule.tool == tool && rule.nested),
                "{tool:?}"
            );
        }
        assert!(
            rules().any(Rule::is_per_packet) && rules().any(|rule| rule.action.is_per_packet())
        );
        for kind in [
            Kind::Datagrams,
            Kind::Refused,
            Kind::Segmented,
            Kind::Messages,
            Kind::Bulk,
            Kind::Ftp,
        ] {
            for via in [Via::Direct, Via::Service] {
                let is_possible = !matches!(
                    (kind, via),
                    (Kind::Refused, Via::Service) | (Kind::Ftp, Via::Direct)
                );
                assert_eq!(
                    flows().any(|flow| flow.kind == kind && flow.via == via),
                    is_possible,
                    "{kind:?} {via:?}"
                );
            }
        }
    }
}
