//! The wait before another start. Pure.

use std::time::{Duration, Instant};

/// After a first failure; doubled by each further one.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);
/// A process that ran for less has failed too.
const SHORT_LIFE: Duration = Duration::from_secs(10);

/// Failures in a row.
#[derive(Debug, Default)]
pub struct Backoff {
    failures: u32,
    problem: String,
    since: Option<Instant>,
}

impl Backoff {
    /// Returns the wait that is left, with the cause of the last failure; `None` if the process may
    /// be started now.
    pub fn waiting(&self, now: Instant) -> Option<(Duration, String)> {
        let since = self.since.filter(|_| self.failures > 0)?;
        let wait = FIRST
            .saturating_mul(1 << (self.failures - 1).min(10))
            .min(LONGEST);
        let left = (since + wait)
            .checked_duration_since(now)
            .filter(|left| !left.is_zero())?;
        Some((left, self.problem.clone()))
    }

    /// It was started.
    pub const fn started(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// It did not start.
    pub fn failed(&mut self, problem: String, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        (self.problem, self.since) = (problem, Some(now));
    }

    /// It ran and is gone.
    pub fn ended(&mut self, problem: String, now: Instant) {
        if self
            .since
            .is_some_and(|since| now.duration_since(since) < SHORT_LIFE)
        {
            self.failed(problem, now);
        } else {
            self.failures = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_end_with_a_life_of_some_length() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        let wait = |backoff: &Backoff, now| backoff.waiting(now).map(|(wait, _)| wait);
        backoff.ended("killed".to_owned(), start);
        assert_eq!(
            wait(&backoff, start),
            None,
            "one that was found, not started"
        );
        for expected in [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
            backoff.failed("no".to_owned(), start);
            assert_eq!(
                backoff.waiting(start),
                Some((Duration::from_millis(expected), "no".to_owned()))
            );
        }
        let later = start + LONGEST;
        assert_eq!(wait(&backoff, later), None);
        backoff.started(later);
        backoff.ended("killed".to_owned(), later + Duration::from_secs(1));
        assert_eq!(
            wait(&backoff, later + Duration::from_secs(1)),
            Some(LONGEST)
        );
        backoff.started(later);
        backoff.ended("killed".to_owned(), later + SHORT_LIFE);
        assert_eq!(wait(&backoff, later + SHORT_LIFE), None);
    }
}
