//! Input of `iptables-restore --noflush`, of either variant.
//!
//! The ways into our chains stay for as long as the lab; chains of rules come and go.

use std::fmt::Write as _;

use super::{Addresses, client_ports, comment, protocol, rules, target};
use crate::{
    differential::scenario::{
        Action, Compare, Direction, Hook, Match, Rule, Scenario, Scope, Side, State, Table, Tool,
    },
    fast::Family,
};

fn chain(hook: Hook) -> String {
    format!("DIFF-{}", hook.name())
}

fn own_chain(rule: &Rule) -> String {
    format!("DIFF-R{}", rule.id)
}

/// The ways into our chains, before all other rules.
pub fn entries() -> String {
    each_table(|text, table| {
        for hook in table.hooks() {
            writeln!(text, ":{} - [0:0]", chain(*hook))?;
        }
        for hook in table.hooks() {
            writeln!(text, "-I {} 1 -j {}", hook.name(), chain(*hook))?;
        }
        Ok(())
    })
}

fn each_table(mut write: impl FnMut(&mut String, Table) -> std::fmt::Result) -> String {
    let mut text = String::new();
    for table in Table::ALL {
        writeln!(text, "*{}", table.name()).expect("memory");
        write(&mut text, table).expect("memory");
        text.push_str("COMMIT\n");
    }
    text
}

/// The rules of one variant and family on a node.
pub fn install(
    scenario: &Scenario,
    addresses: &Addresses,
    side: Side,
    tool: Tool,
    family: Family,
) -> String {
    each_table(|text, table| {
        let rules: Vec<_> = rules(scenario, side, tool, family)
            .filter(|rule| rule.table == table)
            .collect();
        declare(text, table, &rules)?;
        for rule in rules {
            let chain = chain(rule.hook);
            let (scope, conditions) = (scope(rule, scenario), conditions(rule, addresses));
            let action = action(rule, scenario, addresses);
            let comment = format!("-m comment --comment {}", comment(rule));
            if rule.nested {
                writeln!(text, "-A {chain} {scope} -j {}", own_chain(rule))?;
                writeln!(
                    text,
                    "-A {} {scope} {conditions} {comment} {action}",
                    own_chain(rule)
                )?;
            } else {
                writeln!(text, "-A {chain} {scope} {conditions} {comment} {action}")?;
            }
        }
        Ok(())
    })
}

/// Naming a chain empties it.
fn declare(text: &mut String, table: Table, rules: &[&Rule]) -> std::fmt::Result {
    for hook in table.hooks() {
        writeln!(text, ":{} - [0:0]", chain(*hook))?;
    }
    for rule in rules.iter().filter(|rule| rule.nested) {
        writeln!(text, ":{} - [0:0]", own_chain(rule))?;
    }
    Ok(())
}

/// Takes the rules away again.
pub fn remove(scenario: &Scenario, side: Side, tool: Tool, family: Family) -> String {
    each_table(|text, table| {
        let rules: Vec<_> = rules(scenario, side, tool, family)
            .filter(|rule| rule.table == table)
            .collect();
        declare(text, table, &rules)?;
        rules
            .iter()
            .filter(|rule| rule.nested)
            .try_for_each(|rule| writeln!(text, "-X {}", own_chain(rule)))
    })
}

fn scope(rule: &Rule, scenario: &Scenario) -> String {
    match &rule.scope {
        Scope::Flows(ids, direction) => {
            let end = if *direction == Direction::Forward {
                "--sports"
            } else {
                "--dports"
            };
            let protocol = protocol(scenario, ids).name();
            format!(
                "-p {protocol} -m multiport {end} {}",
                client_ports(ids, ",")
            )
        }
        Scope::All(protocol) => format!("-p {}", protocol.name()),
        Scope::Outer => "-p udp --dport 8472".to_owned(),
    }
}

fn conditions(rule: &Rule, addresses: &Addresses) -> String {
    let conditions: Vec<_> = rule
        .matches
        .iter()
        .map(|one| condition(one, rule.family, addresses))
        .collect();
    conditions.join(" ")
}

