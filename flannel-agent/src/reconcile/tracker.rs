//! What should be and what is, for one kind of kernel object. Pure: it does no I/O and knows no kernel.
//!
//! Invariants: [`Tracker::pending`] is exactly the difference between the two sides; nothing is handed out for deletion
//! before the store is in sync; an entry that failed stays pending, waits longer after each failure, and holds up no
//! other.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Wait after a first failure; doubled by each further one, up to [`LAST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait, the resync period.
const LAST_WAIT: Duration = Duration::from_secs(30);

/// Desired and actual state of one kind of object.
#[derive(Debug)]
pub struct Tracker<K, V> {
    desired: BTreeMap<K, V>,
    actual: BTreeMap<K, V>,
    failures: BTreeMap<K, Failure>,
}

/// An entry the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the kernel said.
    pub error: String,
    /// How often in a row.
    pub attempts: u32,
    /// Not tried again before.
    pub retry_at: Instant,
}

/// What is to be done now.
#[derive(Debug, PartialEq, Eq)]
pub struct Pending<K, V> {
    /// To be made or replaced.
    pub upserts: Vec<(K, V)>,
    /// To be removed, with what is there.
    pub deletes: Vec<(K, V)>,
}

impl<K, V> Default for Tracker<K, V> {
    fn default() -> Self {
        Self { desired: BTreeMap::new(), actual: BTreeMap::new(), failures: BTreeMap::new() }
    }
}

impl<K: Ord + Clone, V: PartialEq + Clone> Tracker<K, V> {
    /// Replaces what should be.
    pub fn want(&mut self, desired: BTreeMap<K, V>) {
        self.failures.retain(|key, _| desired.contains_key(key) || self.actual.contains_key(key));
        self.desired = desired;
    }

    /// Replaces what is, after reading everything back.
    pub fn found(&mut self, actual: BTreeMap<K, V>) {
        self.actual = actual;
    }

    /// One object was seen to be this way, or gone. Whether that is not as it should be.
    pub fn observe(&mut self, key: K, value: Option<V>) -> bool {
        let differs = self.desired.get(&key) != value.as_ref();
        match value {
            Some(value) => drop(self.actual.insert(key, value)),
            None => drop(self.actual.remove(&key)),
        }
        differs
    }

    /// What is to be done at `now`; deletions only with `sweep`.
    pub fn pending(&self, now: Instant, sweep: bool) -> Pending<K, V> {
        let due = |key: &K| self.failures.get(key).is_none_or(|failure| failure.retry_at <= now);
        let upserts = self.desired.iter().filter(|(key, value)| self.actual.get(key) != Some(value) && due(key));
        let stale = self.actual.iter().filter(|(key, _)| sweep && !self.desired.contains_key(key) && due(key));
        Pending {
            upserts: upserts.map(|(key, value)| (key.clone(), value.clone())).collect(),
            deletes: stale.map(|(key, value)| (key.clone(), value.clone())).collect(),
        }
    }

    /// An upsert succeeded.
    pub fn made(&mut self, key: &K, value: V) {
        self.failures.remove(key);
        self.actual.insert(key.clone(), value);
    }

    /// A deletion succeeded, or there was nothing to delete.
    pub fn removed(&mut self, key: &K) {
        self.failures.remove(key);
        self.actual.remove(key);
    }

    /// An upsert or deletion failed at `now`. Whether it is the first time: only that is worth a log line.
    pub fn failed(&mut self, key: &K, error: String, now: Instant) -> bool {
        let attempts = self.failures.get(key).map_or(1, |failure| failure.attempts.saturating_add(1));
        let wait = FIRST_WAIT.saturating_mul(1 << (attempts - 1).min(10)).min(LAST_WAIT);
        self.failures.insert(key.clone(), Failure { error, attempts, retry_at: now + wait });
        attempts == 1
    }

    /// The entries the kernel refused.
    pub fn failures(&self) -> impl Iterator<Item = (&K, &Failure)> {
        self.failures.iter()
    }

    /// When the next refused entry is due.
    pub fn next_retry(&self) -> Option<Instant> {
        self.failures.values().map(|failure| failure.retry_at).min()
    }

    /// What should be.
    pub const fn wanted(&self) -> &BTreeMap<K, V> {
        &self.desired
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::btree_map, prelude::*};

    use super::*;

    type Numbers = BTreeMap<u8, u8>;

    fn tracker(desired: Numbers, actual: Numbers) -> Tracker<u8, u8> {
        let mut tracker = Tracker::default();
        tracker.want(desired);
        tracker.found(actual);
        tracker
    }

    #[test]
    fn nothing_is_deleted_before_the_sweep() {
        let tracker = tracker(Numbers::new(), Numbers::from([(1, 1)]));
        assert!(tracker.pending(Instant::now(), false).deletes.is_empty());
        assert_eq!(tracker.pending(Instant::now(), true).deletes, [(1, 1)]);
    }

    #[test]
    fn a_refused_entry_waits_longer_each_time_and_holds_up_no_other() {
        let start = Instant::now();
        let mut tracker = tracker(Numbers::from([(1, 1), (2, 2)]), Numbers::new());
        assert!(tracker.failed(&1, "no".to_owned(), start));
        assert_eq!(tracker.pending(start, true).upserts, [(2, 2)]);
        assert_eq!(tracker.next_retry(), Some(start + FIRST_WAIT));
        assert_eq!(tracker.pending(start + FIRST_WAIT, true).upserts, [(1, 1), (2, 2)]);
        assert!(!tracker.failed(&1, "no".to_owned(), start));
        assert_eq!(tracker.next_retry(), Some(start + 2 * FIRST_WAIT));
        for _ in 0..40 {
            tracker.failed(&1, "no".to_owned(), start);
        }
        assert_eq!(tracker.next_retry(), Some(start + LAST_WAIT));
        tracker.made(&1, 1);
        assert_eq!(tracker.next_retry(), None);
    }

    #[test]
    fn a_refused_entry_that_nobody_wants_any_more_is_forgotten() {
        let mut tracker = tracker(Numbers::from([(1, 1)]), Numbers::new());
        tracker.failed(&1, "no".to_owned(), Instant::now());
        tracker.want(Numbers::new());
        assert_eq!(tracker.failures().count(), 0);
    }

    #[test]
    fn what_somebody_removed_or_changed_is_pending_again() {
        let mut tracker = tracker(Numbers::from([(1, 1), (2, 2)]), Numbers::from([(1, 1), (2, 2)]));
        assert!(tracker.observe(1, None));
        assert!(tracker.observe(2, Some(9)));
        assert!(!tracker.observe(3, None), "not ours and gone");
        assert_eq!(tracker.pending(Instant::now(), true).upserts, [(1, 1), (2, 2)]);
    }

    proptest! {
        #[test]
        fn doing_what_is_pending_makes_both_sides_equal(
            desired in btree_map(any::<u8>(), any::<u8>(), 0..40),
            actual in btree_map(any::<u8>(), any::<u8>(), 0..40),
        ) {
            let mut tracker = tracker(desired.clone(), actual);
            let pending = tracker.pending(Instant::now(), true);
            for (key, value) in pending.upserts {
                tracker.made(&key, value);
            }
            for (key, _) in pending.deletes {
                tracker.removed(&key);
            }
            prop_assert_eq!(&tracker.actual, &desired);
            let left = tracker.pending(Instant::now(), true);
            prop_assert!(left.upserts.is_empty() && left.deletes.is_empty());
        }
    }
}
