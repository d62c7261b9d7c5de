//! Flows on probation (see `flannel_common::flow::probation`): where they are found and written.

use flannel_common::{
    abi::tick::Tick,
    flow::Flow,
    flow::{
        flow_key::FlowKey,
        probation::{ProbationSlot, slot_of},
    },
};

use super::{hint, scratch::FlowMaps, volatile};

/// Returns the place of the flow with this key, whose hash is `hash`.
#[inline(always)]
pub(super) fn find<F: FlowMaps>(
    key: &FlowKey<F::Address>,
    hash: u32,
) -> Option<*mut Flow<F::Address>> {
    let at = slot::<F>(hash)?;
    // SAFETY: the look-up gave an element of the array, which lives as long as the map. Other CPUs
    // may write at the same time: the check word of a torn value belongs to no key.
    let slot = unsafe { &mut *at };
    slot.key.same(key).then_some(&raw mut slot.flow)
}

/// Writes a flow to the slot of its key, unless that is in use. Returns true if it was written.
#[inline(always)]
pub(super) fn write<F: FlowMaps>(
    key: &FlowKey<F::Address>,
    flow: &Flow<F::Address>,
    now: Tick,
) -> bool {
    let hash = key.hash();
    let Some(at) = slot::<F>(hash) else {
        return false;
    };
    // SAFETY: as in `find`.
    let slot = unsafe { &mut *at };
    if !slot.is_free_for(key, now) {
        return false;
    }
    slot.key = *key;
    volatile::copy(flow, &mut slot.flow);
    hint::note_on_probation::<F>(hash);
    true
}

/// Empties the slot of a flow that is in the table now.
#[inline(always)]
pub(super) fn release<F: FlowMaps>(key: &FlowKey<F::Address>) {
    if let Some(at) = slot::<F>(key.hash()) {
        // SAFETY: as in `find`. A flow without this protocol has no packets.
        unsafe { (*at).key.protocol = 0 };
    }
}

#[inline(always)]
fn slot<F: FlowMaps>(hash: u32) -> Option<*mut ProbationSlot<F::Address>> {
    F::probation().get_ptr_mut(slot_of(hash))
}