fn condition(one: &Match, family: Family, addresses: &Addresses) -> String {
    let list = |places: &[_]| -> String {
        let all: Vec<_> = places
            .iter()
            .map(|place| addresses.of(*place, family).to_string())
            .collect();
        all.join(",")
    };
    match one {
        Match::Dscp(value, true) => format!("-m dscp ! --dscp {value}"),
        Match::Dscp(value, false) => format!("-m dscp --dscp {value}"),
        Match::Ttl(compare, value) => {
            let name = if family == Family::V4 { "ttl" } else { "hl" };
            let compare = match compare {
                Compare::Equal => "eq",
                Compare::Below => "lt",
                Compare::Above => "gt",
            };
            format!("-m {name} --{name}-{compare} {value}")
        }
        Match::Mark(mark) => format!("-m mark --mark {mark}"),
        Match::ConnMark(mark) => format!("-m connmark --mark {mark}"),
        Match::State(state) => format!("-m conntrack --ctstate {}", state_name(*state)),
        Match::Sources(places) => format!("-s {}", list(places)),
        Match::Destinations(places) => format!("-d {}", list(places)),
        // ip6tables has only the match for TOS.
        Match::Ecn(value) if family == Family::V4 => format!("-m ecn --ecn-ip-ect {value}"),
        Match::Ecn(value) => format!("-m tos --tos {value:#x}/0x03"),
        Match::Longer(length) => format!("-m length --length {}:65535", length + 1),
        Match::Push => "-m tcp --tcp-flags PSH PSH".to_owned(),
        Match::Helper => "-m helper --helper ftp".to_owned(),
    }
}

const fn state_name(state: State) -> &'static str {
    match state {
        State::New => "NEW",
        State::Established => "ESTABLISHED",
        State::Invalid => "INVALID",
    }
}

fn action(rule: &Rule, scenario: &Scenario, addresses: &Addresses) -> String {
    let target = match rule.action {
        Action::Count => return String::new(),
        Action::Accept => "ACCEPT".to_owned(),
        Action::Drop => "DROP".to_owned(),
        Action::Reject => "REJECT".to_owned(),
        Action::SetMark(mark) => format!("MARK --set-mark {mark}"),
        Action::SetConnMark(mark) => format!("CONNMARK --set-mark {mark}"),
        Action::SaveMark => "CONNMARK --save-mark".to_owned(),
        Action::RestoreMark => "CONNMARK --restore-mark".to_owned(),
        Action::SetDscp(value) => format!("DSCP --set-dscp {value}"),
        Action::SetTtl(value) if rule.family == Family::V4 => format!("TTL --ttl-set {value}"),
        Action::SetTtl(value) => format!("HL --hl-set {value}"),
        Action::Copy(place) => format!("TEE --gateway {}", addresses.of(place, rule.family)),
        Action::Log => "NFLOG --nflog-group 5".to_owned(),
        Action::Queue => "NFQUEUE --queue-num 0 --queue-bypass".to_owned(),
        Action::Masquerade => "MASQUERADE".to_owned(),
        Action::Redirect(flow) => match target(scenario, addresses, flow) {
            Some(target) => format!("DNAT --to-destination {target}"),
            None => "ACCEPT".to_owned(),
        },
        Action::AssignHelper => "CT --helper ftp".to_owned(),
    };
    format!("-j {target}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::{generate, render::test_addresses};

    #[test]
    fn what_is_declared_is_what_is_used_and_removed() {
        for seed in 0..100 {
            let scenario = generate::scenario(seed);
            for (side, family) in [(Side::A, Family::V4), (Side::B, Family::V6)] {
                let tool = Tool::IptablesLegacy;
                let text = install(&scenario, &test_addresses(), side, tool, family);
                let removal = remove(&scenario, side, tool, family);
                for chain in text
                    .split_ascii_whitespace()
                    .filter(|word| word.starts_with("DIFF-R"))
                {
                    assert!(
                        text.contains(&format!(":{chain} - "))
                            && removal.contains(&format!("-X {chain}\n"))
                    );
                }
                let count = rules(&scenario, side, tool, family).count();
                assert_eq!(text.matches("--comment diff-").count(), count, "{text}");
            }
        }
    }
}
