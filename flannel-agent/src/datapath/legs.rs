//! A typed view of `LEGS`: the devices by which packets to a peer may leave where the kernel's FIB chooses for each of them.

use std::collections::BTreeMap;

use aya::maps::{HashMap, MapData};
use flannel_common::{
    leg::{LegEntry, LegKey},
    maps::LEGS,
    peer::{PathSeen, PeerEntry},
};

use crate::{
    backend::ethertype,
    datapath::{
        DatapathError, PinRoot,
        maps::{from_pin, remove},
    },
    family::Family,
};

/// The `LEGS` map.
pub struct LegMap(HashMap<MapData, LegKey, LegEntry>);

impl LegMap {
    /// Opens the pin.
    pub fn open(pins: &PinRoot) -> Result<Self, DatapathError> {
        HashMap::try_from(from_pin(pins, LEGS)?).map(Self).map_err(DatapathError::map(LEGS))
    }

    /// Every leg.
    pub fn entries(&self) -> impl Iterator<Item = Result<(LegKey, LegEntry), DatapathError>> + '_ {
        self.0.iter().map(|entry| entry.map_err(DatapathError::map(LEGS)))
    }

    /// Writes a leg, of which nothing is seen then.
    pub fn write(&mut self, key: LegKey, mtu: u32) -> Result<(), DatapathError> {
        self.0.insert(key, LegEntry::new(mtu), 0).map_err(DatapathError::map(LEGS))
    }

    /// Removes a leg; one that is not there is no error.
    pub fn remove(&mut self, key: LegKey) -> Result<(), DatapathError> {
        remove(&mut self.0, &key, LEGS)
    }
}

/// The legs of all peers, as they are pinned.
#[derive(Clone, Debug, Default)]
pub struct PinnedLegs(BTreeMap<LegKey, LegEntry>);

impl PinnedLegs {
    /// Reads them; none where an older agent pinned no such map.
    pub fn read(pins: &PinRoot) -> Result<Self, DatapathError> {
        match LegMap::open(pins) {
            Err(error) if error.is_absent() => Ok(Self::default()),
            other => other?.entries().collect::<Result<_, _>>().map(Self),
        }
    }

    /// Every leg.
    pub fn keys(&self) -> impl Iterator<Item = &LegKey> {
        self.0.keys()
    }

    /// Legs, as a test makes them up.
    #[cfg(test)]
    pub(crate) fn of_test(legs: impl IntoIterator<Item = (LegKey, LegEntry)>) -> Self {
        Self(legs.into_iter().collect())
    }

    /// The legs of a peer, with their interface indexes.
    pub fn of(&self, family: Family, index: u32) -> impl Iterator<Item = (u32, &LegEntry)> {
        let key = move |device| LegKey::new(ethertype(family), index, device);
        let legs = self.0.range(key(0)..).take_while(move |(key, _)| key.index == index);
        legs.filter(move |(key, _)| key.family == ethertype(family)).map(|(key, leg)| (key.device, leg))
    }
}

/// What was seen of the kernel's own packets by a leg, as far as it counts: what holds all of the peer's legs back holds this one.
pub fn seen(peer: &PeerEntry, leg: &LegEntry, now: u64) -> PathSeen {
    let hold_ns = if peer.seen.holds(peer.word, now) { peer.seen.hold_ns } else { 0 };
    match leg.seen {
        seen if seen.word != peer.word => PathSeen { word: peer.word, hold_ns, ..PathSeen::NOTHING },
        seen if hold_ns != 0 => PathSeen { until_ns: 0, hold_ns: hold_ns.max(seen.hold_ns), ..seen },
        seen => seen,
    }
}

#[cfg(test)]
mod tests {
    use flannel_common::peer::Word;

    use super::*;

    #[test]
    fn the_legs_of_a_peer_are_told_from_those_of_others() {
        let key = |family, index, device| (LegKey::new(ethertype(family), index, device), LegEntry::new(device));
        let legs = [key(Family::V4, 7, 2), key(Family::V4, 7, 3), key(Family::V6, 7, 2), key(Family::V4, 8, 2)];
        let legs = PinnedLegs::of_test(legs);
        let of = |family, index| legs.of(family, index).map(|(device, _)| device).collect::<Vec<_>>();
        assert_eq!((of(Family::V4, 7), of(Family::V6, 7), of(Family::V4, 9)), (vec![2, 3], vec![2], vec![]));
    }

    #[test]
    fn what_holds_the_peer_holds_its_legs() {
        let word = Word::new(Word::VALID, 1);
        let leg = LegEntry { seen: PathSeen { word, until_ns: 9, ..PathSeen::NOTHING }, ..LegEntry::new(1500) };
        let peer = PeerEntry { word, ..PeerEntry::default() };
        assert!(seen(&peer, &leg, 5).vouches(word, 5));
        let held = PeerEntry { seen: PathSeen { word, hold_ns: 6, ..PathSeen::NOTHING }, ..peer };
        assert!(!seen(&held, &leg, 5).vouches(word, 5) && seen(&held, &leg, 5).holds(word, 5));
        assert!(seen(&held, &leg, 6).vouches(word, 6), "no longer");
        let rewritten = PeerEntry { word: Word::new(Word::VALID, 2), ..peer };
        assert!(!seen(&rewritten, &leg, 5).vouches(rewritten.word, 5));
    }
}
