//! Integers and booleans as Go's `flag` package reads them.

/// Reads an integer with Go's base prefixes: `0x`, `0o` or a leading `0`, `0b`, else decimal.
/// Single underscores may separate digits, also after the prefix. A sign may come first.
pub(crate) fn parse_int(text: &str) -> Option<i64> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (digits, radix) = split_base(unsigned);
    let plain = without_underscores(digits, radix != 10)?;
    if !plain.bytes().all(|digit| digit.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = i128::from_str_radix(&plain, radix).ok()?;
    i64::try_from(if negative { -magnitude } else { magnitude }).ok()
}

/// Reads a boolean in one of the spellings Go accepts.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn split_base(text: &str) -> (&str, u32) {
    for (prefixes, radix) in [(["0x", "0X"], 16), (["0o", "0O"], 8), (["0b", "0B"], 2)] {
        if let Some(digits) = prefixes.iter().find_map(|prefix| text.strip_prefix(prefix)) {
            return (digits, radix);
        }
    }
    match text.strip_prefix('0') {
        Some(digits) if !digits.is_empty() => (digits, 8),
        _ => (text, 10),
    }
}

/// Removes the underscores if each stands alone between digits (or after a base prefix).
fn without_underscores(digits: &str, after_prefix: bool) -> Option<String> {
    let leading = digits.starts_with('_') && !after_prefix;
    if leading || digits.ends_with('_') || digits.contains("__") {
        None
    } else {
        Some(digits.replace('_', ""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_go_base_prefixes() {
        for (text, value) in [
            ("0", 0),
            ("60", 60),
            ("+60", 60),
            ("-60", -60),
            ("0x3c", 60),
            ("0X3C", 60),
            ("-0x3c", -60),
            ("074", 60),
            ("0o74", 60),
            ("0b11_1100", 60),
            ("1_000", 1000),
            ("0x_ff", 255),
            ("0_7", 7),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(parse_int(text), Some(value), "{text}");
        }
        for text in [
            "",
            "-",
            "0x",
            "08",
            "1__0",
            "_1",
            "1_",
            "1.0",
            "6 0",
            "--1",
            "+-1",
            "9223372036854775808",
            "a",
        ] {
            assert_eq!(parse_int(text), None, "{text}");
        }
    }

    #[test]
    fn booleans_have_go_spellings() {
        for text in ["1", "t", "T", "true", "TRUE", "True"] {
            assert_eq!(parse_bool(text), Some(true), "{text}");
        }
        for text in ["0", "f", "F", "false", "FALSE", "False"] {
            assert_eq!(parse_bool(text), Some(false), "{text}");
        }
        for text in ["", "yes", "tRUE", "on", "2"] {
            assert_eq!(parse_bool(text), None, "{text}");
        }
    }
}
