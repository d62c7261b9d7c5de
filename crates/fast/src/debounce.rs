//! The times at which a new generation begins because rules changed. Pure.
//!
//! A script changes rules by several transactions, and the last one may be the one that matters. So
//! each change is followed by a generation within [`PERIOD`], also while changes do not end. Tools
//! that write rules clean up conntrack afterwards, so another generation follows [`AGAIN`] after
//! the last change.

use std::time::{Duration, Instant};

/// The shortest time between two generations, and the longest from a change to its generation. A
/// generation is one map write; known flows then take the kernel's path until they are learned
/// again.
const PERIOD: Duration = Duration::from_millis(50);
/// The time from the last change to the generation for what was cleaned up after it.
const AGAIN: Duration = Duration::from_secs(1);

/// The times of the last generation and of the next ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Debounce {
    last: Option<Instant>,
    due: Option<Instant>,
    again: Option<Instant>,
}

impl Debounce {
    /// Records that rules changed.
    pub(super) fn changed(&mut self, now: Instant) {
        let earliest = self.last.map_or(now, |last| now.max(last + PERIOD));
        self.due.get_or_insert(earliest);
        self.again = Some(now + AGAIN);
    }

    /// The time of the next generation.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due.into_iter().chain(self.again).min()
    }

    /// Records that a generation began.
    pub(super) fn begun(&mut self, now: Instant) {
        self.last = Some(now);
        self.due = None;
        self.again = self.again.filter(|again| *again > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times at which generations begin, in milliseconds, when rules change at these.
    fn generations(changes: &[u64]) -> Vec<u64> {
        let (start, mut pace) = (Instant::now(), Debounce::default());
        let (mut changes, mut begun) = (changes.iter().copied().peekable(), Vec::new());
        for at in 0..20_000 {
            let now = start + Duration::from_millis(at);
            while changes.next_if(|change| *change == at).is_some() {
                pace.changed(now);
            }
            if pace.due().is_some_and(|due| due <= now) {
                pace.begun(now);
                begun.push(at);
            }
        }
        begun
    }

    #[test]
    fn one_change_counts_at_once_and_once_more() {
        assert_eq!(generations(&[5]), [5, 1005]);
        assert_eq!(generations(&[5, 5000]), [5, 1005, 5000, 6000]);
    }

    #[test]
    fn the_last_change_of_a_burst_counts_within_50_ms_and_once_more() {
        assert_eq!(generations(&[5, 6, 7]), [5, 55, 1007]);
        assert_eq!(generations(&[5, 54]), [5, 55, 1054]);
    }

    #[test]
    fn changes_without_end_are_20_generations_a_second() {
        let always: Vec<u64> = (0..3500).collect();
        let begun = generations(&always);
        assert_eq!(
            begun[..70],
            (0..70).map(|number| number * 50).collect::<Vec<_>>()
        );
        assert_eq!(begun[70..], [3500, 4499]);
    }
}
