//! Typed view of the hints by which the programs find flows. The programs write them; who writes a
//! flow from here (`FlowMap::write`, fixtures) notes it, too.

use aya::maps::{Array, MapData};
use flannel_common::{
    abi::{
        maps::{FLOW_HINTS, FLOW_HINTS6, FLOWS},
        tick::tick,
    },
    flow::{
        flow_hint::FlowHint,
        flow_key::{Address, FlowKey},
        probation::slot_of,
    },
};

use crate::{DatapathError, PinRoot, kernel::clock, maps::pinned_map::from_pin};

/// Returns the name of the map of hints that belongs to the flow table with this name.
pub(crate) fn name_for(flows: &str) -> &'static str {
    if flows == FLOWS {
        FLOW_HINTS
    } else {
        FLOW_HINTS6
    }
}

/// The `FLOW_HINTS` or `FLOW_HINTS6` map.
pub struct FlowHints {
    map: Array<MapData, FlowHint>,
    name: &'static str,
}

impl FlowHints {
    /// Opens the hints of the flow table with this name.
    pub fn open(pins: &PinRoot, flows: &'static str) -> Result<Self, DatapathError> {
        let name = name_for(flows);
        let map = Array::try_from(from_pin(pins, name)?).map_err(DatapathError::map(name))?;
        Ok(Self { map, name })
    }

    /// Notes that the flow with this key is on probation.
    pub fn note_on_probation<A: Address>(&mut self, key: &FlowKey<A>) -> Result<(), DatapathError> {
        let hash = key.hash();
        self.change(hash, |hint| FlowHint {
            on_probation: hash,
            ..hint
        })
    }

    /// Notes that the flow with this key is in the table.
    pub fn note_in_table<A: Address>(&mut self, key: &FlowKey<A>) -> Result<(), DatapathError> {
        let in_table_until = FlowHint::until(tick(clock::now_ns()));
        self.change(key.hash(), |hint| FlowHint {
            in_table_until,
            ..hint
        })
    }

    /// Forgets what is known of flows with the slot of this key.
    pub fn forget<A: Address>(&mut self, key: &FlowKey<A>) -> Result<(), DatapathError> {
        self.change(key.hash(), |_| FlowHint::default())
    }

    fn change(
        &mut self,
        hash: u32,
        change: impl FnOnce(FlowHint) -> FlowHint,
    ) -> Result<(), DatapathError> {
        let slot = slot_of(hash);
        let changed = change(
            self.map
                .get(&slot, 0)
                .map_err(DatapathError::map(self.name))?,
        );
        self.map
            .set(slot, changed, 0)
            .map_err(DatapathError::map(self.name))
    }
}
