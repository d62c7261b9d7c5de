//! The problems of a node, in one list. The agent's status has it, and all commands print it.

mod code;
mod node;
mod peers;
mod problem;

pub use self::{
    code::{Certainty, ProblemCode, Severity},
    problem::Problem,
};
use crate::Status;

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
