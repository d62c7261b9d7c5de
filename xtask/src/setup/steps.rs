//! Progress of a set-up: which step of how many, and how long it took.

use std::time::Instant;

/// Counts the steps of one phase as they run.
#[derive(Debug)]
pub(crate) struct Steps {
    phase: &'static str,
    done: usize,
    total: usize,
    started: Instant,
}

impl Steps {
    /// A phase of `total` steps, timed from now.
    pub(crate) fn new(phase: &'static str, total: usize) -> Self {
        Self { phase, done: 0, total, started: Instant::now() }
    }

    /// Announces a step, runs it, and says how long the phase has taken so far.
    pub(crate) fn run<T>(&mut self, what: &str, step: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        self.done += 1;
        println!("{} [{}/{}]: {what} ...", self.phase, self.done, self.total);
        let result = step()?;
        let elapsed = self.started.elapsed().as_secs_f32();
        println!("{} [{}/{}]: done, {elapsed:.1} s so far", self.phase, self.done, self.total);
        Ok(result)
    }
}
