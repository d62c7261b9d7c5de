//! Hints (see `flannel_common::flow::flow_hint`): where they are read and written.

use flannel_common::{
    abi::tick::Tick,
    flow::{flow_hint::FlowHint, probation::slot_of},
};

use super::scratch::FlowMaps;

/// Returns the hint for keys with this hash. Where the map has none, it names the key and speaks of
/// the table.
#[inline(always)]
pub(super) fn read<F: FlowMaps>(hash: u32, now: Tick) -> FlowHint {
    let unknown = FlowHint {
        on_probation: hash,
        in_table_until: FlowHint::until(now),
    };
    F::hints().get(slot_of(hash)).map_or(unknown, |hint| *hint)
}

/// Notes that the flow of a key with this hash is on probation.
#[inline(always)]
pub(super) fn note_on_probation<F: FlowMaps>(hash: u32) {
    if let Some(at) = F::hints().get_ptr_mut(slot_of(hash)) {
        // SAFETY: the look-up gave an element of the array, which lives as long as the map. Other
        // CPUs may write it at the same time: a flow that its hint does not name is unknown.
        unsafe { (*at).on_probation = hash };
    }
}

/// Notes that a flow of a key with this hash is in the table.
#[inline(always)]
pub(super) fn note_in_table<F: FlowMaps>(hash: u32, now: Tick) {
    if let Some(at) = F::hints().get_ptr_mut(slot_of(hash)) {
        // SAFETY: as above.
        unsafe { (*at).in_table_until = FlowHint::until(now) };
    }
}
