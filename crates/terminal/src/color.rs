//! Colours of the commands that people read: `--color`, and the text in them.
//!
//! The text of an answer has colours only where they are wanted; elsewhere it is what it was before
//! there were any, byte for byte.

use std::io;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use clap::{Args, ValueEnum};

/// The option.
#[derive(Clone, Copy, Debug, Args)]
pub struct ColorOptions {
    /// Colours; auto is for terminals, unless the variable `NO_COLOR` is set
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = When::Auto)]
    color: When,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    /// On a terminal
    Auto,
    /// Into files and pipes too
    Always,
    /// Not at all
    Never,
}

impl ColorOptions {
    /// Decides about standard output.
    pub fn paint(self) -> Paint {
        Paint(match self.color {
            When::Auto => AutoStream::choice(&io::stdout()) != ColorChoice::Never,
            When::Always => true,
            When::Never => false,
        })
    }
}

/// Colours a text, or leaves it as it is.
#[derive(Clone, Copy, Debug)]
pub struct Paint(pub bool);

impl Paint {
    /// As it should be.
    pub fn good(self, text: &str) -> String {
        self.styled(AnsiColor::Green.on_default(), text)
    }

    /// Worth knowing.
    pub fn warn(self, text: &str) -> String {
        self.styled(AnsiColor::Yellow.on_default(), text)
    }

    /// Not as it should be.
    pub fn bad(self, text: &str) -> String {
        self.styled(AnsiColor::Red.on_default().bold(), text)
    }

    /// The head of a table.
    pub fn head(self, text: &str) -> String {
        self.styled(Style::new().bold(), text)
    }

    /// A name before its value, a remedy.
    pub fn name(self, text: &str) -> String {
        self.styled(AnsiColor::Cyan.on_default(), text)
    }

    fn styled(self, style: Style, text: &str) -> String {
        if self.0 && !text.is_empty() {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}

/// The columns that a text takes on a terminal, colours left out.
pub fn width(text: &str) -> usize {
    anstream::adapter::strip_str(text)
        .map(|part| part.chars().count())
        .sum()
}

/// A text without its colours.
pub fn plain_text(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_take_no_room_and_are_left_out_where_not_wanted() {
        let (on, off) = (Paint(true), Paint(false));
        assert_eq!(on.bad("no"), "\u{1b}[1m\u{1b}[31mno\u{1b}[0m");
        assert_eq!(
            (on.good(""), off.good("yes"), width(&on.warn("äh"))),
            (String::new(), "yes".to_owned(), 2)
        );
    }

    #[test]
    fn the_option_wins_over_the_stream() {
        let paint = |color| ColorOptions { color }.paint().0;
        assert!(paint(When::Always) && !paint(When::Never));
    }
}
