//! The counters of peers and pods ([`flannel_common::abi::traffic`]), and who has which slot.
//!
//! A slot is given with an entry and taken back with it; its counters begin at zero. While the
//! entry lives it keeps its slot, also under another agent, because the slot is part of the entry.

use std::{collections::BTreeSet, ops::Range};

use aya::{
    Pod,
    maps::{MapData, MapError, PerCpuArray, PerCpuValues},
};
use flannel_common::abi::{
    maps::{PEER_TRAFFIC, PEER_TRAFFIC6, POD_TRAFFIC},
    stats::Counter,
    traffic::{PeerTraffic, SHARED},
};
use flannel_host::family::Family;

use crate::{
    DatapathError, PinRoot,
    maps::{pinned_map::from_pin, pinned_peer::PinnedPeer},
};

/// The counters of one slot.
pub trait Counters: Pod + Default {
    /// The sum of both.
    #[must_use]
    fn plus(self, other: Self) -> Self;
}

impl Counters for Counter {
    fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets.wrapping_add(other.packets),
            bytes: self.bytes.wrapping_add(other.bytes),
        }
    }
}

impl Counters for PeerTraffic {
    fn plus(self, other: Self) -> Self {
        Self {
            sent: self.sent.plus(other.sent),
            received: self.received.plus(other.received),
        }
    }
}

/// One of the maps.
pub struct TrafficMap<C: Counters> {
    array: PerCpuArray<MapData, C>,
    name: &'static str,
}

impl TrafficMap<PeerTraffic> {
    /// Opens the pin of the peers of a family.
    pub fn of_peers(pins: &PinRoot, family: Family) -> Result<Self, DatapathError> {
        Self::open(
            pins,
            if family == Family::V4 {
                PEER_TRAFFIC
            } else {
                PEER_TRAFFIC6
            },
        )
    }
}

impl TrafficMap<Counter> {
    /// Opens the pin of the pods.
    pub fn of_pods(pins: &PinRoot) -> Result<Self, DatapathError> {
        Self::open(pins, POD_TRAFFIC)
    }
}

impl<C: Counters> TrafficMap<C> {
    fn open(pins: &PinRoot, name: &'static str) -> Result<Self, DatapathError> {
        let array =
            PerCpuArray::try_from(from_pin(pins, name)?).map_err(DatapathError::map(name))?;
        Ok(Self { array, name })
    }

    /// The slots that may be given to one peer or pod.
    fn slots(&self) -> Range<u32> {
        SHARED + 1..self.array.len()
    }

    /// Returns the sum of a slot over all CPUs.
    pub fn get(&self, slot: u32) -> Result<C, DatapathError> {
        let values = self
            .array
            .get(&slot, 0)
            .map_err(DatapathError::map(self.name))?;
        Ok(values.iter().fold(C::default(), |sum, cpu| sum.plus(*cpu)))
    }

    /// The same; `None` for the shared slot.
    pub fn get_own(&self, slot: u32) -> Result<Option<C>, DatapathError> {
        if self.slots().contains(&slot) {
            self.get(slot).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Sets the counters of a slot to zero.
    fn clear(&mut self, slot: u32) -> Result<(), DatapathError> {
        let values = self
            .array
            .get(&slot, 0)
            .map_err(DatapathError::map(self.name))?;
        let zero =
            PerCpuValues::try_from(vec![C::default(); values.len()]).map_err(MapError::IoError);
        let written = zero.and_then(|zero| self.array.set(slot, zero, 0));
        written.map_err(DatapathError::map(self.name))
    }
}

/// The counters of the peers of both families.
pub struct PeerCounters {
    v4: TrafficMap<PeerTraffic>,
    v6: TrafficMap<PeerTraffic>,
}

impl PeerCounters {
    /// Opens the pins.
    pub fn open(pins: &PinRoot) -> Result<Self, DatapathError> {
        Ok(Self {
            v4: TrafficMap::of_peers(pins, Family::V4)?,
            v6: TrafficMap::of_peers(pins, Family::V6)?,
        })
    }

    /// Returns the traffic of a peer since its entry was made; `None` for one that shares its slot.
    pub fn of(&self, peer: &PinnedPeer) -> Result<Option<PeerTraffic>, DatapathError> {
        let map = if peer.subnet.addr().is_ipv4() {
            &self.v4
        } else {
            &self.v6
        };
        map.get_own(peer.entry.traffic.into())
    }
}

/// A map, and its slots that are free: known from the first change of an entry on.
pub(crate) struct Slots<C: Counters> {
    traffic: TrafficMap<C>,
    free: Option<BTreeSet<u32>>,
}

impl<C: Counters> Slots<C> {
    pub(crate) const fn new(traffic: TrafficMap<C>) -> Self {
        Self {
            traffic,
            free: None,
        }
    }

    /// Returns true if the free slots are known.
    pub(crate) const fn are_known(&self) -> bool {
        self.free.is_some()
    }

    /// Sets the slots of the entries that exist.
    pub(crate) fn set_taken(&mut self, taken: &BTreeSet<u32>) {
        self.free = Some(
            self.traffic
                .slots()
                .filter(|slot| !taken.contains(slot))
                .collect(),
        );
    }

    /// Takes a free slot, with its counters at zero; [`SHARED`] if there is none.
    pub(crate) fn take(&mut self) -> Result<u32, DatapathError> {
        let Some(free) = &mut self.free else {
            return Ok(SHARED);
        };
        let Some(slot) = free.first().copied() else {
            return Ok(SHARED);
        };
        self.traffic.clear(slot)?;
        free.remove(&slot);
        Ok(slot)
    }

    /// Gives a slot back.
    pub(crate) fn give_back(&mut self, slot: u32) {
        if let Some(free) = &mut self.free
            && slot != SHARED
        {
            free.insert(slot);
        }
    }
}
