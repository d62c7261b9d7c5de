//! Reads of the kernel's memory, at offsets that the agent takes from its type information.

use aya_ebpf::helpers::bpf_probe_read_kernel;

/// The value at an address.
#[inline(always)]
pub(crate) fn read<T>(at: u64) -> Option<T> {
    // SAFETY: the helper reads kernel memory and fails where there is none. What is read are
    // numbers.
    unsafe { bpf_probe_read_kernel(at as *const T) }.ok()
}
