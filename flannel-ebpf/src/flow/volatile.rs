//! Copies of flows whose memory other CPUs may write.

use core::ptr::read_volatile;

use flannel_common::{flow::Flow, flow::flow_key::Address};

/// Copies a flow word by word. Volatile, so that the check word and the use are of one reading.
#[inline(always)]
pub(crate) fn copy<A: Address>(at: *const Flow<A>, to: &mut Flow<A>) {
    let (from, to) = (at.cast::<u64>(), (&raw mut *to).cast::<u64>());
    for word in 0..size_of::<Flow<A>>() / size_of::<u64>() {
        // SAFETY: both are flows, aligned to eight bytes and a multiple of that long. `at` may be
        // recycled during the copy, as in `FlowRef::find`.
        let value = unsafe { read_volatile(from.wrapping_add(word)) };
        // SAFETY: as above.
        unsafe { to.wrapping_add(word).write(value) };
    }
}
