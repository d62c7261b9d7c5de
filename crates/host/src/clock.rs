//! The clock leases are kept by: `CLOCK_BOOTTIME`.
//!
//! A store counts the lifetime of a lease while this machine is suspended as well, and whatever its
//! wall clock is set to. Of the kernel's clocks only this one goes on through the first and takes
//! no part in the second
//! ([clock_gettime(2)](https://man7.org/linux/man-pages/man2/clock_gettime.2.html)). What is
//! measured in moments, such as back-off and deadlines, stays with [`std::time::Instant`], which
//! stands still in suspend.

use std::{
    ops::Add,
    time::{Duration, SystemTime},
};

use nix::time::{ClockId, clock_gettime};
use tokio::time::sleep;

/// The longest single sleep of `until`. The kernel's timers stand still in suspend, so after a
/// resumption a waiter notices the elapsed time at most this much later.
const LOOK: Duration = Duration::from_secs(2);

/// The wall clock, in seconds since 1970 UTC.
pub fn unix_now() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// A moment: the time since the machine was started, suspension included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(Duration);

impl BootTime {
    /// This moment.
    pub fn now() -> Self {
        Self(
            clock_gettime(ClockId::CLOCK_BOOTTIME)
                .expect("every Linux has this clock")
                .into(),
        )
    }

    /// So long before; the start of the machine if it was started later than that.
    #[must_use]
    pub fn before(self, earlier: Duration) -> Self {
        Self(self.0.saturating_sub(earlier))
    }

    /// From `earlier` until this moment; nothing if it is the later one.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The wall clock's reading at this moment, as that clock stands now.
    pub fn wall(self) -> SystemTime {
        let (now, wall) = (Self::now(), SystemTime::now());
        if self > now {
            wall + self.since(now)
        } else {
            wall - now.since(self)
        }
    }

    /// That reading in seconds since 1970 UTC.
    pub fn unix(self) -> u64 {
        self.wall()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs()
    }
}

impl Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(later))
    }
}

/// Waits for a moment; for ever when there is none.
pub async fn until(due: Option<BootTime>) {
    let Some(due) = due else {
        return std::future::pending().await;
    };
    loop {
        let left = due.since(BootTime::now());
        if left.is_zero() {
            return;
        }
        sleep(left.min(LOOK)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_counted_from_the_start_of_the_machine() {
        let read = || -> f64 {
            let text = std::fs::read_to_string("/proc/uptime").expect("Linux");
            text.split(' ')
                .next()
                .and_then(|seconds| seconds.parse().ok())
                .expect("a number")
        };
        let (before, now, after) = (read(), BootTime::now().0.as_secs_f64(), read());
        // The file has hundredths.
        assert!(
            (before - 0.02..=after + 0.02).contains(&now),
            "{before} {now} {after}"
        );
    }

    #[test]
    fn moments_are_reported_on_the_wall_clock_as_it_stands() {
        let (now, wall) = (BootTime::now(), SystemTime::now());
        // No moment is before the start of the machine.
        let span = Duration::from_hours(1).min(now.0);
        for (moment, expected) in [(now + span, wall + span), (now.before(span), wall - span)] {
            let reported = moment.wall();
            let off = reported
                .duration_since(expected)
                .unwrap_or_else(|error| error.duration());
            assert!(
                off < Duration::from_mins(1),
                "{reported:?} for {expected:?}"
            );
        }
        assert_eq!(now.since(now + span), Duration::ZERO);
    }
}
