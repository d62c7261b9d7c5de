//! The flow table: finding, ending and writing flows.
//!
//! A value is copied before it is used, and compared with the check word of the key it was found
//! under (see `flannel_common::flow`). Only an expiry is written into an element in place. It
//! carries that check word, so it does no harm to an element that was recycled for another key.
//!
//! A flow is in one of two maps, and for the verifier their pointers are of two kinds: it verifies
//! everything twice that such a pointer outlives, and keeps all states of it in memory. So each
//! function here uses a place at once and returns none. Later code has the copy; a rare write is
//! another look-up.

use core::ptr::write_volatile;

use aya_ebpf::bindings::BPF_ANY;
use flannel_common::{
    abi::{
        reason::Reason,
        tick::{Tick, jittered},
    },
    flow::Flow,
    flow::{
        connection::weight,
        expiry::Expiry,
        flow_key::{Address, FlowKey},
        window::Window,
    },
    packet::inner::ParsedPacket,
};

use super::{
    hint, probation,
    scratch::{self, FlowMaps, Scratch},
    volatile::copy,
};
use crate::node::{self, Node};

/// Returns the place of the flow with this key, on probation or in the table. Looks only where its
/// hint says that it may be.
#[inline(always)]
fn find<F: FlowMaps>(key: &FlowKey<F::Address>, now: Tick) -> Option<*mut Flow<F::Address>> {
    let hash = key.hash();
    let hint = hint::read::<F>(hash, now);
    if hint.names(hash) {
        let found = probation::find::<F>(key, hash);
        if found.is_some() {
            return found;
        }
    }
    if hint.speaks_of_table(now) {
        F::flows().get_ptr_mut(key)
    } else {
        None
    }
}

/// Writes a flow into the table. Fails if the kernel refuses that.
#[inline(always)]
pub(super) fn insert<F: FlowMaps>(
    key: &FlowKey<F::Address>,
    flow: &Flow<F::Address>,
    now: Tick,
) -> Result<(), Reason> {
    hint::note_in_table::<F>(key.hash(), now);
    F::flows()
        .insert(key, flow, u64::from(BPF_ANY))
        .or(Err(Reason::TableRefused))
}

/// Notes what the packet says about its reverse flow, and copies its flow to `to`. Returns the
/// reason if the packet may not be replayed, and `None` for an unknown flow. A packet of a usable
/// flow is counted here with the length of its frame, before the gates that may leave it to the
/// kernel.
#[inline(always)]
pub(crate) fn load_and_count<F: FlowMaps>(
    packet: &ParsedPacket<F::Address>,
    len: u32,
    generation: u32,
    node: &Node,
    to: &mut Flow<F::Address>,
) -> Option<Result<(), Reason>> {
    let at = find::<F>(&packet.key, node.tick())?;
    note_window(at, packet);
    copy(at, to);
    let usable = is_usable(packet, generation, node, to);
    if usable.is_ok() {
        // SAFETY: the look-up gave an element, whose memory stays mapped while the program runs. A
        // lost count does no harm.
        let flow = unsafe { &mut *at };
        flow.packets = to.counted();
        flow.bytes = to.bytes + u64::from(len);
        flow.last = node.tick();
    }
    Some(usable)
}

/// The same for a packet that is not replayed in any case.
#[inline(always)]
pub(crate) fn load<F: FlowMaps>(
    packet: &ParsedPacket<F::Address>,
    generation: u32,
    node: &Node,
    to: &mut Flow<F::Address>,
) -> Option<Result<(), Reason>> {
    let at = find::<F>(&packet.key, node.tick())?;
    note_window(at, packet);
    copy(at, to);
    Some(is_usable(packet, generation, node, to))
}

/// Counts a packet of an expected flow, and returns the count.
#[inline(always)]
pub(super) fn count_expected<F: FlowMaps>(packet: &ParsedPacket<F::Address>, now: Tick) -> u64 {
    let Some(at) = find::<F>(&packet.key, now) else {
        return 0;
    };
    // SAFETY: the look-up gave an element, whose memory stays mapped while the program runs. A lost
    // count does no harm.
    let flow = unsafe { &mut *at };
    flow.packets += weight(packet);
    flow.used()
}

