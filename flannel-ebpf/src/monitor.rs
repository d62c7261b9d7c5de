//! Events for `flannel-agent monitor` (see `flannel_common::abi::monitor`). Without a monitor this
//! costs one load and one branch where packets are counted. With one it is a call that changes
//! neither the packet nor its verdict.

use core::{
    cell::UnsafeCell,
    ptr::{read_volatile, write_volatile},
};

use aya_ebpf::{
    bindings::BPF_RB_NO_WAKEUP,
    helpers::generated::{
        bpf_get_prandom_u32, bpf_ktime_get_ns, bpf_ringbuf_output, bpf_skb_load_bytes,
    },
    macros::map,
    maps::PerCpuArray,
};
use flannel_common::{
    abi::{
        maps::ONLY,
        monitor::{CAPTURE_MAX, Event, Filter, Missed, Monitor, OUTER_MAX, lease_holds},
        program::{Program, SELF_SENT},
        reason::Reason,
    },
    packet::ETH_LEN,
    packet::outer::OuterHeaders,
};

use crate::{
    maps::{CONFIG, EVENTS, MISSED, MONITOR},
    packet::{
        family::{Family, by_any_family},
        skb::Skb,
    },
};

/// Private to the programs: not pinned.
#[map]
static MONITOR_BUFS: PerCpuArray<MonitorBuf> = PerCpuArray::with_max_entries(1, 0);

/// The time until which events are written, `CLOCK_MONOTONIC` in nanoseconds. The separate section
/// makes it a separate map, which is pinned.
#[unsafe(link_section = ".data.lease")]
#[unsafe(no_mangle)]
static MONITOR_DEADLINE: Deadline = Deadline(UnsafeCell::new(0));

#[repr(transparent)]
struct Deadline(UnsafeCell<u64>);

// SAFETY: it is one word, read and written whole.
unsafe impl Sync for Deadline {}

impl Deadline {
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

/// An event, and behind it the bytes of its packet. They lie here until they are copied into the
/// ring buffer, which takes other than constant lengths only so.
#[repr(C)]
pub(crate) struct MonitorBuf {
    event: Event,
    bytes: [u8; ETH_LEN + CAPTURE_MAX],
}

/// Returns the settings of the monitor, if one is running at `now`.
#[inline(always)]
pub(crate) fn settings(now: u64) -> Option<&'static mut Monitor> {
    if !lease_holds(MONITOR_DEADLINE.get(), now) {
        return None;
    }
    // SAFETY: the look-up gave the element of the array, which lives as long as the map. CPUs may
    // race for the pace, which its type allows for.
    MONITOR
        .get_ptr_mut(ONLY)
        .map(|monitor| unsafe { &mut *monitor })
}

/// Returns true if a monitor may be running.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    MONITOR_DEADLINE.get() != 0
}

/// Writes an event of a packet, if the filter of the monitor matches.
#[inline(never)]
pub(crate) fn report(skb: &Skb, program: Program, reason: Reason) {
    // SAFETY: the helper takes nothing and returns a number.
    let now = unsafe { bpf_ktime_get_ns() };
    let Some(monitor) = settings(now) else {
        MONITOR_DEADLINE.end();
        return;
    };
    let Some(buf) = MONITOR_BUFS.get_ptr_mut(ONLY) else {
        return;
    };
    // SAFETY: the look-up gave this CPU's own element, and programs at TC hooks do not interrupt
    // each other.
    let buf = unsafe { &mut *buf };
    if !monitor.filter.wants(program, reason) || !is_drawn(&monitor.filter) {
        return;
    }
    let link = missing_link_header(program, reason);
    let Some(captured) = capture(skb, monitor.capture, link, buf) else {
        return;
    };
    let Some(inner_at) = inner_frame(
        skb,
        &monitor.filter,
        buf,
        captured,
        may_have_outer(skb, program, reason),
    ) else {
        return;
    };
    let Some(due) = monitor.pace.next_due(now) else {
        miss(|missed| &mut missed.limited);
        return;
    };
    monitor.pace.due_ns = due;
    buf.event = Event {
        time_ns: now,
        ifindex: skb.ifindex(),
        len: skb.len() + link,
        gso_size: skb.gso_size(),
        inner_at,
        captured: captured as u16,
        program: program as u8,
        reason: reason as u8,
        is_inbound: 0,
        reserved: [0; 5],
    };
    send(buf, captured);
}

