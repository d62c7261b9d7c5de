//! The problems of a node, in one list. The agent's status has it, and all commands print it.

mod code;
mod node;
mod peers;

use serde::{Deserialize, Serialize};

pub use self::code::{Certainty, ProblemCode, Severity};
use crate::Status;

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
    fn new(code: ProblemCode, text: impl Into<String>) -> Self {
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

    fn likely(self) -> Self {
        Self {
            certainty: Certainty::Likely,
            ..self
        }
    }

    fn about(self, subject: impl Into<String>) -> Self {
        Self {
            subject: Some(subject.into()),
            ..self
        }
    }

    fn since(self, since: Option<u64>) -> Self {
        Self { since, ..self }
    }

    fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..self
        }
    }

    /// Those of a kind that are not listed; `None` if all are.
    fn more(code: ProblemCode, total: u64, listed: usize, what: &str) -> Option<Self> {
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

impl Status {
    /// Finds the problems in the rest of the document, those of the node first. `now` is in seconds
    /// since 1970 UTC. Problems that are in the list already keep their beginning.
    pub fn find_problems(&mut self, now: u64) {
        let mut found: Vec<_> = node::problems(self)
            .chain(peers::problems(&self.peers, now))
            .collect();
        for problem in found.iter_mut().filter(|problem| problem.since.is_none()) {
            let known =
                |known: &&Problem| known.code == problem.code && known.subject == problem.subject;
            problem.since = self
                .problems
                .iter()
                .find(known)
                .and_then(|known| known.since);
        }
        self.problems = found;
    }

    /// As [`Self::find_problems`], where new problems begin now.
    pub fn update_problems(&mut self, now: u64) {
        self.find_problems(now);
        for problem in &mut self.problems {
            problem.since.get_or_insert(now);
        }
    }

    /// The first problem of each kind, and the number of all of that kind.
    pub fn problem_kinds(&self) -> Vec<(&Problem, u64)> {
        let mut kinds: Vec<(&Problem, u64)> = Vec::new();
        for problem in &self.problems {
            match kinds
                .iter_mut()
                .find(|(first, _)| first.code == problem.code)
            {
                Some((_, number)) => *number += problem.count,
                None => kinds.push((problem, problem.count)),
            }
        }
        kinds
    }

    /// The problems in words: how many there are of each kind; `None` without any. Notices are left
    /// out.
    pub fn problem_counts(&self) -> Option<String> {
        let kinds = self
            .problem_kinds()
            .into_iter()
            .filter(|(first, _)| first.severity > Severity::Notice);
        let words: Vec<_> = kinds
            .map(|(first, number)| first.code.counted(number))
            .collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

#[cfg(test)]
mod tests;
