//! The flow table: finding, ending and writing flows.
//!
//! A value is copied before anything in it is believed, and compared with the check word of the key
//! it was found under (see `flannel_common::flow`). Only an expiry is written into an element in
//! place. It carries that check word, so an element that was given to another key meanwhile takes
//! no harm.

use core::ptr::{read_volatile, write_volatile};

use flannel_common::{
    expiry::Expiry,
    flow::Flow,
    flow_key::{Address, FlowKey},
    inner::ParsedPacket,
    reason::Reason,
    tick::{Tick, jittered},
};

use super::scratch::FlowMaps;
use crate::node::{self, Node};

/// Returns the place of the flow with this key.
#[inline(always)]
pub(crate) fn find<F: FlowMaps>(key: &FlowKey<F::Address>) -> Option<*mut Flow<F::Address>> {
    F::flows().get_ptr_mut(key)
}

/// A flow in the table: its place, its value, and its check word.
pub(crate) struct FlowRef<'a, A> {
    at: *mut Flow<A>,
    pub(crate) value: &'a Flow<A>,
    check: u32,
}

impl<A: Address> FlowRef<'static, A> {
    /// Returns the flow with this key, read in place. The element may be recycled meanwhile; then
    /// the check word, computed over both, belongs to neither. Enough to write expiries; to replay
    /// a flow, copy it first.
    #[inline(always)]
    pub(crate) fn find<F: FlowMaps<Address = A>>(key: &FlowKey<A>) -> Option<Self> {
        let at = find::<F>(key)?;
        // SAFETY: the look-up gave an element, whose memory stays mapped while the program runs.
        let flow = unsafe { &*at };
        Some(Self { at, value: flow, check: flow.action.check(key) })
    }
}

impl<'a, A: Address> FlowRef<'a, A> {
    /// Returns the flow with this key, of which `value` is a copy made at `at`.
    #[inline(always)]
    pub(crate) fn copied(at: *mut Flow<A>, value: &'a Flow<A>, key: &FlowKey<A>) -> Self {
        Self { at, value, check: value.action.check(key) }
    }

    /// Returns why packets may not be replayed, if they may not.
    #[inline(always)]
    pub(crate) const fn usable(&self, generation: u32, node: &Node) -> Result<(), Reason> {
        self.value.usable(self.check, generation, node.tick(), node.confirmed())
    }

    /// Returns true if the kernel handled a packet of the flow recently enough.
    #[inline(always)]
    pub(crate) const fn is_current(&self, generation: u32, now: Tick) -> bool {
        self.value.is_current(self.check, generation, now)
    }

    /// Returns true if the connection was closed within one refresh interval.
    #[inline(always)]
    pub(crate) const fn is_closed(&self, now: Tick) -> bool {
        self.value.seen.is_closed(self.check, now)
    }

    /// Counts one replayed packet.
    #[inline(always)]
    pub(crate) fn count(&self) {
        // SAFETY: as in `find`. A lost count does no harm.
        unsafe { (*self.at).packets = self.value.replayed() + 1 };
    }

    /// Extends the flow, and the expiry of its reverse flow.
    #[inline(always)]
    pub(crate) fn extend(&self, until: Tick, reverse: Option<Tick>) {
        self.set_reverse(reverse);
        self.write_seen(Expiry::until(self.check, until));
    }

    /// Sets until when the reverse flow is usable, or that it is unknown.
    #[inline(always)]
    pub(crate) fn set_reverse(&self, until: Option<Tick>) {
        let expiry = until.map_or(Expiry::NONE, |until| Expiry::until(self.check, until));
        // SAFETY: as in `find`; an expiry is one word, written whole.
        write_expiry(unsafe { &mut (*self.at).mirror }, expiry);
    }

    /// Ends the flow: forgotten, or closed until then.
    #[inline(always)]
    fn end(&self, closed_until: Option<Tick>) {
        self.write_seen(closed_until.map_or(Expiry::NONE, |until| Expiry::closed(self.check, until)));
    }

    /// Ends the flow as if it had never been learned.
    #[inline(always)]
    pub(crate) fn forget(&self) {
        self.end(None);
    }

    #[inline(always)]
    fn write_seen(&self, expiry: Expiry) {
        // SAFETY: as in `set_reverse`.
        write_expiry(unsafe { &mut (*self.at).seen }, expiry);
    }
}

#[inline(always)]
fn write_expiry(at: &mut Expiry, expiry: Expiry) {
    // SAFETY: a reference is valid for writes.
    unsafe { write_volatile(at, expiry) };
}

/// Copies a flow word by word. Volatile, so that the check word and the use are of one reading.
#[inline(always)]
pub(crate) fn copy<A: Address>(at: *const Flow<A>, to: &mut Flow<A>) {
    let (from, to) = (at.cast::<u64>(), (&raw mut *to).cast::<u64>());
    for word in 0..size_of::<Flow<A>>() / size_of::<u64>() {
        // SAFETY: both are flows, aligned to eight bytes and a multiple of that long. `at` may be
        // recycled meanwhile, as in `FlowRef::find`.
        let value = unsafe { read_volatile(from.wrapping_add(word)) };
        // SAFETY: as above.
        unsafe { to.wrapping_add(word).write(value) };
    }
}

/// The random number of the longest jittered interval.
const LONGEST: u32 = u32::MAX;

/// Ends the flow with this key and its reverse flow. An opening packet forgets them. A closing one
/// leaves a tombstone in each, or the last acknowledgement of every connection would be learned.
#[inline(always)]
pub(crate) fn end<F: FlowMaps>(key: &FlowKey<F::Address>, is_opening: bool, node: &Node) {
    let interval = node::fast().map_or(0, |fast| fast.interval);
    let closed_until = if is_opening { None } else { Some(jittered(node.tick(), interval, LONGEST)) };
    if let Some(flow) = FlowRef::find::<F>(key) {
        flow.end(closed_until);
        if let Some(reverse) = FlowRef::find::<F>(&flow.value.action.mirror_key()) {
            reverse.end(closed_until);
        }
    }
}

/// Ends the flow of a TCP packet with SYN, FIN or RST, which is the kernel's.
#[inline(always)]
pub(crate) fn end_if_control<F: FlowMaps>(packet: &ParsedPacket<F::Address>, node: &Node) -> Result<(), Reason> {
    if packet.is_control {
        end::<F>(&packet.key, packet.is_opening, node);
        return Err(Reason::TcpControl);
    }
    Ok(())
}
