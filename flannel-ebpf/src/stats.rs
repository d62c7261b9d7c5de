//! Counting: one per-CPU slot per (program, reason). What is counted is also what a monitor is told of.

use flannel_common::{program::Program, reason::Reason, stats::slot};

use crate::{maps::STATS, monitor, skb::Skb};

/// Counts a packet of so many bytes. Programs of one CPU do not interrupt each other between read and write (TC hooks run with
/// bottom halves off), so plain adds lose nothing.
#[inline(always)]
pub(crate) fn count(len: u32, program: Program, reason: Reason) {
    if let Some(counter) = STATS.get_ptr_mut(slot(program, reason)) {
        // SAFETY: the look-up gave this CPU's own slot, valid until the program ends.
        let counter = unsafe { &mut *counter };
        counter.packets += 1;
        counter.bytes += u64::from(len);
    }
}

/// Counts what became of a packet, and tells a monitor, if there is one.
#[inline(always)]
pub(crate) fn record(skb: &Skb, program: Program, reason: Reason) {
    count(skb.len(), program, reason);
    if monitor::is_on() {
        monitor::tell(skb, program, reason);
    }
}
