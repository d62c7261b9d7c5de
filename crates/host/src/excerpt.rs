//! Text of others as it is logged and shown: cut to a length that harms no log.
//!
//! Values of leases, annotations, configurations and answers of servers may be megabytes. What is
//! shown of one is its beginning and how much is left out.

use std::fmt::{self, Write as _};

/// Characters shown of a value, escape sequences counted as they are written.
const OF_VALUE: usize = 120;
/// Characters shown of a message.
const OF_MESSAGE: usize = 500;

/// The beginning of a text. [`fmt::Display`] writes it as it is, [`fmt::Debug`] in quotes and
/// escaped.
#[derive(Clone, Copy)]
pub struct Excerpt<'a> {
    shown: &'a str,
    /// Bytes that are left out.
    omitted: usize,
}

/// Cuts a value.
pub fn excerpt(value: &str) -> Excerpt<'_> {
    cut(value, OF_VALUE)
}

fn cut(text: &str, most: usize) -> Excerpt<'_> {
    let mut written = 0;
    let end = text.char_indices().find_map(|(at, char)| {
        written += char.escape_debug().count();
        (written > most).then_some(at)
    });
    let (shown, rest) = text.split_at(end.unwrap_or(text.len()));
    Excerpt {
        shown,
        omitted: rest.len(),
    }
}

impl Excerpt<'_> {
    fn mark(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.omitted {
            0 => Ok(()),
            omitted => write!(f, "... ({omitted} bytes left out)"),
        }
    }
}

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown)?;
        self.mark(f)
    }
}

impl fmt::Debug for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.shown)?;
        self.mark(f)
    }
}

/// A message of a server or a library, in one line and cut. No more than that is ever written out.
pub fn message_excerpt(message: &impl fmt::Display) -> String {
    let mut start = Start::default();
    // It takes everything.
    let _ = write!(start, "{message}");
    let line = start.kept.replace(char::is_control, " ");
    let Excerpt { shown, omitted } = cut(&line, OF_MESSAGE);
    Excerpt {
        shown,
        omitted: omitted + start.omitted,
    }
    .to_string()
}

/// The first bytes of what is written to it.
#[derive(Default)]
struct Start {
    kept: String,
    omitted: usize,
}

impl fmt::Write for Start {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // An excerpt has no more bytes than that, and all that follows a cut is left out.
        let room = (OF_MESSAGE * char::MAX.len_utf8() + 1).saturating_sub(self.kept.len());
        let end = if self.omitted > 0 {
            0
        } else {
            text.floor_char_boundary(room)
        };
        self.kept.push_str(&text[..end]);
        self.omitted += text.len() - end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_texts_are_shown_whole() {
        for text in [
            "",
            "10.5.1.0-24",
            &"a".repeat(OF_VALUE),
            &"é".repeat(OF_VALUE),
        ] {
            assert_eq!(excerpt(text).to_string(), text);
            assert_eq!(format!("{:?}", excerpt(text)), format!("{text:?}"));
            assert_eq!(message_excerpt(&text), text);
        }
    }

    #[test]
    fn long_texts_are_cut_at_a_character_and_say_how_much_is_missing() {
        let text = format!("{}{}", "a".repeat(OF_VALUE - 1), "é".repeat(125_000));
        let cut = format!("{}é", "a".repeat(OF_VALUE - 1));
        assert_eq!(
            excerpt(&text).to_string(),
            format!("{cut}... (249998 bytes left out)")
        );
        assert_eq!(
            format!("{:?}", excerpt(&text)),
            format!("\"{cut}\"... (249998 bytes left out)")
        );
    }

    #[test]
    fn a_message_is_one_short_line_in_however_many_parts_it_is_written() {
        let page = format!("<html>\n{}", "é".repeat(100_000));
        let expected = format!(
            "<html> {}... (199014 bytes left out)",
            "é".repeat(OF_MESSAGE - 7)
        );
        assert_eq!(message_excerpt(&page), expected);
        let (first, second) = page.split_at(1001);
        assert_eq!(message_excerpt(&format_args!("{first}{second}")), expected);
    }

    #[test]
    fn escape_sequences_count_as_they_are_written() {
        for char in ['\u{1b}', '\0', '"', '\u{e0001}', '\u{200b}'] {
            let text = char.to_string().repeat(100_000);
            let shown = format!("{:?}", excerpt(&text));
            assert!(
                shown.len() < 2 * OF_VALUE,
                "{} bytes of {char:?}",
                shown.len()
            );
        }
    }
}
