//! The clock that programs and agent share: `CLOCK_MONOTONIC_COARSE`, what `bpf_ktime_get_coarse_ns` reads.

use nix::time::{ClockId, clock_gettime};

/// Now, in nanoseconds. It stands still while the machine sleeps, as the programs' clock does.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).expect("every Linux has this clock");
    let seconds = u64::try_from(now.tv_sec()).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec()).unwrap_or_default()
}
