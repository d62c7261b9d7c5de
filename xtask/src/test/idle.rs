//! The share of time in which the CPUs were idle, by the kernel's counters (`/proc/stat`, proc(5)).

use std::{
    fs,
    time::{Duration, Instant},
};

/// The time between two readings. A shorter one has too few of the kernel's ticks.
pub(super) const PERIOD: Duration = Duration::from_secs(1);

/// Times in ticks of the kernel, summed over all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    all: u64,
}

impl Ticks {
    fn now() -> Option<Self> {
        Self::read(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Reads `cpu  user nice system idle iowait irq softirq steal ...`. What a hypervisor takes is
    /// not idle.
    fn read(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let times: Vec<u64> = line
            .split_ascii_whitespace()
            .take(8)
            .map(str::parse)
            .collect::<Result<_, _>>()
            .ok()?;
        Some(Self {
            idle: times.get(3)? + times.get(4)?,
            all: times.iter().sum(),
        })
    }

    /// Returns the percentage since `before`.
    fn idle_since(self, before: Self) -> Option<u64> {
        let idle = 100 * self.idle.saturating_sub(before.idle);
        idle.checked_div(self.all.saturating_sub(before.all))
    }
}

/// Readings at most once a [`PERIOD`].
#[derive(Debug)]
pub(super) struct IdleTime {
    at: Instant,
    ticks: Option<Ticks>,
}

impl IdleTime {
    /// Starts now.
    pub(super) fn new() -> Self {
        Self {
            at: Instant::now(),
            ticks: Ticks::now(),
        }
    }

    /// Returns the percentage since the last reading; `None` if that was less than a period ago, or
    /// if the kernel has no counters.
    pub(super) fn percentage(&mut self) -> Option<u64> {
        if self.at.elapsed() < PERIOD {
            return None;
        }
        let before = std::mem::replace(self, Self::new());
        self.ticks?.idle_since(before.ticks?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_idle_time_is_read() {
        let read = |line: &str| Ticks::read(line).expect("a line of all CPUs");
        let before = read("cpu  100 0 100 300 50 0 0 0 9 9\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
        let after = read("cpu  140 0 110 320 70 0 0 10 9 9\n");
        assert_eq!(after.idle_since(before), Some(40));
        assert_eq!(after.idle_since(after), None);
        assert_eq!(Ticks::read("intr 1"), None);
        assert!(Ticks::now().is_some_and(|ticks| ticks.idle <= ticks.all));
    }
}
