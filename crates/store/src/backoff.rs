//! Delays before the next attempt after a failure.

use std::time::{Duration, Instant};

use rand::RngExt;
use tokio::time::sleep_until;

/// Delays that double from `first` to `max`, each varied by up to `jitter` percent either way, so
/// that nodes that failed together do not return together. Valid by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    jitter: u32,
}

impl Backoff {
    /// `None` unless `0 < first <= max` and `jitter <= 100` (percent).
    pub const fn new(first: Duration, max: Duration, jitter: u32) -> Option<Self> {
        if first.is_zero() || first.as_nanos() > max.as_nanos() || jitter > 100 {
            return None;
        }
        Some(Self { first, max, jitter })
    }

    /// The delays, from the first.
    pub const fn delays(self) -> Delays {
        Delays {
            backoff: self,
            next: self.first,
        }
    }
}

/// A run of delays.
#[derive(Clone, Debug)]
pub struct Delays {
    backoff: Backoff,
    next: Duration,
}

impl Delays {
    /// The delay before the next try; the one after it is longer.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = delay.saturating_mul(2).min(self.backoff.max);
        let percent =
            rand::rng().random_range(100 - self.backoff.jitter..=100 + self.backoff.jitter);
        delay * percent / 100
    }

    /// Starts over, after a success.
    pub fn reset(&mut self) {
        self.next = self.backoff.first;
    }
}

/// Waits for a moment; for ever when there is none.
pub(super) async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn delays_double_up_to_the_maximum_and_start_over() {
        let mut delays = Backoff::new(millis(100), millis(500), 0)
            .expect("valid")
            .delays();
        let seen: Vec<_> = (0..5).map(|_| delays.next_delay()).collect();
        assert_eq!(seen, [100, 200, 400, 500, 500].map(millis));
        delays.reset();
        assert_eq!(delays.next_delay(), millis(100));
    }

    #[test]
    fn jitter_stays_in_its_bounds() {
        let mut delays = Backoff::new(millis(100), millis(100), 20)
            .expect("valid")
            .delays();
        assert!((0..1000).all(|_| (millis(80)..=millis(120)).contains(&delays.next_delay())));
    }

    #[test]
    fn nonsense_is_refused() {
        for (first, max, jitter) in [(0, 1, 0), (2, 1, 0), (1, 1, 101)] {
            assert_eq!(Backoff::new(millis(first), millis(max), jitter), None);
        }
    }
}
