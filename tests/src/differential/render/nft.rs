//! Input of `nft -f`: one table of the tests for each family, made again in one transaction.

use std::fmt::Write as _;

use super::{Addresses, client_ports, comment, protocol, rules, target};
use crate::{
    differential::scenario::{
        Action, Compare, Direction, Hook, Match, Place, Rule, Scenario, Scope, Side, State, Table,
        Tool,
    },
    fast::Family,
};

/// The name of the table, with its family.
pub fn table(family: Family) -> String {
    format!("{} diff", family.nft())
}

/// Takes the table away, whether it is there or not.
pub fn remove(family: Family) -> String {
    let table = table(family);
    format!("add table {table}\ndelete table {table}\n")
}

/// The rules of one family on a node, instead of those before.
pub fn install(scenario: &Scenario, addresses: &Addresses, side: Side, family: Family) -> String {
    let all: Vec<_> = rules(scenario, side, Tool::Nft, family).collect();
    let mut text = remove(family);
    if all.is_empty() {
        return text;
    }
    write_table(&mut text, scenario, addresses, family, &all).expect("memory");
    text
}

fn write_table(
    text: &mut String,
    scenario: &Scenario,
    addresses: &Addresses,
    family: Family,
    all: &[&Rule],
) -> std::fmt::Result {
    writeln!(text, "table {} {{", table(family))?;
    if all.iter().any(|rule| rule.action == Action::AssignHelper) {
        writeln!(text, "ct helper diff-ftp {{ type \"ftp\" protocol tcp; }}")?;
    }
    for rule in all {
        write_set(text, rule, addresses)?;
        if rule.nested {
            writeln!(
                text,
                "chain r{} {{\n{}\n}}",
                rule.id,
                line(rule, scenario, addresses)
            )?;
        }
    }
    for table in Table::ALL {
        for hook in table.hooks() {
            let here: Vec<_> = all
                .iter()
                .filter(|rule| (rule.table, rule.hook) == (table, *hook))
                .collect();
            if here.is_empty() {
                continue;
            }
            let kind = if table == Table::Nat { "nat" } else { "filter" };
            let (name, hook_name) = (table.name(), hook.name().to_ascii_lowercase());
            writeln!(text, "chain {name}-{hook_name} {{")?;
            writeln!(
                text,
                "type {kind} hook {hook_name} priority {};",
                priority(table, *hook)
            )?;
            for rule in here {
                if rule.nested {
                    writeln!(text, "{} jump r{}", scope(rule, scenario), rule.id)?;
                } else {
                    writeln!(text, "{}", line(rule, scenario, addresses))?;
                }
            }
            writeln!(text, "}}")?;
        }
    }
    writeln!(text, "}}")
}

/// Those of iptables' tables.
const fn priority(table: Table, hook: Hook) -> i32 {
    match (table, hook) {
        (Table::Raw, _) => -300,
        (Table::Mangle, _) => -150,
        (Table::Nat, Hook::Postrouting) => 100,
        (Table::Nat, _) => -100,
        (Table::Filter, _) => 0,
    }
}

/// Addresses a rule looks up.
fn write_set(text: &mut String, rule: &Rule, addresses: &Addresses) -> std::fmt::Result {
    for one in &rule.matches {
        if let Match::Sources(places) | Match::Destinations(places) = one {
            let kind = if rule.family == Family::V4 {
                "ipv4_addr"
            } else {
                "ipv6_addr"
            };
            let mut places: Vec<Place> = places.clone();
            places.sort_unstable();
            places.dedup();
            let all: Vec<_> = places
                .iter()
                .map(|place| addresses.of(*place, rule.family).to_string())
                .collect();
            writeln!(
                text,
                "set s{} {{ type {kind}; elements = {{ {} }} }}",
                rule.id,
                all.join(", ")
            )?;
        }
    }
    Ok(())
}

fn line(rule: &Rule, scenario: &Scenario, addresses: &Addresses) -> String {
    let mut words = vec![scope(rule, scenario)];
    words.extend(rule.matches.iter().map(|one| condition(one, rule)));
    words.push("counter".to_owned());
    words.push(action(rule, scenario, addresses));
    words.push(format!("comment \"{}\"", comment(rule)));
    words.retain(|word| !word.is_empty());
    words.join(" ")
}

