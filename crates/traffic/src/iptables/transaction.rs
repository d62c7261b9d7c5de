//! The input of `iptables-restore --noflush` for one table. Pure.
//!
//! A chain that is declared (`:CHAIN`) is made or emptied; refilled in the same transaction it is
//! never seen empty.

use super::{place::Place, save::SavedChain};
use crate::chain::{self, Ours};

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
