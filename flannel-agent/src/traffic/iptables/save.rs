//! Reads our chain from the output of `iptables-save`. Pure.

use super::{TrafficError, transaction::Place};

/// Our chain in one table, and the rules that lead to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SavedChain {
    /// True if our chain exists.
    pub(super) exists: bool,
    /// The rules in it, as `-A <chain>` would take them.
    pub(super) rules: Vec<String>,
    /// Rules of other chains that lead into it: chain and rule.
    pub(super) jumps: Vec<(String, String)>,
}

impl SavedChain {
    /// Reads one table. Nothing but our chain is looked at: a node may have tens of thousands of
    /// other rules.
    pub(super) fn parse(saved: &str, place: &Place) -> Result<Self, TrafficError> {
        let mut found = Self::default();
        for line in saved.lines() {
            if let Some((chain, rule)) = line.strip_prefix("-A ").and_then(|rest| rest.split_once(' ')) {
                if chain == place.chain {
                    found.rules.push(rule.to_owned());
                } else if leads_to(rule, place.chain) {
                    found.jumps.push((chain.to_owned(), rule.to_owned()));
                }
            } else if let Some(chain) = line.strip_prefix(':') {
                found.exists |= chain.split(' ').next() == Some(place.chain);
            } else if line.starts_with('#') && line.contains("is incompatible, use") {
                return Err(TrafficError::Incompatible { table: place.table });
            }
        }
        Ok(found)
    }
}

fn leads_to(rule: &str, chain: &str) -> bool {
    let target = rule.split_once(" -j ").or_else(|| rule.split_once(" -g "));
    let target = target.map(|(_, target)| target).or_else(|| rule.strip_prefix("-j ").or(rule.strip_prefix("-g ")));
    target.is_some_and(|target| target.split(' ').next() == Some(chain))
}
