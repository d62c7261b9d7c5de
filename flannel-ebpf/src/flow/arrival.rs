//! Notes of how tunnel packets arrived (see `flannel_common::flow::arrival`).

use flannel_common::flow::arrival::{Arrival, ArrivalNote, note_named_by, note_of, tc_index_of};

use super::pending::{cpu, cpu_state};
use crate::{
    maps::ARRIVALS,
    packet::{family::Family, skb::Skb},
};

/// Notes how a packet of the peer with this index arrived that is not replayed.
#[inline(always)]
pub(crate) fn note<F: Family>(skb: &Skb, arrival: &Arrival, index: u32, generation: u32) {
    let Some(state) = cpu_state() else { return };
    let note = note_of(cpu(), state.arrivals);
    state.arrivals = state.arrivals.wrapping_add(1);
    let Some(at) = ARRIVALS.get_ptr_mut(note) else {
        return;
    };
    // SAFETY: the look-up gave an element of the array, which lives as long as the map. A CPU that
    // shares the note makes it that of another skb.
    let noted = unsafe { &mut *at };
    noted.skb = skb.raw() as u64;
    (
        noted.arrival.fields,
        noted.arrival.device,
        noted.arrival.port,
    ) = (arrival.fields, arrival.device, arrival.port);
    (noted.mark, noted.index, noted.generation) = (skb.mark(), index, generation);
    (noted.family, noted.is_probe) = (F::ETHERTYPE, 0);
    skb.set_tc_index(tc_index_of(note));
}

/// Makes a packet that was noted a probe of its reception.
#[inline(always)]
pub(crate) fn make_probe(skb: &Skb) {
    if let Some(noted) = noted(skb) {
        noted.is_probe = 1;
    }
}

/// The note that a packet names, if it is of this packet.
#[inline(always)]
pub(super) fn noted(skb: &Skb) -> Option<&'static mut ArrivalNote> {
    let at = note_named_by(skb.tc_index()).and_then(|note| ARRIVALS.get_ptr_mut(note))?;
    // SAFETY: as in `note`.
    let noted = unsafe { &mut *at };
    if noted.skb == skb.raw() as u64 {
        Some(noted)
    } else {
        None
    }
}

/// Returns true if the packet in hand is known to have arrived otherwise than the one from which
/// its flow was learned. The SYN-ACK of a connection may have another source port than what
/// follows.
#[inline(always)]
pub(crate) fn differs(learned: &Arrival) -> bool {
    cpu_state().is_some_and(|state| state.arrival.is_known() && !state.arrival.same(learned))
}
