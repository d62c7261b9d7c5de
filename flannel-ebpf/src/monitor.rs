//! Telling the monitor of a packet (see `flannel_common::monitor`). Off, this is one load and one branch where packets are
//! counted; on, it is a call, and nothing in it changes the packet or its verdict.

use core::{
    cell::UnsafeCell,
    ptr::{read_volatile, write_volatile},
};

use aya_ebpf::{
    bindings::BPF_RB_NO_WAKEUP,
    helpers::generated::{bpf_get_prandom_u32, bpf_ktime_get_ns, bpf_ringbuf_output, bpf_skb_load_bytes},
};
use flannel_common::{
    ip::{Ipv4Header, Ipv6Header},
    maps::ONLY,
    monitor::{CAPTURE_MAX, Event, Filter, Missed, OUTER_MAX, lease_holds},
    outer::OuterHeaders,
    packet::ETH_LEN,
    program::{OWN_PACKET, Program},
    reason::Reason,
};

use crate::{
    family::Family,
    maps::{CONFIG, EVENTS, MISSED, MONITOR, TOLD},
    skb::Skb,
};

/// Until when packets are told of. A section of its own, so that it is a map of its own, which is pinned.
#[unsafe(link_section = ".data.lease")]
#[unsafe(no_mangle)]
static LEASE: Lease = Lease(UnsafeCell::new(0));

#[repr(transparent)]
struct Lease(UnsafeCell<u64>);

// SAFETY: it is one word, read and written whole.
unsafe impl Sync for Lease {}

impl Lease {
    #[inline(always)]
    fn get(&self) -> u64 {
        // SAFETY: the pointer is valid; volatile, because the monitor writes it.
        unsafe { read_volatile(self.0.get()) }
    }

    #[inline(always)]
    fn end(&self) {
        // SAFETY: as above.
        unsafe { write_volatile(self.0.get(), 0) };
    }
}

/// An event, and behind it the bytes of its packet. They lie here until they are copied into the ring buffer, which takes
/// other than constant lengths only so.
#[repr(C)]
pub(crate) struct Told {
    event: Event,
    bytes: [u8; CAPTURE_MAX],
}

/// Whether a monitor may be there.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    LEASE.get() != 0
}

/// Tells the monitor of a packet, if it wants to know.
#[inline(never)]
pub(crate) fn tell(skb: &Skb, program: Program, reason: Reason) {
    // SAFETY: the helper takes nothing and returns a number.
    let now = unsafe { bpf_ktime_get_ns() };
    if !lease_holds(LEASE.get(), now) {
        LEASE.end();
        return;
    }
    let (Some(monitor), Some(told)) = (MONITOR.get_ptr_mut(ONLY), TOLD.get_ptr_mut(ONLY)) else { return };
    // SAFETY: the look-up gave the element of the array, which lives as long as the map. CPUs may race for the pace, which
    // its type allows for.
    let monitor = unsafe { &mut *monitor };
    // SAFETY: the look-up gave this CPU's own element, and programs at TC hooks do not interrupt each other.
    let told = unsafe { &mut *told };
    if !monitor.filter.wants(program, reason) || !is_drawn(&monitor.filter) {
        return;
    }
    let Some(captured) = capture(skb, monitor.capture, told) else { return };
    let Some(inner_at) = inner_frame(skb, &monitor.filter, told, captured, may_have_outer(skb, program, reason)) else {
        return;
    };
    let Some(due) = monitor.pace.next_due(now) else {
        miss(|missed| &mut missed.limited);
        return;
    };
    monitor.pace.due_ns = due;
    told.event = Event {
        time_ns: now,
        ifindex: skb.ifindex(),
        len: skb.len(),
        gso_size: skb.gso_size(),
        inner_at,
        captured: captured as u16,
        program: program as u8,
        reason: reason as u8,
        reserved: [0; 6],
    };
    send(told, captured);
}

