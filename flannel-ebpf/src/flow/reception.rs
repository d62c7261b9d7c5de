//! Takes the outer headers off tunnel packets that cannot be replayed (see
//! `flannel_common::abi::reception`). The tunnel device receives what is inside, as from its
//! socket.

use core::ptr::read_volatile;

use aya_ebpf::{macros::map, maps::LruHashMap};
use flannel_common::{
    abi::{
        fast::FastConfig,
        reason::Reason,
        reception::{RECEPTIONS_MAX, Reception, ReceptionKey, Way},
    },
    flow::arrival::{Arrival, ArrivalNote},
    packet::decapsulated_tos,
    packet::outer::OuterHeaders,
};

use super::{
    arrival,
    pending::cpu_state,
    scratch::{self, FlowMaps},
};
use crate::{
    node::{self, Node, Peer, mode_word},
    packet::skb::{Skb, redirect_ingress},
    tunnel::encapsulation,
};

/// Private to the programs: not pinned.
#[map]
static RECEPTIONS: LruHashMap<ReceptionKey, Reception> =
    LruHashMap::with_max_entries(RECEPTIONS_MAX, 0);

/// Takes the outer headers off a packet that is not replayed for this reason, if packets like it
/// come through the kernel; or makes it the next probe. Its inner headers are in the scratch
/// memory. Not inlined: the stack of one program (512 bytes) is too small.
#[inline(never)]
pub(crate) fn decapsulate<F: FlowMaps>(skb: &Skb, node: &Node, found: Reason) -> Reason {
    try_decapsulate::<F>(skb, node, found).unwrap_or_else(|reason| reason)
}

#[inline(always)]
fn try_decapsulate<F: FlowMaps>(skb: &Skb, node: &Node, found: Reason) -> Result<Reason, Reason> {
    let scratch = scratch::get::<F>()?;
    // TCP of which no handshake was seen may be a long stream: the tunnel device merges its
    // segments.
    let is_stream = matches!(found, Reason::FlowUnknown) && !scratch.packet.is_udp();
    if is_stream
        || skb.gso_size() != 0
        || skb.priority() != 0
        || !node::fast()?.has(FastConfig::DECAPSULATE)
    {
        return Err(found);
    }
    let family = node.family::<F>();
    let outer: &OuterHeaders<F> = skb.view(0).ok_or(found)?;
    let tos = scratch.packet.fingerprint.tos;
    if decapsulated_tos(outer.ip().tos(), tos) != Some(tos) {
        return Err(found);
    }
    let peer = Peer::of_sender(scratch.frame.ip(), outer, family)?;
    let arrival = outer.arrival(skb.ifindex());
    scratch.reception = ReceptionKey::new(&arrival, skb.mark(), peer.index(), F::ETHERTYPE);
    if way(&scratch.reception, mode_word().generation(), node.now) == Way::Probe {
        arrival::make_probe(skb);
        return Err(found);
    }
    scratch
        .packet
        .addresses
        .write(&mut scratch.plain.ethernet, F::ETHERTYPE);
    if !node.unchanged() || !peer.unchanged() {
        return Err(Reason::PeerChanging);
    }
    encapsulation::remove_outer::<F>(skb).or(Err(found))?;
    skb.drop_outer_checksum();
    if !skb.store(0, &scratch.plain.ethernet) {
        return Err(Reason::StoreFailed);
    }
    redirect_ingress(family.tunnel_ifindex);
    Ok(Reason::Decapsulated)
}

/// Returns the way of a packet with this key.
#[inline(always)]
fn way(key: &ReceptionKey, generation: u32, now: u64) -> Way {
    let Some(at) = RECEPTIONS.get_ptr_mut(key) else {
        return Way::Probe;
    };
    // SAFETY: the look-up gave an element, whose memory stays mapped while the program runs.
    let reception = unsafe { &mut *at };
    let way = reception.way(generation, now);
    // SAFETY: a reference is valid for reads. Read last: the element may have been recycled during
    // the other reads.
    let check = unsafe { read_volatile(&raw const reception.check) };
    if check != key.check() {
        return Way::Probe;
    }
    if way == Way::Probe {
        reception.probed_ns = now;
    }
    way
}

/// A probe has come out of the tunnel device: packets like it come through, unless something has
/// set a mark or a priority on the way.
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a key passed by value is copied to the stack"
)]
#[inline(always)]
pub(crate) fn validate(skb: &Skb, noted: &ArrivalNote, now: u64) {
    if skb.mark() == noted.mark && skb.priority() == 0 {
        let key = ReceptionKey::new(&noted.arrival, noted.mark, noted.index, noted.family);
        // Without it packets stay the kernel's.
        let _ = RECEPTIONS.insert(&key, &Reception::seen(&key, noted.generation, now), 0);
    }
}

/// Takes the note of a packet behind the tunnel device, for the record that may be made of it. A
/// probe has come through.
#[inline(always)]
pub(crate) fn take(skb: &Skb, now: u64) {
    let Some(state) = cpu_state() else { return };
    state.arrival = Arrival::NONE;
    let Some(noted) = arrival::noted(skb) else {
        return;
    };
    noted.skb = 0;
    state.arrival = noted.arrival;
    if noted.is_probe != 0 {
        validate(skb, noted, now);
    }
}
