//! Notes of how tunnel packets arrived (see `flannel_common::arrival`).

use flannel_common::arrival::{Arrival, note_named_by, note_of, tc_index_of};

use super::pending::{cpu, cpu_state};
use crate::{maps::ARRIVALS, packet::skb::Skb};

/// Notes how a packet arrived that is left to the kernel.
#[inline(always)]
pub(crate) fn note(skb: &Skb, arrival: &Arrival) {
    let Some(state) = cpu_state() else { return };
    let note = note_of(cpu(), state.arrivals);
    state.arrivals = state.arrivals.wrapping_add(1);
    let Some(at) = ARRIVALS.get_ptr_mut(note) else { return };
    // SAFETY: the look-up gave an element of the array, which lives as long as the map. A CPU that
    // shares the note makes it that of another skb.
    let noted = unsafe { &mut *at };
    noted.skb = skb.raw() as u64;
    (noted.arrival.fields, noted.arrival.device, noted.arrival.port) = (arrival.fields, arrival.device, arrival.port);
    skb.set_tc_index(tc_index_of(note));
}

/// Takes the note of a packet behind the tunnel device, for the record that may be made of it.
#[inline(always)]
pub(crate) fn take(skb: &Skb) {
    let Some(state) = cpu_state() else { return };
    state.arrival = Arrival::NONE;
    let Some(at) = note_named_by(skb.tc_index()).and_then(|note| ARRIVALS.get_ptr_mut(note)) else { return };
    // SAFETY: as in `note`.
    let noted = unsafe { &mut *at };
    if noted.skb == skb.raw() as u64 {
        noted.skb = 0;
        state.arrival = noted.arrival;
    }
}

/// Returns true if the packet in hand is known to have arrived otherwise than the one from which
/// its flow was learned. The SYN-ACK of a connection may have another source port than what
/// follows.
#[inline(always)]
pub(crate) fn differs(learned: &Arrival) -> bool {
    cpu_state().is_some_and(|state| state.arrival.is_known() && !state.arrival.same(learned))
}
