//! The flow tables: finding, ending and writing flows.
//!
//! A value is copied before anything in it is believed, and compared with the check word of the key it was found under
//! (see `flannel_common::flow`). What is written into an element in place is a stamp, which carries that check word; an
//! element that was given to another key meanwhile takes no harm.

use core::ptr::{read_volatile, write_volatile};

use aya_ebpf::maps::{Array, LruHashMap, PerCpuArray};
use flannel_common::{
    class::PathKey,
    end::{Address, End},
    ethernet::EthernetHeader,
    flow::Flow,
    inner::{Frame, InnerHeader, Plain},
    ip::{Ipv4Header, Ipv6Header},
    maps::ONLY,
    note::Note,
    outer::OuterHeaders,
    reason::Reason,
    stamp::Stamp,
    tick::{Tick, jittered},
};

use crate::{
    family::Family,
    legs::Waiting,
    maps::{FLOWS, FLOWS6, NOTES, NOTES6, SCRATCH, SCRATCH6},
    node::{self, Node},
};

/// The maps of mode `fast` for one address family.
pub(crate) trait Tables: Family + InnerHeader {
    fn flows() -> &'static LruHashMap<End<Self::Address>, Flow<Self::Address>>;
    fn notes() -> &'static Array<Note<Self::Address>>;
    fn scratches() -> &'static PerCpuArray<Scratch<Self>>;
}

macro_rules! tables {
    ($family:ty, $flows:ident, $notes:ident, $scratch:ident) => {
        impl Tables for $family {
            #[inline(always)]
            fn flows() -> &'static LruHashMap<End<Self::Address>, Flow<Self::Address>> {
                &$flows
            }

            #[inline(always)]
            fn notes() -> &'static Array<Note<Self::Address>> {
                &$notes
            }

            #[inline(always)]
            fn scratches() -> &'static PerCpuArray<Scratch<Self>> {
                &$scratch
            }
        }
    };
}

tables!(Ipv4Header, FLOWS, NOTES, SCRATCH);
tables!(Ipv6Header, FLOWS6, NOTES6, SCRATCH6);

/// What a program works on, off its stack of 512 bytes: one for each CPU, for as long as a program runs.
#[repr(C)]
pub(crate) struct Scratch<F: InnerHeader> {
    /// The packet's headers.
    pub(crate) frame: Frame<F>,
    /// What they say.
    pub(crate) packet: Plain<F::Address>,
    /// A copy of its flow, or the flow to be written.
    pub(crate) flow: Flow<F::Address>,
    /// What is written in front of it.
    pub(crate) sent: Encapsulated<F>,
    /// What is written over its first bytes.
    pub(crate) bare: Bare<F>,
    /// The last number drawn for a packet's turn.
    pub(crate) turn: u32,
    /// How many packets were encapsulated.
    pub(crate) count: u16,
    /// What is left to be asked, of a packet that waits for its leg.
    pub(crate) waiting: Waiting,
    /// The packet that was sent on last, as a number; 0 once it was seen at the external interface.
    pub(crate) own: u64,
    /// Under what the path of a packet with a mark or a priority is looked up.
    pub(crate) path: PathKey,
}

/// Outer headers and the inner IP header behind them.
#[repr(C)]
pub(crate) struct Encapsulated<F> {
    pub(crate) outer: OuterHeaders<F>,
    pub(crate) ip: F,
}

/// Ethernet and IP header with which a packet leaves where there is no tunnel.
#[repr(C)]
pub(crate) struct Bare<F> {
    pub(crate) ethernet: EthernetHeader,
    pub(crate) ip: F,
}

/// This CPU's scratch. A program takes it once: programs at TC hooks do not interrupt each other, and none calls another.
#[inline(always)]
pub(crate) fn scratch<F: Tables>() -> Result<&'static mut Scratch<F>, Reason> {
    let scratch = F::scratches().get_ptr_mut(ONLY).ok_or(Reason::NotConfigured)?;
    // SAFETY: the look-up gave this CPU's own element.
    Ok(unsafe { &mut *scratch })
}

/// Where a flow with this key is.
#[inline(always)]
pub(crate) fn place<F: Tables>(key: &End<F::Address>) -> Option<*mut Flow<F::Address>> {
    F::flows().get_ptr_mut(key)
}

/// A flow that was found: where it is, what it says, and its check word.
pub(crate) struct Known<'a, A> {
    at: *mut Flow<A>,
    pub(crate) flow: &'a Flow<A>,
    check: u32,
}

