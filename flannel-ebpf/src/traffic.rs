//! Counting by peer and pod (see `flannel_common::abi::traffic`): one look-up in a per-CPU array,
//! by a slot that stands in an entry which the program has read anyway.
//!
//! Each packet of a peer is counted at one hook. Those that are sent: by `from_pod` if it replays
//! them, else where they leave by the tunnel device (`to_tunnel`, `to_l3_tunnel`) or, to a direct
//! peer, by the external interface (`to_underlay`). Those that are received: where they come in
//! from outside (`from_underlay`, `from_l3_tunnel`).

use flannel_common::abi::stats::Counter;

use crate::{maps::POD_TRAFFIC, packet::family::Family};

/// Counts a packet to the peer with this slot, with the length of its frame.
#[inline(always)]
pub(crate) fn count_sent<F: Family>(slot: u32, len: u32) {
    if let Some(traffic) = F::traffic().get_ptr_mut(slot) {
        // SAFETY: the look-up gave this CPU's own element, valid until the program ends.
        add(unsafe { &mut (*traffic).sent }, len);
    }
}

/// Counts a packet from the peer with this slot, with the length of its frame.
#[inline(always)]
pub(crate) fn count_received<F: Family>(slot: u32, len: u32) {
    if let Some(traffic) = F::traffic().get_ptr_mut(slot) {
        // SAFETY: as in `count_sent`.
        add(unsafe { &mut (*traffic).received }, len);
    }
}

/// Counts a packet that is put into the pod with this slot, past the host side of its veth.
#[inline(always)]
pub(crate) fn count_put_into_pod(slot: u32, len: u32) {
    if let Some(traffic) = POD_TRAFFIC.get_ptr_mut(slot) {
        // SAFETY: as in `count_sent`.
        add(unsafe { &mut *traffic }, len);
    }
}

#[inline(always)]
fn add(counter: &mut Counter, len: u32) {
    counter.packets += 1;
    counter.bytes += u64::from(len);
}
