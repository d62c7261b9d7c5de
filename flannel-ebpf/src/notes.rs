//! Notes on packets: written at an entry hook, taken at an exit hook (see `flannel_common::note`).

use aya_ebpf::helpers::generated::bpf_get_smp_processor_id;
use flannel_common::{
    end::Address,
    fast::port_bit,
    inner::Plain,
    maps::ONLY,
    note::{CpuState, Note, Slot},
    reason::Reason,
};

use crate::{
    maps::{BUCKETS, CPUS, HELPER_PORTS},
    node::{self, Node},
    skb::Skb,
    tables::Tables,
};

/// One in so many packets of unknown flows is noted: a short connection is not to pay for what it will not use.
const ONE_IN: u32 = 8;

/// What a tunnel device of either family asks for in front of a packet, in bytes, with some to spare.
const ROOM: i32 = 128;

/// A packet comes to an entry hook with no note. One that another network namespace left there names no packet here.
#[inline(always)]
pub(crate) fn clear(skb: &Skb) {
    if skb.tc_index() != 0 {
        skb.set_tc_index(0);
    }
}

/// Whether it is a packet's turn to be noted, its flow being unknown. Asked before anything that only matters then, of numbers that
/// follow no pattern of packets (xorshift); the kernel's own would be a helper's call for each packet.
#[inline(always)]
pub(crate) const fn take_turn(last: &mut u32) -> Result<(), Reason> {
    let mut number = if *last == 0 { ONE_IN } else { *last };
    number ^= number << 13;
    number ^= number >> 17;
    number ^= number << 5;
    *last = number;
    if number.is_multiple_of(ONE_IN) { Ok(()) } else { Err(Reason::FlowUnknown) }
}

/// Notes a packet of an unknown flow whose turn it is, if its sender does not make flows too fast.
#[inline(always)]
pub(crate) fn note_new<F: Tables>(
    skb: &Skb,
    node: &Node,
    packet: &Plain<F::Address>,
    bucket: u32,
) -> Result<Reason, Reason> {
    let bucket = BUCKETS.get_ptr_mut(bucket).ok_or(Reason::TooManyFlows)?;
    // SAFETY: the look-up gave an element of the array, which lives as long as the map. CPUs may race for a token.
    let left = unsafe { *bucket }.take(node.tick()).ok_or(Reason::TooManyFlows)?;
    note::<F>(skb, node, packet)?;
    // SAFETY: as above.
    unsafe { *bucket = left };
    Ok(Reason::Noted)
}

/// Notes a packet of a flow that is to be seen anew.
#[inline(always)]
pub(crate) fn note_again<F: Tables>(skb: &Skb, node: &Node, packet: &Plain<F::Address>) -> Result<Reason, Reason> {
    note::<F>(skb, node, packet)?;
    Ok(Reason::Refreshing)
}

#[inline(always)]
fn note<F: Tables>(skb: &Skb, node: &Node, packet: &Plain<F::Address>) -> Result<(), Reason> {
    if !node::fast()?.learns(packet.end.protocol) || has_helper(packet) {
        return Err(Reason::NotLearned);
    }
    if F::IS_COPIED_FOR_ROOM && packet.is_udp() {
        skb.reserve(ROOM)?;
    }
    let state = cpu_state().ok_or(Reason::NoSlot)?;
    let slot = Slot::of(cpu(), state.sequence).ok_or(Reason::NoSlot)?;
    state.sequence = state.sequence.wrapping_add(1);
    let at = F::notes().get_ptr_mut(slot.index()).ok_or(Reason::NoSlot)?;
    let note = Note::new(skb.raw() as u64, node.tick(), state.polls, packet);
    // SAFETY: the look-up gave an element of the array; only this CPU writes the slots of its ring.
    unsafe { *at = note };
    skb.set_tc_index(slot.tc_index());
    Ok(())
}

/// Whether conntrack may have a helper that reads and rewrites the payload.
#[inline(always)]
fn has_helper<A: Address>(packet: &Plain<A>) -> bool {
    let [source, destination] = packet.end.port_numbers();
    is_helper_port(source) || is_helper_port(destination)
}

#[inline(always)]
fn is_helper_port(port: u16) -> bool {
    let (word, bit) = port_bit(port);
    HELPER_PORTS.get(word).is_some_and(|bits| bits & bit != 0)
}

/// Takes the note a packet carries: what was noted, if it was this packet.
#[inline(always)]
pub(crate) fn take<F: Tables>(skb: &Skb, node: &Node) -> Result<&'static Note<F::Address>, Reason> {
    let tc_index = skb.tc_index();
    if !Slot::is_named_by(tc_index) {
        return Err(Reason::NotFollowed);
    }
    skb.set_tc_index(0);
    let slot = Slot::named_by(tc_index, cpu()).ok_or(Reason::NoteStale)?;
    let at = F::notes().get_ptr_mut(slot.index()).ok_or(Reason::NoteStale)?;
    // SAFETY: as in `note`.
    let note = unsafe { &mut *at };
    if note.skb != skb.raw() as u64 {
        return Err(Reason::NoteStale);
    }
    note.skb = 0;
    let polls = cpu_state().ok_or(Reason::NoteStale)?.polls;
    if note.is_on(polls, node.tick()) { Ok(note) } else { Err(Reason::NoteStale) }
}

/// Counts a NAPI poll of this CPU.
#[inline(always)]
pub(crate) fn count_poll() {
    if let Some(state) = cpu_state() {
        state.polls = state.polls.wrapping_add(1);
    }
}

#[inline(always)]
fn cpu_state() -> Option<&'static mut CpuState> {
    let at = CPUS.get_ptr_mut(ONLY)?;
    // SAFETY: the look-up gave this CPU's own element. Programs of one CPU at TC hooks and behind a poll do not
    // interrupt each other: bottom halves are off.
    Some(unsafe { &mut *at })
}

#[inline(always)]
fn cpu() -> u32 {
    // SAFETY: the helper takes nothing and returns a number.
    unsafe { bpf_get_smp_processor_id() }
}
