//! Counting: one per-CPU slot per (program, reason). Each counted packet is an event for the
//! monitor.

use flannel_common::{program::Program, reason::Reason, stats::slot};

use crate::{maps::STATS, monitor, packet::skb::Skb};

/// Counts a packet of so many bytes. Programs of one CPU do not interrupt each other between read
/// and write (TC hooks run with bottom halves off), so plain adds lose nothing.
#[inline(always)]
pub(crate) fn count(len: u32, program: Program, reason: Reason) {
    if let Some(counter) = STATS.get_ptr_mut(slot(program, reason)) {
        // SAFETY: the look-up gave this CPU's own slot, valid until the program ends.
        let counter = unsafe { &mut *counter };
        counter.packets += 1;
        counter.bytes += u64::from(len);
    }
}

/// Counts the outcome of a packet, and reports it to a running monitor.
#[inline(always)]
pub(crate) fn record(skb: &Skb, program: Program, reason: Reason) {
    count(skb.len(), program, reason);
    if monitor::is_on() {
        monitor::report(skb, program, reason);
    }
}
