//! The rules both kinds of test go through: unit tests with recorded text, and `main.rs` with the
//! real tools.

use std::collections::BTreeSet;

use super::PerPacket;

/// A rule, and what is to be named of it.
pub(crate) struct Case<'a> {
    /// Kind and name of the entry it stands for.
    pub(crate) entry: &'a str,
    /// The element that is named; empty if the rule is exact.
    pub(crate) named: &'a str,
    /// Family, table and chain, or family and hook.
    pub(crate) place: Vec<&'a str>,
    pub(crate) rule: &'a str,
    /// The same as JSON, for nft.
    pub(crate) json: &'a str,
}

/// The cases of a file.
pub(crate) fn read(text: &str) -> Vec<Case<'_>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let case = |line| {
        let parts: Vec<&str> = str::splitn(line, 5, " ::").map(str::trim).collect();
        let [entry, named, place, rule, ref json @ ..] = parts[..] else { panic!("{line}") };
        let json = json.first().copied().unwrap_or_default();
        Case { entry, named, place: place.split(' ').collect(), rule, json }
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
