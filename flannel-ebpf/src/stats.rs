//! Counting: one per-CPU slot per (program, reason). Each counted packet is an event for the
//! monitor.

use core::{arch::asm, mem::transmute};

use flannel_common::abi::{program::Program, reason::Reason, stats::slot};

use crate::{maps::STATS, monitor, packet::skb::Skb};

/// Counts a packet of `len` bytes. Programs of one CPU do not interrupt each other between read and
/// write (TC hooks run with bottom halves off), so plain adds lose nothing.
#[inline(always)]
pub(crate) fn count(len: u32, program: Program, reason: Reason) {
    if let Some(counter) = STATS.get_ptr_mut(slot(program, reason)) {
        // SAFETY: the look-up gave this CPU's own slot, valid until the program ends.
        let counter = unsafe { &mut *counter };
        counter.packets += 1;
        counter.bytes += u64::from(len);
    }
}

/// Returns the reason. For the verifier it is any number then; else what follows is verified again,
/// and remembered, for each reason that a program can give. `word` is any number that the verifier
/// does not know: it does not know the difference of two copies of it either.
#[inline(always)]
pub(crate) fn any(reason: Reason, word: u32) -> Reason {
    let mut number = reason as u64;
    // SAFETY: adds zero to a register.
    unsafe {
        asm!(
            "{copy} = {word}",
            "{copy} -= {word}",
            "{number} += {copy}",
            copy = out(reg) _,
            word = in(reg) u64::from(word),
            number = inout(reg) number,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    // SAFETY: it is the number of a reason.
    unsafe { transmute::<u8, Reason>(number as u8) }
}

/// Counts the outcome of a packet, and reports it to a running monitor.
#[inline(always)]
pub(crate) fn record(skb: &Skb, program: Program, reason: Reason) {
    count(skb.len(), program, reason);
    if monitor::is_on() {
        monitor::report(skb, program, reason);
    }
}
