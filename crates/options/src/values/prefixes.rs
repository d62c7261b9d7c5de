//! Lists of addresses and prefixes.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::check::Checks;

/// Reads the values of a repeatable flag, each with one prefix or several between commas. An
/// address counts as a prefix of full length. Host bits are cleared, and duplicates are removed.
pub(crate) fn read(
    checks: &mut Checks,
    flag: &'static str,
    values: &[String],
    expected: &'static str,
) -> Vec<IpNet> {
    let parse = |text: &str| {
        text.parse()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
            .ok()
    };
    let mut prefixes = Vec::new();
    for text in values
        .iter()
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|text| !text.is_empty())
    {
        match parse(text).as_ref().map(IpNet::trunc) {
            Some(prefix) if prefixes.contains(&prefix) => {}
            Some(prefix) => prefixes.push(prefix),
            None => checks.refuse(flag, text, expected),
        }
    }
    prefixes
}
