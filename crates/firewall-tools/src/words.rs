//! Words of a line that `iptables-save` printed. Pure.

use std::borrow::Cow;

/// Splits a line at blanks, except in quotation marks, where a backslash takes the next character
/// as it is.
pub fn split(line: &str) -> Vec<Cow<'_, str>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, after) = first(rest);
        words.push(word);
        rest = after.trim_start();
    }
    words
}

fn first(line: &str) -> (Cow<'_, str>, &str) {
    if let Some(quoted) = line.strip_prefix('"') {
        return unquote(quoted);
    }
    let (word, after) = line.split_at(line.find(' ').unwrap_or(line.len()));
    (Cow::Borrowed(word), after)
}

/// The text up to the closing mark, and what follows it.
fn unquote(quoted: &str) -> (Cow<'_, str>, &str) {
    let (mut text, mut chars) = (String::new(), quoted.char_indices());
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return (Cow::Owned(text), &quoted[at + 1..]),
            '\\' => text.extend(chars.next().map(|(_, escaped)| escaped)),
            char => text.push(char),
        }
    }
    (Cow::Owned(text), "")
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn quoted_text_is_one_word() {
        assert_eq!(
            split(r#"-A X  -m comment --comment "a -m \"limit\" \\" -j Y"#),
            [
                "-A",
                "X",
                "-m",
                "comment",
                "--comment",
                r#"a -m "limit" \"#,
                "-j",
                "Y"
            ]
        );
        assert_eq!(split("\"open"), ["open"]);
        assert_eq!(split("  "), [""; 0]);
    }
}
