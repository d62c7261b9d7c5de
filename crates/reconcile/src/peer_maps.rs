//! The peer maps of one family: what should be in `PEERS`, `ECMP_PATHS`, `VTEPS` and `NAT_VTEPS`,
//! and what is.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    time::{Duration, Instant},
};

use flannel_backend_api::{Desired, PeerValue, device_key};
use flannel_common::{
    abi::{ecmp::EcmpPathKey, guard::DeviceKey, peer::VtepEntry},
    packet::addr::Addr,
};
use flannel_datapath::{DatapathError, Maps, maps::PeerMap, maps::ecmp_paths::ethertype};
use flannel_host::family::Family;
use flannel_status::Dirty;
use flannel_tracker::Tracker;

use crate::expiring::{Expiring, GRACE};

/// Desired and actual entries.
pub(super) struct PeerMaps {
    family: Family,
    peers: Tracker<u32, PeerValue>,
    ecmp_paths: Tracker<EcmpPathKey, u32>,
    vteps: Tracker<Addr, VtepEntry>,
    elsewhere: Tracker<DeviceKey, ()>,
    leaving: Expiring<Addr>,
    leaving_elsewhere: Expiring<DeviceKey>,
}

impl PeerMaps {
    pub(super) fn new(family: Family) -> Self {
        Self::with_grace(family, GRACE)
    }

    fn with_grace(family: Family, grace: Duration) -> Self {
        Self {
            family,
            peers: Tracker::default(),
            ecmp_paths: Tracker::default(),
            vteps: Tracker::default(),
            elsewhere: Tracker::default(),
            leaving: Expiring::new(grace),
            leaving_elsewhere: Expiring::new(grace),
        }
    }

    /// Removes the entries of a family that is off: an earlier agent may have had it on.
    pub(super) fn retire(family: Family, maps: &mut Maps) -> Result<(), DatapathError> {
        let mut none = Self::with_grace(family, Duration::ZERO);
        none.read_back(maps)?;
        none.sweep(maps, Instant::now());
        Ok(())
    }

    /// Clears the desired state, which is unknown again.
    pub(super) fn clear_desired(&mut self) {
        self.peers.clear_desired();
        self.ecmp_paths.clear_desired();
        self.vteps.clear_desired();
        self.elsewhere.clear_desired();
    }

    /// Some peers wanted something before and want something now.
    pub(super) fn change(&mut self, before: &Desired, after: &Desired) {
        self.peers.change(&before.peers, &after.peers);
        self.ecmp_paths
            .change(&before.ecmp_paths, &after.ecmp_paths);
        self.vteps.change(&before.vteps, &after.vteps);
        let devices = |desired: &Desired| desired.elsewhere.iter().map(|key| (*key, ())).collect();
        self.elsewhere.change(&devices(before), &devices(after));
    }

    /// Reads everything back from the maps.
    pub(super) fn read_back(&mut self, maps: &mut Maps) -> Result<(), DatapathError> {
        let map = peer_map(maps, self.family);
        let entries = map
            .entries()
            .map(|entry| entry.map(|(index, entry)| (index, PeerValue::of(&entry))));
        self.peers.found(entries.collect::<Result<_, _>>()?);
        let of_family = |key: &EcmpPathKey| key.family == ethertype(self.family);
        let ecmp_paths = maps
            .ecmp_paths
            .entries()
            .filter(|entry| entry.as_ref().map_or(true, |(key, _)| of_family(key)));
        self.ecmp_paths.found(
            ecmp_paths
                .map(|entry| entry.map(|(key, ecmp_path)| (key, ecmp_path.mtu)))
                .collect::<Result<_, _>>()?,
        );
        let of_family = |vtep: Addr| Family::of(IpAddr::from(vtep)) == self.family;
        let vteps = maps
            .vteps
            .entries()
            .filter(|entry| entry.as_ref().map_or(true, |(vtep, _)| of_family(*vtep)));
        self.vteps.found(vteps.collect::<Result<_, _>>()?);
        let of_family = |key: &DeviceKey| *key == device_key(key.mac, self.family);
        let keys = maps
            .elsewhere
            .keys()
            .filter(|key| key.as_ref().map_or(true, of_family));
        self.elsewhere.found(
            keys.map(|key| key.map(|key| (key, ())))
                .collect::<Result<_, _>>()?,
        );
        Ok(())
    }

    /// Writes the peers that are new or changed, after their ECMP paths.
    pub(super) fn upsert(&mut self, maps: &mut Maps, now: Instant) {
        upsert(&mut self.ecmp_paths, now, |key, mtu| {
            maps.ecmp_paths.write(*key, *mtu)
        });
        let map = peer_map(maps, self.family);
        upsert(&mut self.peers, now, |index, value| {
            map.write(*index, value.body(), value.flags)
        });
        upsert(&mut self.vteps, now, |vtep, value| {
            maps.vteps.write(*vtep, *value)
        });
        upsert(&mut self.elsewhere, now, |key, ()| maps.elsewhere.add(*key));
    }

