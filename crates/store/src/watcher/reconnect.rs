//! When a stream of changes that ended is taken up again.

use std::time::{Duration, Instant};

use crate::{Backoff, Delays};

const LONGEST: Duration = Duration::from_secs(5);
const RECONNECT: Backoff = match Backoff::new(Duration::from_millis(100), LONGEST, 20) {
    Some(backoff) => backoff,
    None => panic!("100 ms to 5 s is a valid back-off"),
};

/// The time over which the nodes of a cluster list again after the restart of a server, in
/// milliseconds.
const SPREAD_MS: u64 = 2000;

/// Delays that grow from one failure to the next, and short ones where the server has only dropped
/// the history.
///
/// Only a change, or a watch that lasted, resets the delays: otherwise every node would ask a
/// server that accepts requests and fails at once ten times a second.
pub(crate) struct Reconnect {
    delays: Delays,
    /// A listing was made without delay, and no watch has worked since.
    listed_at_once: bool,
}

impl Reconnect {
    pub(crate) fn new() -> Self {
        Self {
            delays: RECONNECT.delays(),
            listed_at_once: false,
        }
    }

    /// The time of the next attempt after a failure.
    pub(crate) fn after_failure(&mut self) -> Instant {
        Instant::now() + self.delays.next_delay()
    }

    /// The time of the listing that replaces a dropped history: soon, and not at the same moment as
    /// all other nodes. `None` when the history from such a listing on is dropped too: then the
    /// server contradicts itself, and that is a failure.
    pub(crate) fn after_expiry(&mut self) -> Option<Instant> {
        let is_first = !std::mem::replace(&mut self.listed_at_once, true);
        is_first.then(|| Instant::now() + Duration::from_millis(rand::random_range(0..SPREAD_MS)))
    }

    /// Takes note of a change that arrived.
    pub(crate) fn note_change(&mut self) {
        self.delays.reset();
        self.listed_at_once = false;
    }

    /// Takes note of the end of a watch that was open for this long.
    pub(crate) fn note_end(&mut self, lasted: Duration) {
        if lasted >= LONGEST {
            self.note_change();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next delay, without its jitter of 20 %.
    fn next_ms(reconnect: &mut Reconnect) -> u128 {
        let delay = reconnect.delays.clone().next_delay().as_millis();
        reconnect.after_failure();
        // A fifth more or less is chance.
        let is_of = |exact: &u128| (exact * 8..=exact * 12).contains(&(delay * 10));
        [100, 200, 400, 800, 1600, 3200, 5000]
            .into_iter()
            .find(is_of)
            .unwrap_or(delay)
    }

    #[test]
    fn delays_grow_until_a_watch_works() {
        let mut reconnect = Reconnect::new();
        let grown: Vec<_> = (0..8).map(|_| next_ms(&mut reconnect)).collect();
        assert_eq!(grown, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        reconnect.note_end(LONGEST.saturating_sub(Duration::from_millis(1)));
        assert_eq!(next_ms(&mut reconnect), 5000, "it ended too soon");
        reconnect.note_end(LONGEST);
        assert_eq!(next_ms(&mut reconnect), 100);
        reconnect.note_change();
        assert_eq!(next_ms(&mut reconnect), 100);
    }

    #[test]
    fn a_dropped_history_is_replaced_at_once_but_not_in_a_loop() {
        let mut reconnect = Reconnect::new();
        for _ in 0..8 {
            reconnect.after_failure();
        }
        let latest = Instant::now() + Duration::from_millis(SPREAD_MS);
        assert!(reconnect.after_expiry().expect("a listing") <= latest);
        assert_eq!(reconnect.after_expiry(), None, "the listing did not help");
        assert_eq!(
            next_ms(&mut reconnect),
            5000,
            "a listing alone does not start the delays over"
        );
        assert_eq!(reconnect.after_expiry(), None);
        reconnect.note_change();
        assert!(reconnect.after_expiry().is_some());
    }
}
