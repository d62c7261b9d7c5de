//! The value of a switch that may name one address family.

use flannel_traffic::MasqueradeFamilies;

use crate::{OneOf, values::go_values::parse_bool};

/// The form of a value, for messages.
pub(crate) const EXPECTED: &str = "true, false, ipv4 or ipv6";

const NAMES: [(&str, MasqueradeFamilies); 4] = [
    ("true", MasqueradeFamilies::BOTH),
    ("false", MasqueradeFamilies::NONE),
    (
        "ipv4",
        MasqueradeFamilies {
            v4: true,
            v6: false,
        },
    ),
    (
        "ipv6",
        MasqueradeFamilies {
            v4: false,
            v6: true,
        },
    ),
];

/// Returns the value in the one spelling that [`parser`] takes; `None` when it is malformed.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let spelling = parse_bool(text).map_or_else(|| text.to_owned(), |both| both.to_string());
    parse(&spelling).ok().map(|_| spelling)
}

/// The parser of such a flag.
pub fn parser() -> OneOf<MasqueradeFamilies> {
    OneOf::new(NAMES.map(|(name, _)| name), parse)
}

fn parse(text: &str) -> Result<MasqueradeFamilies, String> {
    let found = NAMES.iter().find(|(name, _)| *name == text);
    found
        .map(|(_, families)| *families)
        .ok_or_else(|| format!("expected {EXPECTED}"))
}
