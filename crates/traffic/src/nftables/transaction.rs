//! The input of `nft -f -` that brings our table into the desired state. Pure.

use flannel_firewall_tools::listed::{ListedChain, ListedTable};
use flannel_host::family::Family;
use ipnet::IpNet;

use super::family_names::{protocol, table};
use crate::{
    chain::{self, Ours},
    rule::{AddressMatch, Chains, KUBE_PROXY_MARK, Purpose, RuleVerdict, TrafficRule},
};

/// One of our base chains.
struct Base {
    name: &'static str,
    hook: &'static str,
    comment: &'static str,
}

const fn base(purpose: Purpose) -> Base {
    match purpose {
        Purpose::Masquerade => Base {
            name: "postrtg",
            hook: "type nat hook postrouting priority srcnat; policy accept;",
            comment: "chain to manage traffic masquerading by flannel",
        },
        Purpose::Forward => Base {
            name: "forward",
            hook: "type filter hook forward priority filter; policy accept;",
            comment: "chain to accept flannel traffic",
        },
    }
}

/// The transaction; empty when the table is as it is wanted.
pub(super) fn text(
    family: Family,
    found: Option<&ListedTable>,
    chains: &Chains,
    ours: &Ours,
) -> String {
    let of = format!("{} {}", protocol(family), table(family));
    let keeps = chains.iter().any(|(_, rules)| rules.is_some());
    let mut lines = Vec::new();
    match found {
        None if !keeps => return String::new(),
        None => lines.push(format!(
            "add table {of} {{ comment \"rules for {}\"; }}",
            table(family)
        )),
        Some(found) if !keeps && !has_others(found, ours) => return format!("delete table {of}\n"),
        Some(_) => {}
    }
    for (purpose, rules) in chains {
        let base = base(*purpose);
        let there = found.and_then(|found| found.chains.get(base.name));
        lines.extend(match rules {
            Some(rules) => {
                let rules: Vec<_> = rules.iter().map(|rule| spec(family, rule)).collect();
                install(&of, &base, there, &rules, ours)
            }
            None => remove(&of, &base, there, ours),
        });
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

/// Returns true if our table has foreign content.
fn has_others(found: &ListedTable, ours: &Ours) -> bool {
    let known = |name: &str| {
        Purpose::ALL
            .iter()
            .any(|purpose| base(*purpose).name == name)
    };
    let all_ours = |chain: &ListedChain| {
        chain
            .rules
            .iter()
            .all(|rule| is_shared(rule) || ours.has(rule))
    };
    let others = found.more
        || found
            .chains
            .iter()
            .any(|(name, chain)| !known(name) || !all_ours(chain));
    others && *ours != Ours::All
}

fn install(
    of: &str,
    base: &Base,
    found: Option<&ListedChain>,
    rules: &[String],
    ours: &Ours,
) -> Vec<String> {
    let Base {
        name,
        hook,
        comment,
    } = base;
    let content = chain::content(found.map_or(&[], |chain| &chain.rules), rules, ours);
    let rehang = found.is_some_and(|chain| chain.hook != *hook);
    let mut lines = Vec::new();
    if rehang {
        lines.push(format!("delete chain {of} {name}"));
    }
    if found.is_none() || rehang {
        lines.push(format!(
            "add chain {of} {name} {{ {hook} comment \"{comment}\"; }}"
        ));
    }
    let kept = || found.map(|chain| chain.rules.clone()).unwrap_or_default();
    if let Some(content) = content.or_else(|| rehang.then(kept)) {
        lines.extend(refill(of, name, &content));
    }
    lines
}

/// Removes what is ours, and the chain unless others have rules in it.
fn remove(of: &str, base: &Base, found: Option<&ListedChain>, ours: &Ours) -> Vec<String> {
    let Some(chain) = found else {
        return Vec::new();
    };
    let content = chain::content(&chain.rules, &[], ours);
    let left = content.as_ref().unwrap_or(&chain.rules);
    if left.iter().all(|rule| is_shared(rule)) {
        return vec![format!("delete chain {of} {}", base.name)];
    }
    content
        .map(|content| refill(of, base.name, &content))
        .unwrap_or_default()
}

fn refill(of: &str, name: &str, rules: &[String]) -> Vec<String> {
    let flush = format!("flush chain {of} {name}");
    std::iter::once(flush)
        .chain(
            rules
                .iter()
                .map(|rule| format!("add rule {of} {name} {rule}")),
        )
        .collect()
}

/// The rule about kube-proxy's mark names no network; every flannel of this host has it.
fn is_shared(rule: &str) -> bool {
    rule.starts_with("meta mark ") && rule.ends_with(" return")
}

/// A rule as `nft list` prints it.
fn spec(family: Family, rule: &TrafficRule) -> String {
    let protocol = protocol(family);
    let mut words = Vec::new();
    words.extend(
        rule.marked
            .then(|| format!("meta mark {KUBE_PROXY_MARK:#010x}")),
    );
    words.extend(address(protocol, "saddr", rule.source));
    words.extend(address(protocol, "daddr", rule.destination));
    words.push(
        match rule.verdict {
            RuleVerdict::Return => "return",
            RuleVerdict::Accept => "accept",
            RuleVerdict::Masquerade { random_fully: true } => "masquerade fully-random",
            RuleVerdict::Masquerade {
                random_fully: false,
            } => "masquerade",
        }
        .to_owned(),
    );
    words.join(" ")
}

fn address(protocol: &str, field: &str, side: AddressMatch) -> Option<String> {
    match side {
        AddressMatch::Any => None,
        AddressMatch::In(net) => Some(format!("{protocol} {field} {}", network(net))),
        AddressMatch::NotIn(net) => Some(format!("{protocol} {field} != {}", network(net))),
    }
}

/// A network as `nft list` prints it: a single address has no prefix length.
fn network(net: IpNet) -> String {
    if net.prefix_len() == net.max_prefix_len() {
        net.addr().to_string()
    } else {
        net.to_string()
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
