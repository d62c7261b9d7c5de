//! Comparison of many words without a branch for each.
//!
//! The compiler takes such a comparison apart into branches, which cost little when they run. But
//! at each of them the kernel's verifier keeps a state of the program in memory, several kilobytes.

/// Returns true if no bit of the difference is set.
#[inline(always)]
pub(crate) fn is_none(difference: u32) -> bool {
    opaque(difference) == 0
}

/// Returns the number, of whose origin the compiler then knows nothing.
#[cfg(target_arch = "bpf")]
#[inline(always)]
fn opaque(number: u32) -> u64 {
    let copy: u64;
    // SAFETY: copies a register.
    unsafe {
        core::arch::asm!("{} = {}", out(reg) copy, in(reg) u64::from(number),
            options(pure, nomem, nostack, preserves_flags));
    }
    copy
}

#[cfg(not(target_arch = "bpf"))]
#[inline(always)]
const fn opaque(number: u32) -> u32 {
    number
}
