//! One problem of the node.

use serde::{Deserialize, Serialize};

use super::{Certainty, ProblemCode, Severity};

/// A problem of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Problem {
    /// Its kind.
    pub code: ProblemCode,
    /// Its effect.
    pub severity: Severity,
    /// Its certainty.
    #[serde(default)]
    pub certainty: Certainty,
    /// The subnet of a peer, the sysctl, the annotation or another thing that has the problem;
    /// absent where that is the node.
    pub subject: Option<String>,
    /// The problem in words.
    pub text: String,
    /// The operator's remedy, if there is one that is known.
    pub remedy: Option<String>,
    /// Since when it is known, in seconds since 1970 UTC; absent where that is not known.
    pub since: Option<u64>,
    /// The number of alike problems that this one stands for: more than 1 where a list is cut.
    pub count: u64,
}

impl Problem {
    pub(super) fn new(code: ProblemCode, text: impl Into<String>) -> Self {
        let (subject, remedy, since) = (None, None, None);
        let (severity, certainty) = (code.severity(), code.certainty());
        Self {
            code,
            severity,
            certainty,
            subject,
            text: text.into(),
            remedy,
            since,
            count: 1,
        }
    }

    pub(super) fn likely(self) -> Self {
        Self {
            certainty: Certainty::Likely,
            ..self
        }
    }

    pub(super) fn about(self, subject: impl Into<String>) -> Self {
        Self {
            subject: Some(subject.into()),
            ..self
        }
    }

    pub(super) fn since(self, since: Option<u64>) -> Self {
        Self { since, ..self }
    }

    pub(super) fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..self
        }
    }

    /// Those of a kind that are not listed; `None` if all are.
    pub(super) fn more(code: ProblemCode, total: u64, listed: usize, what: &str) -> Option<Self> {
        let more = total.saturating_sub(u64::try_from(listed).unwrap_or(u64::MAX));
        (more > 0).then(|| Self {
            count: more,
            ..Self::new(code, format!("{more} more {what}, {total} in all"))
        })
    }

    /// The text and the remedy, in one line.
    pub fn line(&self) -> String {
        match &self.remedy {
            Some(remedy) => format!("{}; {remedy}", self.text),
            None => self.text.clone(),
        }
    }
}
