//! Reads our chain from the output of `iptables-save` and `iptables -S`. Pure.

use flannel_firewall_tools::saved::{self, SavedLine};

use super::{TrafficError, place::Place};

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
    /// Adds a line. Keeps only our chain: a node may have tens of thousands of other rules.
    pub(super) fn add(&mut self, line: &str, place: &Place) -> Result<(), TrafficError> {
        match saved::line(line) {
            Some(SavedLine::Rule { chain, options }) if chain == place.chain => {
                self.rules.push(options.to_owned());
            }
            Some(SavedLine::Rule { chain, options }) if leads_to(options, place.chain) => {
                self.jumps.push((chain.to_owned(), options.to_owned()));
            }
            Some(SavedLine::Chain { name, .. }) => self.exists |= name == place.chain,
            Some(SavedLine::Remark(text)) if is_incompatible(text) => {
                return Err(TrafficError::Incompatible { table: place.table });
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns true if a tool says that rules are in the way which it did not write.
pub(super) fn is_incompatible(message: &str) -> bool {
    message.contains("is incompatible, use")
}

fn leads_to(rule: &str, chain: &str) -> bool {
    let target = rule.split_once(" -j ").or_else(|| rule.split_once(" -g "));
    let target = target
        .map(|(_, target)| target)
        .or_else(|| rule.strip_prefix("-j ").or(rule.strip_prefix("-g ")));
    target.is_some_and(|target| target.split(' ').next() == Some(chain))
}
