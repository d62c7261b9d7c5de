//! Typed views of the maps of mode `fast`: what was learned, about which pods, and what is never
//! learned.
//!
//! The programs write `FLOWS` and `PROBATION`; here they are read. What is no longer to be used is
//! not searched for and removed, but outlived: by the next generation of the mode word
//! ([`crate::maps::ModeMap::bump`]).

use std::collections::BTreeMap;

use aya::{
    Pod,
    maps::{Array, HashMap, MapData, MapError},
};
use flannel_common::{
    abi::{
        fast::{FastConfig, PORT_WORDS, PodEntry, port_bit},
        maps::{FAST, FLOWS, HELPER_PORTS, ONLY, PODS, PROBATION, PROBATION6},
        stats::Counter,
        traffic::SHARED,
    },
    flow::Flow,
    flow::{
        flow_key::{Address, FlowKey},
        probation::ProbationSlot,
    },
};

use crate::{
    DatapathError, PinRoot,
    maps::{
        batch::BatchMap,
        flow_hints::FlowHints,
        pinned_map::{from_pin, remove},
        traffic::{Slots, TrafficMap},
    },
};

/// The `FLOWS` or `FLOWS6` map, by the address they hold, and the flows of its family that are on
/// probation.
pub struct FlowMap<A: Address>
where
    FlowKey<A>: Pod,
    Flow<A>: Pod,
{
    map: HashMap<MapData, FlowKey<A>, Flow<A>>,
    all: BatchMap<FlowKey<A>, Flow<A>>,
    name: &'static str,
    /// None where an older agent pinned no such map.
    probation: Option<Probation<A>>,
    /// None where an older agent pinned no such map.
    hints: Option<FlowHints>,
}

impl<A: Address> FlowMap<A>
where
    FlowKey<A>: Pod,
    Flow<A>: Pod,
{
    /// Opens the pin of the map of this name.
    pub fn open(pins: &PinRoot, name: &'static str) -> Result<Self, DatapathError> {
        let map = HashMap::try_from(from_pin(pins, name)?).map_err(DatapathError::map(name))?;
        let on_probation = if name == FLOWS { PROBATION } else { PROBATION6 };
        let probation = if_pinned(Probation::open(pins, on_probation))?;
        let all = BatchMap::open(pins, name)?;
        Ok(Self {
            map,
            all,
            name,
            probation,
            hints: if_pinned(FlowHints::open(pins, name))?,
        })
    }

    /// Every flow, usable or not: those of the table, then those on probation.
    pub fn entries(
        &self,
    ) -> impl Iterator<Item = Result<(FlowKey<A>, Flow<A>), DatapathError>> + '_ {
        self.table().chain(self.on_probation())
    }

    /// The flows of the table.
    pub fn table(&self) -> impl Iterator<Item = Result<(FlowKey<A>, Flow<A>), DatapathError>> + '_ {
        self.all.entries()
    }

    /// The same with this batch size.
    #[cfg(feature = "testing")]
    pub fn table_in_batches_of(
        &self,
        size: usize,
    ) -> impl Iterator<Item = Result<(FlowKey<A>, Flow<A>), DatapathError>> + '_ {
        self.all.in_batches_of(size)
    }

    /// The flows on probation. Expected flows are left out, because they have not been learned.
    pub fn on_probation(
        &self,
    ) -> impl Iterator<Item = Result<(FlowKey<A>, Flow<A>), DatapathError>> + '_ {
        let slots = self
            .probation
            .iter()
            .flat_map(|probation| probation.all.entries());
        let learned =
            slots.filter(|slot| slot.as_ref().map_or(true, |(_, slot)| slot.is_learned()));
        learned.map(|slot| slot.map(|(_, slot)| (slot.key, slot.flow)))
    }

    /// One flow.
    pub fn get(&self, key: &FlowKey<A>) -> Result<Option<Flow<A>>, DatapathError> {
        match self.map.get(key, 0) {
            Ok(flow) => Ok(Some(flow)),
            Err(MapError::KeyNotFound) => self.get_on_probation(key),
            Err(error) => Err(DatapathError::map(self.name)(error)),
        }
    }

    /// One flow on probation.
    fn get_on_probation(&self, key: &FlowKey<A>) -> Result<Option<Flow<A>>, DatapathError> {
        let Some(probation) = &self.probation else {
            return Ok(None);
        };
        match probation.slots.get(&ProbationSlot::of(key), 0) {
            Ok(slot) => Ok((slot.key.same(key) && slot.is_learned()).then_some(slot.flow)),
            // The family is off.
            Err(MapError::OutOfBounds { .. }) => Ok(None),
            Err(error) => Err(DatapathError::map(self.name)(error)),
        }
    }

    /// Writes a flow, as the programs do.
    pub fn write(&mut self, key: FlowKey<A>, flow: Flow<A>) -> Result<(), DatapathError> {
        if let Some(hints) = &mut self.hints {
            hints.note_in_table(&key)?;
        }
        self.map
            .insert(key, flow, 0)
            .map_err(DatapathError::map(self.name))
    }
}

