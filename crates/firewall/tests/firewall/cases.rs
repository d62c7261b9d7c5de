//! The rules both kinds of test go through: unit tests with text as the tools print it, and
//! `main.rs` with the real tools.

use std::collections::BTreeSet;

use super::PerPacket;

/// A rule, and the element that the findings must name.
pub(crate) struct Case<'a> {
    /// Kind and name of the entry it stands for.
    pub(crate) entry: &'a str,
    /// The element that is named; empty if the rule is exact.
    pub(crate) named: &'a str,
    /// Family, table and chain, or family and hook.
    pub(crate) place: Vec<&'a str>,
    pub(crate) rule: &'a str,
}

/// The cases of a file.
pub(crate) fn read(text: &str) -> Vec<Case<'_>> {
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let case = |line| {
        let parts: Vec<&str> = str::splitn(line, 4, " ::").map(str::trim).collect();
        let [entry, named, place, rule] = parts[..] else {
            panic!("{line}")
        };
        Case {
            entry,
            named,
            place: place.split(' ').collect(),
            rule,
        }
    };
    lines.map(case).collect()
}

/// All that is named of a chain, of whatever packets.
pub(crate) fn named(found: &[PerPacket], chain: &str) -> String {
    let place = |found: &&PerPacket| found.chain.split(" on ").next() == Some(chain);
    let labels: BTreeSet<&str> = found
        .iter()
        .filter(place)
        .flat_map(|found| [&found.pods, &found.received, &found.sent])
        .flatten()
        .map(String::as_str)
        .collect();
    labels.into_iter().collect::<Vec<_>>().join(", ")
}
