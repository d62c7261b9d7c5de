//! The main loop's pulse: the time since it last went round.
//!
//! The status document holds what the loop last knew, and stays as it is if the loop hangs. A
//! reader that acts on the document checks the pulse as well.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// A shared time of the last beat, on the monotonic clock. Clones are the same pulse.
#[derive(Clone, Debug)]
pub struct Pulse {
    since: Instant,
    last_ms: Arc<AtomicU64>,
}

impl Pulse {
    /// A pulse that beats now.
    pub fn start() -> Self {
        Self::last_seen(Instant::now())
    }

    /// A pulse whose last beat was then.
    pub(super) fn last_seen(then: Instant) -> Self {
        Self { since: then, last_ms: Arc::default() }
    }

    /// Beats.
    pub fn beat(&self) {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(now, Ordering::Relaxed);
    }

    /// Since the last beat.
    pub fn age(&self) -> Duration {
        self.since.elapsed().saturating_sub(Duration::from_millis(self.last_ms.load(Ordering::Relaxed)))
    }
}
