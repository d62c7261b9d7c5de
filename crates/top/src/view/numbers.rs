//! Numbers in three digits, because they change while they are read.

use crate::board::{Rate, float};

const PREFIXES: [&str; 5] = ["", " k", " M", " G", " T"];

/// A rate, or `-` where none is known.
pub fn rate(rate: Rate) -> String {
    rate.map_or_else(|| "-".to_owned(), short)
}

/// A number of packets so far.
pub(crate) fn total(number: u64) -> String {
    short(float(number))
}

/// A share of 1 in percent, or `-`. A hundred means all of it.
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(
        || "-".to_owned(),
        |share| {
            format!(
                "{:.0} %",
                if share < 1.0 {
                    (share * 100.0).min(99.0)
                } else {
                    100.0
                }
            )
        },
    )
}

/// A bar of ten cells, filled by a share of 1.
pub(crate) fn bar(share: Option<f64>) -> String {
    let filled = (1..=10)
        .filter(|cell| share.is_some_and(|share| share * 10.0 >= f64::from(*cell) - 0.5))
        .count();
    format!("{}{}", "█".repeat(filled), "░".repeat(10 - filled))
}

/// A number in three digits and a prefix.
fn short(number: f64) -> String {
    let mut scaled = number;
    let mut prefix = 0;
    while scaled >= 999.5 && prefix + 1 < PREFIXES.len() {
        scaled /= 1000.0;
        prefix += 1;
    }
    let text = if scaled < 9.95 && (prefix > 0 || scaled.fract() != 0.0) {
        format!("{scaled:.1}")
    } else {
        format!("{scaled:.0}")
    };
    text + PREFIXES[prefix]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_prefix() {
        for (number, text) in [
            (0.0, "0"),
            (0.5, "0.5"),
            (7.0, "7"),
            (42.4, "42"),
            (999.4, "999"),
            (999.6, "1.0 k"),
            (12_345.0, "12 k"),
            (9_960_000.0, "10 M"),
            (1.5e9, "1.5 G"),
            (2e18, "2000000 T"),
        ] {
            assert_eq!(short(number), text, "{number}");
        }
        assert_eq!(rate(None), "-");
    }

    #[test]
    fn a_hundred_percent_is_all_of_it() {
        assert_eq!(
            [Some(1.0), Some(0.9999), Some(0.0), None].map(percent),
            ["100 %", "99 %", "0 %", "-"]
        );
        assert_eq!(
            [Some(1.0), Some(0.5), None].map(bar),
            ["██████████", "█████░░░░░", "░░░░░░░░░░"]
        );
    }
}