    /// Removes peers that are gone.
    pub(super) fn sweep(&mut self, maps: &mut Maps, now: Instant) {
        let map = peer_map(maps, self.family);
        sweep(&mut self.peers, now, |index| map.remove(*index));
        sweep(&mut self.ecmp_paths, now, |key| {
            maps.ecmp_paths.remove(*key)
        });
        self.sweep_senders(maps, now);
    }

    /// Removes senders whose grace period is over. The packets of senders within it belong to no
    /// subnet.
    fn sweep_senders(&mut self, maps: &mut Maps, now: Instant) {
        let vteps = self.leaving.sort(&unwanted(&self.vteps, now), now);
        let unnumbered = VtepEntry {
            index: VtepEntry::UNNUMBERED,
            reserved: 0,
        };
        for vtep in vteps.begun {
            match maps.vteps.write(vtep, unnumbered) {
                Ok(()) => self.vteps.made(&vtep, unnumbered),
                Err(error) => drop(self.vteps.failed(&vtep, error.to_string(), now)),
            }
        }
        remove(&mut self.vteps, vteps.over, now, |vtep| {
            maps.vteps.remove(*vtep)
        });
        let elsewhere = self
            .leaving_elsewhere
            .sort(&unwanted(&self.elsewhere, now), now);
        remove(&mut self.elsewhere, elsewhere.over, now, |key| {
            maps.elsewhere.remove(*key)
        });
    }

    /// Returns true if every entry is written by which the programs know a sender, and the kernel
    /// refused no change of one.
    pub(super) fn knows_every_sender(&self) -> bool {
        let has_all = self.vteps.has_wanted() && self.elsewhere.has_wanted();
        has_all
            && self.vteps.failures().next().is_none()
            && self.elsewhere.failures().next().is_none()
    }

    /// Returns the entries that the kernel refused.
    pub(super) fn dirty(&self) -> impl Iterator<Item = Dirty> {
        let family = self.family;
        let peers = self.peers.failures();
        let peers = peers.map(move |(index, failure)| {
            failure.to_dirty(format!("{family} peer map entry {index}"))
        });
        let ecmp_path = move |key: &EcmpPathKey| {
            format!(
                "ECMP path of {family} peer {} by interface {}",
                key.index, key.device
            )
        };
        let ecmp_paths = self
            .ecmp_paths
            .failures()
            .map(move |(key, failure)| failure.to_dirty(ecmp_path(key)));
        let vteps = self.vteps.failures();
        let vteps = vteps.map(|(vtep, failure)| failure.to_dirty(format!("VTEP map entry {vtep}")));
        let elsewhere = self.elsewhere.failures();
        let elsewhere = elsewhere
            .map(|(key, failure)| failure.to_dirty(format!("entry of {} in NAT_VTEPS", key.mac)));
        peers.chain(ecmp_paths).chain(vteps).chain(elsewhere)
    }

    /// Returns the number of repaired entries, those of ECMP paths excluded.
    pub(super) const fn repairs(&self) -> u64 {
        self.peers.repairs() + self.vteps.repairs() + self.elsewhere.repairs()
    }

    /// When the next refused entry is due.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        [
            self.peers.next_retry(),
            self.ecmp_paths.next_retry(),
            self.vteps.next_retry(),
            self.elsewhere.next_retry(),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

fn peer_map(maps: &mut Maps, family: Family) -> &mut PeerMap {
    match family {
        Family::V4 => &mut maps.peers,
        Family::V6 => &mut maps.peers6,
    }
}

/// Writes what is pending. What a map refuses stays pending and holds up nothing else.
fn upsert<K: Ord + Clone, V: PartialEq + Clone>(
    tracker: &mut Tracker<K, V>,
    now: Instant,
    mut write: impl FnMut(&K, &V) -> Result<(), DatapathError>,
) {
    for (key, value) in tracker.pending(now, false).upserts {
        match write(&key, &value) {
            Ok(()) => tracker.made(&key, value),
            Err(error) => drop(tracker.failed(&key, error.to_string(), now)),
        }
    }
}

/// Removes what is there and not wanted.
fn sweep<K: Ord + Clone, V: PartialEq + Clone>(
    tracker: &mut Tracker<K, V>,
    now: Instant,
    take: impl FnMut(&K) -> Result<(), DatapathError>,
) {
    let keys = unwanted(tracker, now);
    remove(tracker, keys, now, take);
}

/// Returns the keys that exist, are not desired, and are due for removal at `now`.
fn unwanted<K: Ord + Clone, V: PartialEq + Clone>(
    tracker: &Tracker<K, V>,
    now: Instant,
) -> BTreeSet<K> {
    tracker
        .pending(now, true)
        .deletes
        .into_iter()
        .map(|(key, _)| key)
        .collect()
}

fn remove<K: Ord + Clone, V: PartialEq + Clone>(
    tracker: &mut Tracker<K, V>,
    keys: impl IntoIterator<Item = K>,
    now: Instant,
    mut take: impl FnMut(&K) -> Result<(), DatapathError>,
) {
    for key in keys {
        match take(&key) {
            Ok(()) => tracker.removed(&key),
            Err(error) => drop(tracker.failed(&key, error.to_string(), now)),
        }
    }
}
