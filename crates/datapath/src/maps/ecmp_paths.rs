//! A typed view of `ECMP_PATHS`: the devices by which packets to a peer may leave where the
//! kernel's FIB chooses for each of them.

use std::collections::BTreeMap;

use aya::maps::{HashMap, MapData};
use flannel_common::{
    abi::{
        ecmp::{EcmpPath, EcmpPathKey},
        maps::ECMP_PATHS,
        peer::{PathProbe, PeerEntry},
    },
    packet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6},
};
use flannel_host::family::Family;

use crate::{
    DatapathError, PinRoot,
    maps::pinned_map::{from_pin, remove},
};

/// The family as the programs' keys have it: its EtherType, network order.
pub const fn ethertype(family: Family) -> [u8; 2] {
    match family {
        Family::V4 => ETHERTYPE_IPV4,
        Family::V6 => ETHERTYPE_IPV6,
    }
}

/// The `ECMP_PATHS` map.
pub struct EcmpPathMap(HashMap<MapData, EcmpPathKey, EcmpPath>);

impl EcmpPathMap {
    /// Opens the pin.
    pub fn open(pins: &PinRoot) -> Result<Self, DatapathError> {
        HashMap::try_from(from_pin(pins, ECMP_PATHS)?)
            .map(Self)
            .map_err(DatapathError::map(ECMP_PATHS))
    }

    /// Every ECMP path.
    pub fn entries(
        &self,
    ) -> impl Iterator<Item = Result<(EcmpPathKey, EcmpPath), DatapathError>> + '_ {
        self.0
            .iter()
            .map(|entry| entry.map_err(DatapathError::map(ECMP_PATHS)))
    }

    /// Writes an ECMP path, without observations.
    pub fn write(&mut self, key: EcmpPathKey, mtu: u32) -> Result<(), DatapathError> {
        self.0
            .insert(key, EcmpPath::new(mtu), 0)
            .map_err(DatapathError::map(ECMP_PATHS))
    }

    /// Removes an ECMP path; a missing path is not an error.
    pub fn remove(&mut self, key: EcmpPathKey) -> Result<(), DatapathError> {
        remove(&mut self.0, &key, ECMP_PATHS)
    }
}

/// The ECMP paths of all peers, as they are pinned.
#[derive(Clone, Debug, Default)]
pub struct PinnedEcmpPaths(BTreeMap<EcmpPathKey, EcmpPath>);

impl PinnedEcmpPaths {
    /// Reads them; none where an older agent pinned no such map.
    pub fn read(pins: &PinRoot) -> Result<Self, DatapathError> {
        match EcmpPathMap::open(pins) {
            Err(error) if error.is_absent() => Ok(Self::default()),
            other => other?.entries().collect::<Result<_, _>>().map(Self),
        }
    }

    /// Every ECMP path.
    pub fn keys(&self) -> impl Iterator<Item = &EcmpPathKey> {
        self.0.keys()
    }

    /// ECMP paths, as a test makes them up.
    #[cfg(any(test, feature = "testing"))]
    pub fn of_test(ecmp_paths: impl IntoIterator<Item = (EcmpPathKey, EcmpPath)>) -> Self {
        Self(ecmp_paths.into_iter().collect())
    }

    /// The ECMP paths of a peer, with their interface indexes.
    pub fn of(&self, family: Family, index: u32) -> impl Iterator<Item = (u32, &EcmpPath)> {
        let key = move |device| EcmpPathKey::new(ethertype(family), index, device);
        let ecmp_paths = self
            .0
            .range(key(0)..)
            .take_while(move |(key, _)| key.index == index);
        ecmp_paths
            .filter(move |(key, _)| key.family == ethertype(family))
            .map(|(key, ecmp_path)| (key.device, ecmp_path))
    }
}

/// Returns the validation of an ECMP path as it applies at `now`: nothing if it belongs to another
/// state of the entry. A hold-down of all the peer's paths also holds this one down.
pub fn seen(peer: &PeerEntry, ecmp_path: &EcmpPath, now: u64) -> PathProbe {
    let hold_ns = if peer.seen.is_held_down(peer.word, now) {
        peer.seen.hold_ns
    } else {
        0
    };
    match ecmp_path.seen {
        seen if seen.word != peer.word => PathProbe {
            word: peer.word,
            hold_ns,
            ..PathProbe::NOTHING
        },
        seen if hold_ns != 0 => PathProbe {
            until_ns: 0,
            hold_ns: hold_ns.max(seen.hold_ns),
            ..seen
        },
        seen => seen,
    }
}

#[cfg(test)]
mod tests {
    use flannel_common::abi::entry_state::EntryState;

    use super::*;

    #[test]
    fn the_paths_of_a_peer_are_not_those_of_others() {
        let key = |family, index, device| {
            (
                EcmpPathKey::new(ethertype(family), index, device),
                EcmpPath::new(device),
            )
        };
        let ecmp_paths = [
            key(Family::V4, 7, 2),
            key(Family::V4, 7, 3),
            key(Family::V6, 7, 2),
            key(Family::V4, 8, 2),
        ];
        let ecmp_paths = PinnedEcmpPaths::of_test(ecmp_paths);
        let of = |family, index| {
            ecmp_paths
                .of(family, index)
                .map(|(device, _)| device)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (of(Family::V4, 7), of(Family::V6, 7), of(Family::V4, 9)),
            (vec![2, 3], vec![2], vec![])
        );
    }

    #[test]
    fn what_holds_the_peer_holds_its_ecmp_paths() {
        let word = EntryState::new(EntryState::VALID, 1);
        let ecmp_path = EcmpPath {
            seen: PathProbe {
                word,
                until_ns: 9,
                ..PathProbe::NOTHING
            },
            ..EcmpPath::new(1500)
        };
        let peer = PeerEntry {
            word,
            ..PeerEntry::default()
        };
        assert!(seen(&peer, &ecmp_path, 5).is_validated(word, 5));
        let held = PeerEntry {
            seen: PathProbe {
                word,
                hold_ns: 6,
                ..PathProbe::NOTHING
            },
            ..peer
        };
        assert!(
            !seen(&held, &ecmp_path, 5).is_validated(word, 5)
                && seen(&held, &ecmp_path, 5).is_held_down(word, 5)
        );
        assert!(
            seen(&held, &ecmp_path, 6).is_validated(word, 6),
            "no longer"
        );
        let rewritten = PeerEntry {
            word: EntryState::new(EntryState::VALID, 2),
            ..peer
        };
        assert!(!seen(&rewritten, &ecmp_path, 5).is_validated(rewritten.word, 5));
    }
}
