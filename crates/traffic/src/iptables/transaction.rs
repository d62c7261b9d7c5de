//! The input of `iptables-restore --noflush` for one table. Pure.
//!
//! A chain that is declared (`:CHAIN`) is made or emptied; refilled in the same transaction it is
//! never seen empty.

use super::save::SavedChain;
use crate::{
    chain::{self, Ours},
    rule::{AddressMatch, KUBE_PROXY_MARK, Purpose, RuleVerdict, TrafficRule},
};

/// The table and the chains of the rules of a purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) table: &'static str,
    pub(super) chain: &'static str,
    /// The built-in chain that leads to ours.
    pub(super) parent: &'static str,
    /// The comment of each of our rules.
    pub(super) comment: &'static str,
}

impl Place {
    pub(super) const fn of(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Masquerade => Self {
                table: "nat",
                chain: "FLANNEL-POSTRTG",
                parent: "POSTROUTING",
                comment: "flanneld masq",
            },
            Purpose::Forward => Self {
                table: "filter",
                chain: "FLANNEL-FWD",
                parent: "FORWARD",
                comment: "flanneld forward",
            },
        }
    }

    /// Rules as `iptables-save` prints them.
    pub(super) fn specs(&self, rules: &[TrafficRule]) -> Vec<String> {
        rules.iter().map(|rule| self.spec(rule)).collect()
    }

    fn spec(&self, rule: &TrafficRule) -> String {
        let mut words = Vec::new();
        words.extend(address("-s", rule.source));
        words.extend(address("-d", rule.destination));
        words.extend(
            rule.marked
                .then(|| format!("-m mark --mark {KUBE_PROXY_MARK:#x}/{KUBE_PROXY_MARK:#x}")),
        );
        words.push(self.remark());
        words.push(
            match rule.verdict {
                RuleVerdict::Return => "-j RETURN",
                RuleVerdict::Accept => "-j ACCEPT",
                RuleVerdict::Masquerade { random_fully: true } => "-j MASQUERADE --random-fully",
                RuleVerdict::Masquerade {
                    random_fully: false,
                } => "-j MASQUERADE",
            }
            .to_owned(),
        );
        words.join(" ")
    }

    fn remark(&self) -> String {
        format!("-m comment --comment \"{}\"", self.comment)
    }

    /// The rule of the built-in chain.
    fn jump(&self) -> String {
        format!("{} -j {}", self.remark(), self.chain)
    }

    fn refill(&self, rules: &[String]) -> Vec<String> {
        let declared = format!(":{} - [0:0]", self.chain);
        std::iter::once(declared)
            .chain(rules.iter().map(|rule| format!("-A {} {rule}", self.chain)))
            .collect()
    }
}

fn address(option: &str, side: AddressMatch) -> Option<String> {
    match side {
        AddressMatch::Any => None,
        AddressMatch::In(net) => Some(format!("{option} {net}")),
        AddressMatch::NotIn(net) => Some(format!("! {option} {net}")),
    }
}

/// The lines that put `rules` in place; none when they are. A jump that is right keeps its place.
pub(super) fn install(
    place: &Place,
    found: &SavedChain,
    rules: &[String],
    ours: &Ours,
) -> Vec<String> {
    let content = chain::content(&found.rules, rules, ours);
    let mut lines = content
        .map(|content| place.refill(&content))
        .unwrap_or_default();
    let jump = place.jump();
    let mut missing = true;
    for (parent, rule) in found
        .jumps
        .iter()
        .filter(|(parent, _)| parent == place.parent)
    {
        // `-D` takes the first that is equal, so of several the last one stays: the one at our end
        // of the chain.
        if *rule != jump || !std::mem::take(&mut missing) {
            lines.push(format!("-D {parent} {rule}"));
        }
    }
    if missing {
        lines.push(format!("-A {} {jump}", place.parent));
    }
    lines
}

/// The lines that remove what is ours, and the chain unless others have rules in it.
pub(super) fn remove(place: &Place, found: &SavedChain, ours: &Ours) -> Vec<String> {
    if !found.exists {
        return Vec::new();
    }
    let content = chain::content(&found.rules, &[], ours);
    let left = content.as_ref().unwrap_or(&found.rules);
    if left.iter().any(|rule| !is_shared(rule)) {
        return content
            .map(|content| place.refill(&content))
            .unwrap_or_default();
    }
    let mut lines = place.refill(&[]);
    lines.extend(
        found
            .jumps
            .iter()
            .map(|(parent, rule)| format!("-D {parent} {rule}")),
    );
    lines.push(format!("-X {}", place.chain));
    lines
}

/// The rule about kube-proxy's mark names no network; every flannel of this host has it, and needs
/// it as long as it is there.
fn is_shared(rule: &str) -> bool {
    rule.starts_with("-m mark ") && rule.ends_with("-j RETURN")
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
