//! When a new generation begins because of rules that changed: at once, at most once a second, and
//! once more a second after the last change, because who writes rules cleans up conntrack after
//! them. Pure.

use std::time::{Duration, Instant};

/// Between two generations.
const PERIOD: Duration = Duration::from_secs(1);

/// The times of the last generation and of the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Debounce {
    last: Option<Instant>,
    due: Option<Instant>,
    once_more: bool,
}

impl Debounce {
    /// Rules changed.
    pub(super) fn changed(&mut self, now: Instant) {
        let earliest = self.last.map_or(now, |last| now.max(last + PERIOD));
        self.due = Some(self.due.filter(|_| self.once_more).map_or(earliest, |due| due.min(earliest)));
        self.once_more = true;
    }

    /// When a generation is due.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// It has begun.
    pub(super) fn begun(&mut self, now: Instant) {
        self.last = Some(now);
        self.due = self.once_more.then(|| now + PERIOD);
        self.once_more = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The moments at which generations begin, in milliseconds, when rules change at these.
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
    fn many_changes_are_one_a_second_and_the_last_is_followed_by_two() {
        assert_eq!(generations(&[5, 6, 7]), [5, 1005, 2005]);
        let always: Vec<u64> = (0..3500).collect();
        assert_eq!(generations(&always), [0, 1000, 2000, 3000, 4000, 5000]);
    }
}
