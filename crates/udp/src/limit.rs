//! A limit for ICMP errors: a token bucket, as the kernel's `icmp_msgs_per_sec`
//! (`icmp_global_allow()` in [net/ipv4/icmp.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/icmp.c)).

use std::time::{Duration, Instant};

/// Errors in a second, on average.
const RATE: u32 = 1_000;
/// Errors at once.
const BURST: u32 = 50;

/// The tokens that are left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    tokens: u32,
    filled: Instant,
}

impl Limit {
    /// Full.
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            tokens: BURST,
            filled: now,
        }
    }

    /// Takes a token; false if there is none.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        const PERIOD: Duration = Duration::from_nanos(1_000_000_000 / RATE as u64);
        let due = now.saturating_duration_since(self.filled).as_nanos() / PERIOD.as_nanos();
        let due = u32::try_from(due).unwrap_or(BURST).min(BURST);
        if due > 0 {
            self.tokens = (self.tokens + due).min(BURST);
            self.filled = if self.tokens == BURST {
                now
            } else {
                self.filled + PERIOD * due
            };
        }
        let has_token = self.tokens > 0;
        self.tokens -= u32::from(has_token);
        has_token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_one_in_a_millisecond() {
        let start = Instant::now();
        let mut limit = Limit::new(start);
        let mut count = |at: Duration| (0..2_000).filter(|_| limit.take(start + at)).count();
        assert_eq!(count(Duration::ZERO), 50);
        assert_eq!(count(Duration::from_micros(999)), 0);
        assert_eq!(count(Duration::from_millis(10)), 10);
        assert_eq!(
            count(Duration::from_hours(1)),
            50,
            "never more than a burst at once"
        );
    }
}