impl<A: Address> Known<'static, A> {
    /// The flow with this key, read where it is. The element may be recycled meanwhile; then the check word, computed
    /// over both, belongs to neither. Good enough for whoever only writes stamps; who follows a flow copies it first.
    #[inline(always)]
    pub(crate) fn find<F: Tables<Address = A>>(key: &End<A>) -> Option<Self> {
        let at = place::<F>(key)?;
        // SAFETY: the look-up gave an element, whose memory stays mapped while the program runs.
        let flow = unsafe { &*at };
        Some(Self { at, flow, check: flow.body.check(key) })
    }
}

impl<'a, A: Address> Known<'a, A> {
    /// The flow with this key, of which `flow` is a copy made at `at`.
    #[inline(always)]
    pub(crate) fn copied(at: *mut Flow<A>, flow: &'a Flow<A>, key: &End<A>) -> Self {
        Self { at, flow, check: flow.body.check(key) }
    }

    /// Whether packets may be treated as seen; if not, why.
    #[inline(always)]
    pub(crate) const fn usable(&self, generation: u32, node: &Node) -> Result<(), Reason> {
        self.flow.usable(self.check, generation, node.tick(), node.confirmed())
    }

    /// Whether it was seen recently enough.
    #[inline(always)]
    pub(crate) const fn is_current(&self, generation: u32, now: Tick) -> bool {
        self.flow.is_current(self.check, generation, now)
    }

    /// Whether it was closed of late.
    #[inline(always)]
    pub(crate) const fn is_closed(&self, now: Tick) -> bool {
        self.flow.seen.is_closed(self.check, now)
    }

    /// Counts one packet taken.
    #[inline(always)]
    pub(crate) fn count(&self) {
        // SAFETY: as in `find`. A lost count does no harm.
        unsafe { (*self.at).packets = self.flow.replayed() + 1 };
    }

    /// It was seen once more.
    #[inline(always)]
    pub(crate) fn see_again(&self, until: Tick, mirror: Option<Tick>) {
        self.mirrored(mirror);
        self.write_seen(Stamp::until(self.check, until));
    }

    /// Its way back was seen, and is known until then; or it is not known.
    #[inline(always)]
    pub(crate) fn mirrored(&self, until: Option<Tick>) {
        let stamp = until.map_or(Stamp::NONE, |until| Stamp::until(self.check, until));
        // SAFETY: as in `find`; a stamp is one word, written whole.
        stamp_at(unsafe { &mut (*self.at).mirror }, stamp);
    }

    /// Ends it: as if it had never been seen, or closed until then.
    #[inline(always)]
    fn end(&self, closed_until: Option<Tick>) {
        self.write_seen(closed_until.map_or(Stamp::NONE, |until| Stamp::closed(self.check, until)));
    }

    /// Ends it as if it had never been seen.
    #[inline(always)]
    pub(crate) fn forget(&self) {
        self.end(None);
    }

    #[inline(always)]
    fn write_seen(&self, stamp: Stamp) {
        // SAFETY: as in `mirrored`.
        stamp_at(unsafe { &mut (*self.at).seen }, stamp);
    }
}

#[inline(always)]
fn stamp_at(at: &mut Stamp, stamp: Stamp) {
    // SAFETY: a reference is valid for writes.
    unsafe { write_volatile(at, stamp) };
}

/// Copies a flow, word by word: volatile, so that what is checked and what is used are one reading.
#[inline(always)]
pub(crate) fn copy<A: Address>(at: *const Flow<A>, to: &mut Flow<A>) {
    let (from, to) = (at.cast::<u64>(), (&raw mut *to).cast::<u64>());
    for word in 0..size_of::<Flow<A>>() / size_of::<u64>() {
        // SAFETY: both are flows, aligned to eight bytes and a multiple of that long. `at` may be recycled meanwhile, as in
        // `Known::find`.
        let value = unsafe { read_volatile(from.wrapping_add(word)) };
        // SAFETY: as above.
        unsafe { to.wrapping_add(word).write(value) };
    }
}

/// The number that makes a jittered interval longest.
const LONGEST: u32 = u32::MAX;

/// Ends the flow with this key and its way back. An opening packet forgets them; a closing one leaves a tombstone in
/// each, or the last acknowledgement of every connection would be learned.
#[inline(always)]
pub(crate) fn end<F: Tables>(key: &End<F::Address>, is_opening: bool, node: &Node) {
    let interval = node::fast().map_or(0, |fast| fast.interval);
    let closed_until = if is_opening { None } else { Some(jittered(node.tick(), interval, LONGEST)) };
    if let Some(known) = Known::find::<F>(key) {
        known.end(closed_until);
        if let Some(mirror) = Known::find::<F>(&known.flow.body.mirror_key()) {
            mirror.end(closed_until);
        }
    }
}
