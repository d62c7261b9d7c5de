//! The lines that the `save` tools of iptables and ebtables print. Pure.

use super::{
    model::{HostChain, HostRule, Ruleset},
    words,
};

/// Reads a dump of one family. `chain` and `rule` read a line of their kind, without its mark, in a
/// table named by family and name (`ip filter`).
pub(super) fn read(
    family: &str,
    text: &str,
    chain: fn(&str, &str) -> Option<HostChain>,
    rule: fn(&str, &[&str]) -> Option<HostRule>,
) -> Ruleset {
    let (mut found, mut table) = (Ruleset::default(), String::new());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = format!("{family} {name}");
        } else if let Some(line) = line.strip_prefix(':') {
            found.chains.extend(chain(&table, line));
        } else if let Some(line) = line.strip_prefix("-A ") {
            let words = words::split(line);
            let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
            found.rules.extend(rule(&table, &words));
        }
    }
    found
}
