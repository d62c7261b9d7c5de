//! Mistakes in flags, and the checks that several groups of flags share.

use std::{fmt, str::FromStr};

use flannel_iface::BadPattern;
use flannel_store::kube::BadPrefix;

/// An option value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionMistake {
    /// The value is not one that the flag takes.
    #[error("--{flag} is {value:?}, expected {expected}")]
    BadValue {
        /// The flag.
        flag: &'static str,
        /// The value.
        value: String,
        /// The values that the flag takes.
        expected: &'static str,
    },
    /// The value is a secret and is not quoted.
    #[error(
        "--{flag} has a user name or password in a URL, which is not used and would be shown; \
         {remedy}"
    )]
    UserInfo {
        /// The flag.
        flag: &'static str,
        /// The flags to use instead.
        remedy: &'static str,
    },
    /// A regular expression that cannot be used.
    #[error(transparent)]
    Regex(BadPattern),
    /// A prefix that annotations cannot have.
    #[error("--kube-annotation-prefix: {0}")]
    AnnotationPrefix(BadPrefix),
}

/// Collects mistakes; a value that follows one is never used.
#[derive(Default)]
pub(super) struct Checks {
    pub(super) mistakes: Vec<OptionMistake>,
}

impl Checks {
    /// Records a value that cannot be used.
    pub(super) fn refuse(
        &mut self,
        flag: &'static str,
        value: impl fmt::Display,
        expected: &'static str,
    ) {
        self.mistakes.push(OptionMistake::BadValue {
            flag,
            value: value.to_string(),
            expected,
        });
    }

    /// Parses a value. An empty one counts as not given.
    pub(super) fn optional<T: FromStr>(
        &mut self,
        flag: &'static str,
        value: &str,
        expected: &'static str,
    ) -> Option<T> {
        if value.is_empty() {
            return None;
        }
        let parsed = value.parse().ok();
        if parsed.is_none() {
            self.refuse(flag, value, expected);
        }
        parsed
    }

    /// Returns the choice of this name; the first one if no name is given. A bad name is a mistake.
    pub(super) fn choice<T: Copy>(
        &mut self,
        flag: &'static str,
        value: &str,
        choices: &[(&str, T)],
        expected: &'static str,
    ) -> T {
        let found = choices.iter().find(|(name, _)| *name == value);
        if found.is_none() && !value.is_empty() {
            self.refuse(flag, value, expected);
        }
        found.unwrap_or(&choices[0]).1
    }
}
