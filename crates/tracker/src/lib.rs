//! Desired and actual state of one kind of kernel object. Pure: it does no I/O and knows no kernel.
//!
//! Invariants: [`Tracker::pending`] is exactly the difference between the two sides; it returns no
//! deletion before the store is in sync; an entry that failed stays pending, waits longer after
//! each failure, and does not delay other entries.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use flannel_host::packing::Packing;
use flannel_status::Dirty;

/// Wait after a first failure; doubled by each further one, up to [`LAST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait, the resync period.
const LAST_WAIT: Duration = Duration::from_secs(30);

/// Desired and actual state of one kind of object.
///
/// There is one copy where both agree, which is nearly everywhere; pending changes are found
/// without a look at the rest.
#[derive(Debug)]
pub struct Tracker<K, V> {
    desired: BTreeMap<K, V>,
    packing: Packing,
    /// The actual state, for exactly the keys where it differs from the desired one.
    differing: BTreeMap<K, Option<V>>,
    failures: BTreeMap<K, Failure>,
    /// Keys whose object was as desired and then changed without our action.
    drifted: BTreeSet<K>,
    repairs: u64,
}

/// An entry the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error.
    pub error: String,
    /// The number of failures in a row.
    pub attempts: u32,
    /// Not tried again before.
    pub retry_at: Instant,
}

impl Failure {
    /// The failure of an object, in words, for the status document.
    pub fn to_dirty(&self, object: String) -> Dirty {
        Dirty {
            object,
            error: self.error.clone(),
            attempts: self.attempts,
        }
    }
}

/// The changes that are due.
#[derive(Debug, PartialEq, Eq)]
pub struct Pending<K, V> {
    /// To be made or replaced.
    pub upserts: Vec<(K, V)>,
    /// To be removed, with what is there.
    pub deletes: Vec<(K, V)>,
}

impl<K, V> Default for Tracker<K, V> {
    fn default() -> Self {
        Self {
            desired: BTreeMap::new(),
            packing: Packing::default(),
            differing: BTreeMap::new(),
            failures: BTreeMap::new(),
            drifted: BTreeSet::new(),
            repairs: 0,
        }
    }
}

impl<K: Ord + Clone, V: PartialEq + Clone> Tracker<K, V> {
    /// Clears the desired state.
    pub fn clear_desired(&mut self) {
        for (key, value) in std::mem::take(&mut self.desired) {
            let actual = self.differing.remove(&key).unwrap_or(Some(value));
            self.set_actual(key, actual);
        }
        self.failures
            .retain(|key, _| self.differing.contains_key(key));
        self.drifted.clear();
    }

    /// Replaces what should be of one object.
    pub fn set_desired(&mut self, key: &K, value: Option<V>) {
        if value.is_none() {
            self.drifted.remove(key);
        }
        let former = match value {
            Some(value) => self.desired.insert(key.clone(), value),
            None => self.desired.remove(key),
        };
        let actual = self.differing.remove(key).unwrap_or(former);
        self.set_actual(key.clone(), actual);
        if !self.differing.contains_key(key) {
            self.failures.remove(key);
        }
    }

    /// Replaces what should be of some objects: those of `before` by those of `after`.
    pub fn change(&mut self, before: &BTreeMap<K, V>, after: &BTreeMap<K, V>) {
        for key in before.keys().filter(|key| !after.contains_key(*key)) {
            self.set_desired(key, None);
        }
        for (key, value) in after {
            self.set_desired(key, Some(value.clone()));
        }
        self.packing.pack(&mut self.desired);
    }

    /// Replaces what is, after reading everything back.
    pub fn found(&mut self, mut actual: BTreeMap<K, V>) {
        let known = std::mem::take(&mut self.differing);
        for (key, value) in &self.desired {
            let found = actual.remove(key);
            if found.as_ref() != Some(value) {
                if !known.contains_key(key) {
                    self.drifted.insert(key.clone());
                }
                self.differing.insert(key.clone(), found);
            }
        }
        self.drifted.retain(|key| self.differing.contains_key(key));
        self.differing
            .extend(actual.into_iter().map(|(key, value)| (key, Some(value))));
    }

