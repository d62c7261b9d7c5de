//! The main loop's pulse: the time since its last iteration.
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

/// The time of the last heartbeat, on the monotonic clock. Clones share it.
#[derive(Clone, Debug)]
pub struct Pulse {
    since: Instant,
    last_ms: Arc<AtomicU64>,
}

impl Pulse {
    /// Creates a pulse whose last heartbeat is now.
    pub fn start() -> Self {
        Self::last_seen(Instant::now())
    }

    /// Creates a pulse whose last heartbeat was at `then`.
    pub fn last_seen(then: Instant) -> Self {
        Self {
            since: then,
            last_ms: Arc::default(),
        }
    }

    /// Records a heartbeat.
    pub fn record_heartbeat(&self) {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(now, Ordering::Relaxed);
    }

    /// Returns the time since the last heartbeat.
    pub fn age(&self) -> Duration {
        self.since
            .elapsed()
            .saturating_sub(Duration::from_millis(self.last_ms.load(Ordering::Relaxed)))
    }
}