#[inline(always)]
fn is_drawn(filter: &Filter) -> bool {
    // SAFETY: the helper takes nothing and returns a number.
    filter.sample <= 1 || unsafe { bpf_get_prandom_u32() } % filter.sample == 0
}

/// Copies the first bytes of the packet, outer headers or not; how many. The mask is for the verifier, which follows a
/// comparison only as far as the compiler leaves it in one register.
#[inline(always)]
fn capture(skb: &Skb, wanted: u32, told: &mut Told) -> Option<u32> {
    let last = skb.len().min(wanted + OUTER_MAX).wrapping_sub(1);
    let captured = (last & (CAPTURE_MAX as u32 - 1)) + 1;
    // SAFETY: there is room for `CAPTURE_MAX` bytes.
    let failed = unsafe { bpf_skb_load_bytes(skb.raw().cast(), 0, told.bytes.as_mut_ptr().cast(), captured) };
    (failed == 0).then_some(captured)
}

/// Whether the packet is as it is on the underlay.
#[inline(always)]
fn may_have_outer(skb: &Skb, program: Program, reason: Reason) -> bool {
    match program {
        Program::ToUnderlay => true,
        Program::FromUnderlay => !matches!(reason, Reason::Replayed),
        _ => skb.tc_index() == OWN_PACKET,
    }
}

/// Where the inner frame begins, if its addresses are wanted.
#[inline(always)]
fn inner_frame(skb: &Skb, filter: &Filter, told: &Told, captured: u32, may_have_outer: bool) -> Option<u16> {
    match skb.protocol() {
        Ipv4Header::PROTOCOL => inner_frame_of::<Ipv4Header>(filter, told, captured, may_have_outer),
        Ipv6Header::PROTOCOL => inner_frame_of::<Ipv6Header>(filter, told, captured, may_have_outer),
        _ if filter.asks_for_addresses() => None,
        _ => Some(0),
    }
}

#[inline(always)]
fn inner_frame_of<F: Family>(filter: &Filter, told: &Told, captured: u32, may_have_outer: bool) -> Option<u16> {
    let bytes = told.bytes.as_ptr();
    let is_tunnel = may_have_outer && captured as usize >= OuterHeaders::<F>::LEN && {
        // SAFETY: the headers are bytes, and so many of them were captured.
        let outer = unsafe { &*bytes.cast::<OuterHeaders<F>>() };
        CONFIG.get(ONLY).is_some_and(|config| outer.is_tunnel(F::config(config)))
    };
    let inner_at = if is_tunnel { OuterHeaders::<F>::OVERHEAD } else { 0 };
    if filter.asks_for_addresses() {
        if (captured as usize) < inner_at + ETH_LEN + size_of::<F>() {
            return None;
        }
        // SAFETY: as above.
        let ip = unsafe { &*bytes.wrapping_add(inner_at + ETH_LEN).cast::<F>() };
        if !filter.source.contains(ip.source()) || !filter.destination.contains(ip.destination()) {
            return None;
        }
    }
    Some(inner_at as u16)
}

/// Puts the event into the ring buffer. Nobody is woken: the monitor looks by itself, and an interrupt for a packet would be
/// what a packet costs.
#[inline(always)]
fn send(told: &mut Told, captured: u32) {
    let len = size_of::<Event>() as u32 + captured;
    let data = (&raw mut *told).cast();
    // SAFETY: so many bytes were just written.
    let failed = unsafe { bpf_ringbuf_output((&raw const EVENTS).cast_mut().cast(), data, len.into(), NO_WAKEUP) };
    if failed != 0 {
        miss(|missed| &mut missed.lost);
    }
}

const NO_WAKEUP: u64 = BPF_RB_NO_WAKEUP as u64;

/// Counts a packet that is not told of.
#[inline(always)]
fn miss(counter: impl FnOnce(&mut Missed) -> &mut u64) {
    if let Some(missed) = MISSED.get_ptr_mut(ONLY) {
        // SAFETY: as for what is told: this CPU's own element.
        *counter(unsafe { &mut *missed }) += 1;
    }
}