fn scope(rule: &Rule, scenario: &Scenario) -> String {
    match &rule.scope {
        Scope::Flows(ids, direction) => {
            let end = if *direction == Direction::Forward {
                "sport"
            } else {
                "dport"
            };
            format!(
                "{} {end} {{ {} }}",
                protocol(scenario, ids).name(),
                client_ports(ids, ", ")
            )
        }
        Scope::All(protocol) => format!("meta l4proto {}", protocol.name()),
        Scope::Outer => "udp dport 8472".to_owned(),
    }
}

fn condition(one: &Match, rule: &Rule) -> String {
    let family = rule.family.nft();
    match one {
        Match::Dscp(value, true) => format!("{family} dscp != {value}"),
        Match::Dscp(value, false) => format!("{family} dscp {value}"),
        Match::Ttl(compare, value) => {
            let compare = match compare {
                Compare::Equal => "==",
                Compare::Below => "<",
                Compare::Above => ">",
            };
            format!("{family} {} {compare} {value}", ttl_name(rule.family))
        }
        Match::Mark(mark) => format!("meta mark {mark}"),
        Match::ConnMark(mark) => format!("ct mark {mark}"),
        Match::State(State::New) => "ct state new".to_owned(),
        Match::State(State::Established) => "ct state established".to_owned(),
        Match::State(State::Invalid) => "ct state invalid".to_owned(),
        Match::Sources(_) => format!("{family} saddr @s{}", rule.id),
        Match::Destinations(_) => format!("{family} daddr @s{}", rule.id),
        Match::Ecn(value) => format!("{family} ecn {value}"),
        Match::Longer(length) => format!("meta length > {length}"),
        Match::Push => "tcp flags & psh == psh".to_owned(),
        Match::Helper => "ct helper \"ftp\"".to_owned(),
    }
}

const fn ttl_name(family: Family) -> &'static str {
    match family {
        Family::V4 => "ttl",
        Family::V6 => "hoplimit",
    }
}

fn action(rule: &Rule, scenario: &Scenario, addresses: &Addresses) -> String {
    let family = rule.family.nft();
    match rule.action {
        Action::Count => String::new(),
        // Not every kernel has a listener for nft's queue; iptables has the queue's rules.
        Action::Accept | Action::Queue => "accept".to_owned(),
        Action::Drop => "drop".to_owned(),
        Action::Reject => "reject".to_owned(),
        Action::SetMark(mark) => format!("meta mark set {mark}"),
        Action::SetConnMark(mark) => format!("ct mark set {mark}"),
        Action::SaveMark => "ct mark set meta mark".to_owned(),
        Action::RestoreMark => "meta mark set ct mark".to_owned(),
        Action::SetDscp(value) => format!("{family} dscp set {value}"),
        Action::SetTtl(value) => format!("{family} {} set {value}", ttl_name(rule.family)),
        Action::Copy(place) => format!("dup to {}", addresses.of(place, rule.family)),
        Action::Log => "log group 5".to_owned(),
        Action::Masquerade => "masquerade".to_owned(),
        Action::Redirect(flow) => match target(scenario, addresses, flow) {
            Some(target) => format!(
                "meta l4proto {} dnat to {target}",
                protocol(scenario, &[flow]).name()
            ),
            None => "accept".to_owned(),
        },
        Action::AssignHelper => "ct helper set \"diff-ftp\"".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::{generate, render::test_addresses};

    #[test]
    fn every_rule_is_written_once_and_chains_are_closed() {
        for seed in 0..100 {
            let scenario = generate::scenario(seed);
            for family in Family::ALL {
                let text = install(&scenario, &test_addresses(), Side::A, family);
                let count = rules(&scenario, Side::A, Tool::Nft, family).count();
                assert_eq!(text.matches("comment \"diff-").count(), count, "{text}");
                assert_eq!(
                    text.matches('{').count(),
                    text.matches('}').count(),
                    "{text}"
                );
            }
        }
    }
}
