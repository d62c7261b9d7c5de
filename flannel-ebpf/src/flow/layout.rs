//! The places of fields in the structures of this kernel.

use core::ptr::read_volatile;

use flannel_common::abi::kernel::KernelLayout;

/// The agent sets it when it loads the object; the verifier takes it for a constant, so that
/// without it the helper that reads kernel memory is not needed.
#[unsafe(no_mangle)]
static KERNEL: KernelLayout = KernelLayout::UNKNOWN;

#[inline(always)]
pub(super) fn layout() -> KernelLayout {
    // SAFETY: a static is valid for reads. Volatile, because the agent changes it before the object
    // is loaded.
    unsafe { read_volatile(&raw const KERNEL) }
}
