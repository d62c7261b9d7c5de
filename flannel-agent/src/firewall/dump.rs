//! The rules in a dump of the `save` tools of iptables and ebtables. Pure.

use super::model::{HostChain, HostRule, Ruleset};
use crate::rules::{
    saved::{self, SavedLine},
    words,
};

/// Reads a dump of one family. `chain` reads name and policy of a chain, `rule` the options of a
/// rule in a chain, in a table named by family and name (`ip filter`).
pub(super) fn read(
    family: &str,
    text: &str,
    chain: fn(&str, &str, &str) -> HostChain,
    rule: fn(&str, &str, &[&str]) -> HostRule,
) -> Ruleset {
    let (mut found, mut table) = (Ruleset::default(), String::new());
    for line in saved::lines(text) {
        match line {
            SavedLine::Table(name) => table = format!("{family} {name}"),
            SavedLine::Chain { name, rest } => found.chains.push(chain(&table, name, rest)),
            SavedLine::Rule { chain, options } => {
                let words = words::split(options);
                let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
                found.rules.push(rule(&table, chain, &words));
            }
            SavedLine::Remark(_) => {}
        }
    }
    found
}
