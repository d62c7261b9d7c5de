//! Reads our chain from the output of `iptables-save`. Pure.

use super::{TrafficError, transaction::Place};
use crate::rules::saved::{self, SavedLine};

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
        for line in saved::lines(saved) {
            match line {
                SavedLine::Rule { chain, options } if chain == place.chain => found.rules.push(options.to_owned()),
                SavedLine::Rule { chain, options } if leads_to(options, place.chain) => {
                    found.jumps.push((chain.to_owned(), options.to_owned()));
                }
                SavedLine::Chain { name, .. } => found.exists |= name == place.chain,
                SavedLine::Remark(text) if text.contains("is incompatible, use") => {
                    return Err(TrafficError::Incompatible { table: place.table });
                }
                _ => {}
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
