//! Durations as people write and read them: `45s`, `5m20s`, `23h54m`, `3d5h`.

use std::{fmt::Write as _, time::Duration};

/// Seconds of each unit, the largest first.
const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// Formats seconds in the two largest units.
pub fn format(seconds: u64) -> String {
    let largest = UNITS
        .iter()
        .position(|(_, unit)| seconds >= *unit)
        .unwrap_or(UNITS.len() - 1);
    let mut rest = seconds;
    let mut text = String::new();
    for (name, unit) in UNITS.iter().skip(largest).take(2) {
        let count = rest / unit;
        rest %= unit;
        if count > 0 || text.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{count}{name}");
        }
    }
    text
}

/// Parses seconds, or numbers with units from the largest to the smallest.
pub fn parse(text: &str) -> Result<Duration, String> {
    let expected =
        || format!("{text:?} is no duration; write seconds, or for example 90s, 5m or 1h30m");
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let mut units = UNITS.iter();
    let mut seconds = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let (digits, after) = rest.split_at(
            rest.find(|c: char| !c.is_ascii_digit())
                .ok_or_else(expected)?,
        );
        let name = after.chars().next().ok_or_else(expected)?;
        let (_, unit) = units
            .find(|(known, _)| *known == name)
            .ok_or_else(expected)?;
        let count: u64 = digits.parse().map_err(|_not_a_number| expected())?;
        seconds = count
            .checked_mul(*unit)
            .and_then(|more| seconds.checked_add(more))
            .ok_or_else(expected)?;
        rest = &after[name.len_utf8()..];
    }
    if text.is_empty() {
        Err(expected())
    } else {
        Ok(Duration::from_secs(seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_largest_units_are_written() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (320, "5m20s"),
            (3_605, "1h"),
            (86_079, "23h54m"),
            (86_400, "1d"),
            (277_230, "3d5h"),
        ] {
            assert_eq!(format(seconds), text);
        }
    }

    #[test]
    fn units_are_read_from_the_largest_on() {
        for (text, seconds) in [
            ("90", 90),
            ("90s", 90),
            ("5m", 300),
            ("1h30m", 5_400),
            ("1d1s", 86_401),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for bad in [
            "",
            "-1",
            "5x",
            "m",
            "5m5",
            "5m1h",
            "5m5m",
            "99999999999999999999s",
            "1.5h",
            "30\u{e9}",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