    /// One object was seen to be this way, or gone. Returns true if it is not as it should be.
    pub fn observe(&mut self, key: K, value: Option<V>) -> bool {
        let wanted = self.desired.get(&key);
        let differs = wanted != value.as_ref();
        if !differs {
            self.drifted.remove(&key);
        } else if wanted.is_some() && !self.differing.contains_key(&key) {
            self.drifted.insert(key.clone());
        }
        self.set_actual(key, value);
        differs
    }

    /// Returns the changes that are due at `now`; deletions only with `sweep`.
    pub fn pending(&self, now: Instant, sweep: bool) -> Pending<K, V> {
        let mut pending = Pending {
            upserts: Vec::new(),
            deletes: Vec::new(),
        };
        for (key, actual) in &self.differing {
            if self
                .failures
                .get(key)
                .is_some_and(|failure| failure.retry_at > now)
            {
                continue;
            }
            match (self.desired.get(key), actual) {
                (Some(value), _) => pending.upserts.push((key.clone(), value.clone())),
                (None, Some(stale)) if sweep => pending.deletes.push((key.clone(), stale.clone())),
                (None, _) => {}
            }
        }
        pending
    }

    /// Returns an object that should be and is not there at all, if it is due at `now`.
    pub fn missing(&self, key: &K, now: Instant) -> Option<V> {
        let is_due = self
            .failures
            .get(key)
            .is_none_or(|failure| failure.retry_at <= now);
        self.desired
            .get(key)
            .filter(|_| is_due && self.actual(key).is_none())
            .cloned()
    }

    /// The next try of this object does not wait.
    pub fn retry_now(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// Returns true if everything that should be is there, as it should be.
    pub fn has_wanted(&self) -> bool {
        !self
            .differing
            .keys()
            .any(|key| self.desired.contains_key(key))
    }

    /// Returns the actual state of an object, or `None` if no object is known.
    pub fn actual(&self, key: &K) -> Option<&V> {
        self.differing
            .get(key)
            .map_or_else(|| self.desired.get(key), Option::as_ref)
    }

    /// The keys in a range that are wanted or there.
    pub fn keys_in(&self, range: RangeInclusive<K>) -> Vec<K> {
        let keys: BTreeSet<&K> = self
            .desired
            .range(range.clone())
            .map(|(key, _)| key)
            .chain(self.differing.range(range).map(|(key, _)| key))
            .collect();
        keys.into_iter().cloned().collect()
    }

    /// Returns true if the last try of a change to this object failed.
    pub fn is_refused(&self, key: &K) -> bool {
        self.failures.contains_key(key)
    }

    fn set_actual(&mut self, key: K, actual: Option<V>) {
        if self.desired.get(&key) == actual.as_ref() {
            self.differing.remove(&key);
        } else {
            self.differing.insert(key, actual);
        }
    }

    /// An upsert succeeded.
    pub fn made(&mut self, key: &K, value: V) {
        self.failures.remove(key);
        self.repairs += u64::from(self.drifted.remove(key));
        self.set_actual(key.clone(), Some(value));
    }

    /// Returns the number of objects that had been as desired, were missing or different, and were
    /// made again.
    pub const fn repairs(&self) -> u64 {
        self.repairs
    }

    /// A deletion succeeded, or there was nothing to delete.
    pub fn removed(&mut self, key: &K) {
        self.failures.remove(key);
        self.set_actual(key.clone(), None);
    }

    /// An upsert or deletion failed at `now`. Returns true the first time: only that is worth a log
    /// line.
    pub fn failed(&mut self, key: &K, error: String, now: Instant) -> bool {
        let attempts = self
            .failures
            .get(key)
            .map_or(1, |failure| failure.attempts.saturating_add(1));
        let wait = FIRST_WAIT
            .saturating_mul(1 << (attempts - 1).min(10))
            .min(LAST_WAIT);
        self.failures.insert(
            key.clone(),
            Failure {
                error,
                attempts,
                retry_at: now + wait,
            },
        );
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

    /// Returns true if no object is desired and none is known in the kernel.
    pub fn is_empty(&self) -> bool {
        self.desired.is_empty() && self.differing.is_empty()
    }

    /// Returns the desired state.
    pub const fn wanted(&self) -> &BTreeMap<K, V> {
        &self.desired
    }
}
