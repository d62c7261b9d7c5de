//! `--iface-regex`: a regular expression on addresses and names.

use regex::Regex;

/// An unanchored regular expression, in RE2's syntax. Two are equal when their texts are.
#[derive(Debug, Clone)]
pub struct NamePattern(Regex);

/// A text that is not a regular expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--iface-regex={text} is no regular expression: {problem}")]
pub struct BadPattern {
    /// The text.
    pub text: String,
    /// The mistake in it, as the parser describes it.
    pub problem: String,
}

impl NamePattern {
    /// Compiles a pattern.
    pub fn new(text: &str) -> Result<Self, BadPattern> {
        // The parser draws the place of the mistake over several lines; the last one says what it
        // is.
        let last_line = |problem: String| {
            let line = problem.lines().last().unwrap_or_default().trim();
            line.trim_start_matches("error: ").to_owned()
        };
        let bad = |error: regex::Error| BadPattern {
            text: text.to_owned(),
            problem: last_line(error.to_string()),
        };
        Regex::new(text).map(Self).map_err(bad)
    }

    /// The pattern's text.
    pub fn text(&self) -> &str {
        self.0.as_str()
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

impl PartialEq for NamePattern {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for NamePattern {}