#[inline(always)]
fn is_usable<A: Address>(
    packet: &ParsedPacket<A>,
    generation: u32,
    node: &Node,
    flow: &Flow<A>,
) -> Result<(), Reason> {
    flow.usable(
        flow.action.check(&packet.key),
        generation,
        node.tick(),
        node.confirmed(),
    )?;
    if !packet.is_udp() && flow.window.is_due(packet.fingerprint.sequence) {
        return Err(Reason::Refreshing);
    }
    Ok(())
}

/// Checks that the agent was there recently enough for flows to be replayed. Without it what the
/// packet says about its reverse flow is noted all the same.
#[inline(always)]
pub(crate) fn allows_replay<F: FlowMaps>(
    packet: &ParsedPacket<F::Address>,
    node: &Node,
) -> Result<(), Reason> {
    // Without closures: one may become a separate function, and the stack is too small for that.
    let allowed = node.allows_replay();
    if allowed.is_err()
        && let Some(at) = find::<F>(&packet.key, node.tick())
    {
        note_window(at, packet);
    }
    allowed
}

/// Notes what a packet of TCP says about its reverse flow.
#[inline(always)]
fn note_window<A: Address>(at: *mut Flow<A>, packet: &ParsedPacket<A>) {
    if !packet.is_udp() {
        // SAFETY: the look-up gave an element, whose memory stays mapped while the program runs.
        let window = unsafe { &mut (*at).window };
        let Window {
            acknowledged,
            offered,
            ..
        } = window.after(packet);
        (window.acknowledged, window.offered) = (acknowledged, offered);
    }
}

/// A flow: its place, its value, and its check word. For what is done at once.
pub(super) struct FlowRef<A: 'static> {
    at: *mut Flow<A>,
    pub(super) value: &'static Flow<A>,
    check: u32,
}

impl<A: Address> FlowRef<A> {
    /// Returns the flow with this key, read in place. The element may be recycled during the read;
    /// then the check word, computed over both, belongs to neither. Enough to write expiries; to
    /// replay a flow, copy it first.
    #[inline(always)]
    pub(super) fn find<F: FlowMaps<Address = A>>(key: &FlowKey<A>, now: Tick) -> Option<Self> {
        let at = find::<F>(key, now)?;
        // SAFETY: the look-up gave an element, whose memory stays mapped while the program runs.
        let value = unsafe { &*at };
        let check = value.action.check(key);
        scratch::forget(at);
        Some(Self { at, value, check })
    }

    /// Returns true if the connection was closed within one refresh interval.
    #[inline(always)]
    pub(super) const fn is_closed(&self, now: Tick) -> bool {
        self.value.seen.is_closed(self.check, now)
    }

    /// Returns true if the kernel handled a packet of the flow recently enough.
    #[inline(always)]
    pub(super) const fn is_current(&self, generation: u32, now: Tick) -> bool {
        self.value.is_current(self.check, generation, now)
    }

    /// Returns true for a flow on probation that was in use and is due for a refresh: it belongs
    /// into the table.
    #[inline(always)]
    pub(super) const fn is_promoted(&self, generation: u32, now: Tick) -> bool {
        let flow = self.value;
        flow.is_on_probation() && !flow.is_expected() && !self.is_current(generation, now)
    }

    /// Extends the flow, and the expiry of its reverse flow, by what was learned once more. The
    /// largest window stays, and an arrival that is known.
    #[inline(always)]
    pub(super) fn extend(&self, until: Tick, reverse: Option<Tick>, learned: &Flow<A>) {
        // SAFETY: as in `write_reverse`.
        let flow = unsafe { &mut *self.at };
        let offered = flow.window.offered.max(learned.window.offered);
        flow.window = Window {
            offered,
            ..learned.window
        };
        if learned.arrival.is_known() {
            flow.arrival = learned.arrival;
        }
        write_reverse(
            self.at,
            reverse.map_or(Expiry::NONE, |until| Expiry::until(self.check, until)),
        );
        write_seen(self.at, Expiry::until(self.check, until));
    }

