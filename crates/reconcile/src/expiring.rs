//! Senders that are no longer peers and are still accepted for a while. Pure.
//!
//! A node that acquires its lease again, or publishes another address, is missing from the store
//! for a moment, while packets that it sent before are still in transit. The entries for sending to
//! it are removed at once. The entries by which its packets are accepted stay for another minute.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// The time for which a sender is still let in after it left.
pub(super) const GRACE: Duration = Duration::from_mins(1);

/// Since when senders have been leaving.
#[derive(Debug)]
pub(super) struct Expiring<K> {
    grace: Duration,
    since: BTreeMap<K, Instant>,
}

/// Senders that leave, by the action that is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Departure<K> {
    /// Their time has just begun.
    pub(super) begun: Vec<K>,
    /// Their time is over.
    pub(super) over: Vec<K>,
}

impl<K: Ord + Clone> Expiring<K> {
    /// Creates the state without leaving senders.
    pub(super) const fn new(grace: Duration) -> Self {
        Self {
            grace,
            since: BTreeMap::new(),
        }
    }

    /// Updates the set of leaving senders, as of `now`. A sender that is no longer in it has come
    /// back, or is gone.
    pub(super) fn sort(&mut self, leaving: &BTreeSet<K>, now: Instant) -> Departure<K> {
        self.since.retain(|key, _| leaving.contains(key));
        let begun: Vec<K> = leaving
            .iter()
            .filter(|key| !self.since.contains_key(*key))
            .cloned()
            .collect();
        self.since
            .extend(begun.iter().map(|key| (key.clone(), now)));
        let is_over = |(_, since): &(&K, &Instant)| now.duration_since(**since) >= self.grace;
        let over = self
            .since
            .iter()
            .filter(is_over)
            .map(|(key, _)| key.clone())
            .collect();
        Departure { begun, over }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_go_when_their_time_is_over_and_not_if_they_come_back() {
        let (mut leaving, start) = (Expiring::new(GRACE), Instant::now());
        let mut sort = |keys: &[u8], seconds| {
            let Departure { begun, over } = leaving.sort(
                &keys.iter().copied().collect(),
                start + Duration::from_secs(seconds),
            );
            (begun, over)
        };
        assert_eq!(sort(&[1, 2], 0), (vec![1, 2], vec![]));
        assert_eq!(sort(&[1, 2, 3], 30), (vec![3], vec![]));
        assert_eq!(sort(&[1, 3], 59), (vec![], vec![]), "2 has come back");
        assert_eq!(sort(&[1, 2, 3], 60), (vec![2], vec![1]), "2 leaves anew");
        assert_eq!(sort(&[2, 3], 90), (vec![], vec![3]));
    }

    #[test]
    fn without_a_grace_they_go_at_once() {
        let mut leaving = Expiring::new(Duration::ZERO);
        let Departure { begun, over } = leaving.sort(&BTreeSet::from([7]), Instant::now());
        assert_eq!((begun, over), (vec![7], vec![7]));
    }
}