/// The `PROBATION` or `PROBATION6` map.
struct Probation<A: Address>
where
    ProbationSlot<A>: Pod,
{
    slots: Array<MapData, ProbationSlot<A>>,
    all: BatchMap<u32, ProbationSlot<A>>,
}

impl<A: Address> Probation<A>
where
    ProbationSlot<A>: Pod,
{
    fn open(pins: &PinRoot, name: &'static str) -> Result<Self, DatapathError> {
        let slots = Array::try_from(from_pin(pins, name)?).map_err(DatapathError::map(name))?;
        Ok(Self {
            slots,
            all: BatchMap::open(pins, name)?,
        })
    }
}

/// Returns none in place of the error for a map that is not pinned.
fn if_pinned<T>(opened: Result<T, DatapathError>) -> Result<Option<T>, DatapathError> {
    match opened {
        Err(error) if error.is_absent() => Ok(None),
        opened => opened.map(Some),
    }
}

/// The `FAST` map.
pub struct FastMap(Array<MapData, FastConfig>);

impl FastMap {
    /// Opens the pin.
    pub fn open(pins: &PinRoot) -> Result<Self, DatapathError> {
        Array::try_from(from_pin(pins, FAST)?)
            .map(Self)
            .map_err(DatapathError::map(FAST))
    }

    /// The settings.
    pub fn get(&self) -> Result<FastConfig, DatapathError> {
        self.0.get(&ONLY, 0).map_err(DatapathError::map(FAST))
    }

    /// Writes the settings. What was learned under others is for the caller to outlive.
    pub fn set(&mut self, config: FastConfig) -> Result<(), DatapathError> {
        self.0
            .set(ONLY, config, 0)
            .map_err(DatapathError::map(FAST))
    }
}

/// The `PODS` map.
pub struct PodMap {
    map: HashMap<MapData, u32, PodEntry>,
    all: BatchMap<u32, PodEntry>,
    slots: Slots<Counter>,
}

impl PodMap {
    /// Opens the pin.
    pub fn open(pins: &PinRoot) -> Result<Self, DatapathError> {
        let map = HashMap::try_from(from_pin(pins, PODS)?).map_err(DatapathError::map(PODS))?;
        Ok(Self {
            map,
            all: BatchMap::open(pins, PODS)?,
            slots: Slots::new(TrafficMap::of_pods(pins)?),
        })
    }

    /// Every pod, by the interface index of its veth.
    pub fn entries(&self) -> impl Iterator<Item = Result<(u32, PodEntry), DatapathError>> + '_ {
        self.all.entries()
    }

    /// The same without their slots, for comparison.
    pub fn without_slots(&self) -> Result<BTreeMap<u32, PodEntry>, DatapathError> {
        self.entries()
            .map(|entry| entry.map(|(ifindex, pod)| (ifindex, pod.without_traffic())))
            .collect()
    }

    /// One pod.
    pub fn get(&self, ifindex: u32) -> Result<Option<PodEntry>, DatapathError> {
        match self.map.get(&ifindex, 0) {
            Ok(entry) => Ok(Some(entry)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(DatapathError::map(PODS)(error)),
        }
    }

    /// Writes a pod. A new one gets a slot for its traffic, another keeps the one it has.
    pub fn write(&mut self, ifindex: u32, entry: PodEntry) -> Result<(), DatapathError> {
        let former = self
            .get(ifindex)?
            .map(|old| old.traffic)
            .filter(|slot| *slot != SHARED);
        let traffic = former.map_or_else(|| self.slots()?.take(), Ok)?;
        self.map
            .insert(ifindex, PodEntry { traffic, ..entry }, 0)
            .map_err(DatapathError::map(PODS))
    }

    /// Removes a pod; a missing pod is not an error.
    pub fn remove(&mut self, ifindex: u32) -> Result<(), DatapathError> {
        let old = self.get(ifindex)?;
        remove(&mut self.map, &ifindex, PODS)?;
        self.slots()?
            .give_back(old.map_or(SHARED, |old| old.traffic));
        Ok(())
    }

    fn slots(&mut self) -> Result<&mut Slots<Counter>, DatapathError> {
        if !self.slots.are_known() {
            let taken = self
                .entries()
                .map(|entry| entry.map(|(_, pod)| pod.traffic));
            let taken = taken.collect::<Result<_, _>>()?;
            self.slots.set_taken(&taken);
        }
        Ok(&mut self.slots)
    }
}

/// Writes the ports whose flows are never learned, in place of those that were there.
pub fn write_helper_ports(pins: &PinRoot, ports: &[u16]) -> Result<(), DatapathError> {
    let map = from_pin(pins, HELPER_PORTS)?;
    let mut map: Array<_, u64> = Array::try_from(map).map_err(DatapathError::map(HELPER_PORTS))?;
    for word in 0..PORT_WORDS {
        let bits = ports
            .iter()
            .map(|port| port_bit(*port))
            .filter(|(at, _)| *at == word);
        map.set(word, bits.fold(0, |all, (_, bit)| all | bit), 0)
            .map_err(DatapathError::map(HELPER_PORTS))?;
    }
    Ok(())
}