    /// Lets a flow that takes the place of this one continue its counts.
    #[inline(always)]
    pub(super) const fn hand_counts_to(&self, flow: &mut Flow<A>) {
        flow.continue_counts(self.value, self.check);
    }

    /// Ends the flow as if it had never been learned.
    #[inline(always)]
    pub(super) fn forget(&self) {
        write_seen(self.at, Expiry::NONE);
    }

    #[inline(always)]
    fn end(&self, end: End) {
        let closed = Expiry::closed(self.check, end.closed_until);
        if end.is_opening {
            // SAFETY: as in `write_reverse`.
            unsafe { (*self.at).window.is_learned = 0 };
        }
        write_seen(self.at, if end.is_opening { Expiry::NONE } else { closed });
    }
}

/// The end of a flow.
#[derive(Clone, Copy)]
struct End {
    /// The end of its tombstone.
    closed_until: Tick,
    /// A new connection begins: the flow is forgotten.
    is_opening: bool,
}

/// Sets until when the reverse flow of the flow with this key is usable.
#[inline(always)]
pub(super) fn set_reverse<F: FlowMaps>(key: &FlowKey<F::Address>, expiry: Expiry, now: Tick) {
    if let Some(at) = find::<F>(key, now) {
        write_reverse(at, expiry);
    }
}

#[inline(always)]
fn write_reverse<A>(at: *mut Flow<A>, expiry: Expiry) {
    // SAFETY: the look-up gave an element, whose memory stays mapped while the program runs; an
    // expiry is one word, written whole.
    write_expiry(unsafe { &mut (*at).mirror }, expiry);
}

#[inline(always)]
fn write_seen<A>(at: *mut Flow<A>, expiry: Expiry) {
    // SAFETY: as in `write_reverse`.
    write_expiry(unsafe { &mut (*at).seen }, expiry);
}

#[inline(always)]
fn write_expiry(at: &mut Expiry, expiry: Expiry) {
    // SAFETY: a reference is valid for writes.
    unsafe { write_volatile(at, expiry) };
}

/// The random number of the longest jittered interval.
const LONGEST: u32 = u32::MAX;

/// Ends the flow with this key and its reverse flow, whose key is put into `reverse_key`. An
/// opening packet forgets them. A closing one leaves a tombstone in each, or the last
/// acknowledgement of every connection would be learned.
#[inline(always)]
pub(super) fn end<F: FlowMaps>(
    key: &FlowKey<F::Address>,
    is_opening: bool,
    node: &Node,
    reverse_key: &mut FlowKey<F::Address>,
) {
    let interval = node::fast().map_or(0, |fast| fast.interval);
    let now = node.tick();
    let end = End {
        closed_until: jittered(now, interval, LONGEST),
        is_opening,
    };
    if let Some(flow) = FlowRef::find::<F>(key, now) {
        // The hook before this one has just ended both.
        if !is_opening && flow.is_closed(now.wrapping_add(interval)) {
            return;
        }
        flow.end(end);
        *reverse_key = flow.value.action.mirror_key();
        if let Some(reverse) = FlowRef::find::<F>(reverse_key, now) {
            reverse.end(end);
        }
    }
}

/// Ends the flow of a TCP packet with SYN, FIN or RST, which is the kernel's. A forged one ends it
/// too, which costs the connection speed and no more: see [`super::close_guard::judge`].
#[inline(always)]
pub(crate) fn end_if_control<F: FlowMaps>(
    scratch: &mut Scratch<F>,
    node: &Node,
) -> Result<(), Reason> {
    let Scratch {
        packet,
        keys: [key, _],
        ..
    } = scratch;
    if packet.is_control {
        end::<F>(&packet.key, packet.is_opening, node, key);
        return Err(Reason::TcpControl);
    }
    Ok(())
}