#[inline(always)]
fn is_drawn(filter: &Filter) -> bool {
    // SAFETY: the helper takes nothing and returns a number.
    filter.sample <= 1 || unsafe { bpf_get_prandom_u32() } % filter.sample == 0
}

/// Bytes of the Ethernet header that a packet at a device without Ethernet lacks. A replayed one
/// has got it.
#[inline(always)]
fn missing_link_header(program: Program, reason: Reason) -> u32 {
    let is_replayed = matches!(reason, Reason::Replayed);
    if matches!(program, Program::FromL3Tunnel | Program::ToL3Tunnel) && !is_replayed {
        ETH_LEN as u32
    } else {
        0
    }
}

/// Copies the first bytes of the packet, with or without outer headers, behind a link header of
/// `link` bytes that it lacks; returns how many. The mask is for the verifier, which follows a
/// comparison only while the compiler keeps the value in one register.
#[inline(always)]
fn capture(skb: &Skb, wanted: u32, link: u32, buf: &mut MonitorBuf) -> Option<u32> {
    let last = skb.len().min(wanted + OUTER_MAX).wrapping_sub(1);
    let captured = (last & (CAPTURE_MAX as u32 - 1)) + 1;
    let to = buf.bytes.as_mut_ptr();
    let to = if link == 0 {
        to
    } else {
        buf.bytes[..ETH_LEN].fill(0);
        buf.bytes[ETH_LEN - 2..ETH_LEN].copy_from_slice(&(skb.protocol() as u16).to_ne_bytes());
        to.wrapping_add(ETH_LEN)
    };
    // SAFETY: there is room for `CAPTURE_MAX` bytes.
    let failed = unsafe { bpf_skb_load_bytes(skb.raw().cast(), 0, to.cast(), captured) };
    (failed == 0).then_some(captured + link)
}

/// Returns true if the packet has the form it has on the underlay.
#[inline(always)]
fn may_have_outer(skb: &Skb, program: Program, reason: Reason) -> bool {
    match program {
        Program::ToUnderlay => true,
        Program::FromUnderlay => !matches!(reason, Reason::Replayed),
        _ => skb.tc_index() == SELF_SENT,
    }
}

/// Returns the offset of the inner frame; none if the filter excludes its addresses.
#[inline(always)]
fn inner_frame(
    skb: &Skb,
    filter: &Filter,
    buf: &MonitorBuf,
    captured: u32,
    may_have_outer: bool,
) -> Option<u16> {
    let other = if filter.asks_for_addresses() {
        None
    } else {
        Some(0)
    };
    by_any_family!(skb, inner_frame_of(filter, buf, captured, may_have_outer), else other)
}

#[inline(always)]
fn inner_frame_of<F: Family>(
    filter: &Filter,
    buf: &MonitorBuf,
    captured: u32,
    may_have_outer: bool,
) -> Option<u16> {
    let bytes = buf.bytes.as_ptr();
    let is_tunnel = may_have_outer && captured as usize >= OuterHeaders::<F>::LEN && {
        // SAFETY: any bytes are valid headers, and at least their length was captured.
        let outer = unsafe { &*bytes.cast::<OuterHeaders<F>>() };
        CONFIG
            .get(ONLY)
            .is_some_and(|config| outer.is_tunnel(F::config(config)))
    };
    let inner_at = if is_tunnel {
        OuterHeaders::<F>::OVERHEAD
    } else {
        0
    };
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

/// Writes the event to the ring buffer. No wake-up: the monitor polls, and an interrupt would cost
/// as much as the packet.
#[inline(always)]
fn send(buf: &mut MonitorBuf, captured: u32) {
    let len = size_of::<Event>() as u32 + captured;
    let data = (&raw mut *buf).cast();
    // SAFETY: the first `len` bytes of the buffer were just written.
    let failed = unsafe {
        bpf_ringbuf_output(
            (&raw const EVENTS).cast_mut().cast(),
            data,
            len.into(),
            NO_WAKEUP,
        )
    };
    if failed != 0 {
        miss(|missed| &mut missed.lost);
    }
}

pub(crate) const NO_WAKEUP: u64 = BPF_RB_NO_WAKEUP as u64;

/// Counts a packet without an event.
#[inline(always)]
pub(crate) fn miss(counter: impl FnOnce(&mut Missed) -> &mut u64) {
    if let Some(missed) = MISSED.get_ptr_mut(ONLY) {
        // SAFETY: as for what is buf: this CPU's own element.
        *counter(unsafe { &mut *missed }) += 1;
    }
}
