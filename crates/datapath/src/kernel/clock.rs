//! The clocks that programs and agent share.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

/// Now, in nanoseconds of `CLOCK_MONOTONIC_COARSE`, what `bpf_ktime_get_coarse_ns` reads. It stands
/// still while the machine sleeps, as the programs' clock does.
pub fn now_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC_COARSE)
}

/// The time of day at which `CLOCK_MONOTONIC`, what `bpf_ktime_get_ns` reads, was zero: what is to
/// be added to a program's time, since 1970. It changes when the time of day is set and when the
/// machine sleeps.
pub fn monotonic_epoch() -> Duration {
    let time_of_day = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    time_of_day.saturating_sub(Duration::from_nanos(read(ClockId::CLOCK_MONOTONIC)))
}

fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock).expect("every Linux has this clock");
    let seconds = u64::try_from(now.tv_sec()).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec()).unwrap_or_default()
}
