//! A rate limit for log lines of one kind.
//!
//! A remote party that can trigger a line can do so thousands of times a second. Without a limit
//! such lines displace the rest of the log.

use std::time::{Duration, Instant};

/// Lines of one kind in a period.
pub const LINES: u32 = 20;
const PERIOD: Duration = Duration::from_mins(1);

/// Lets [`LINES`] complaints through in a minute, and counts the others.
#[derive(Clone, Debug, Default)]
pub struct LogLimit {
    begun: Option<Instant>,
    passed: u32,
    held_back: u64,
    /// A count was given out in this period.
    reported: bool,
}

impl LogLimit {
    /// Returns true if one more line may be logged at `now`; otherwise counts it as held back.
    pub fn admit(&mut self, now: Instant) -> bool {
        if self.is_over(now) {
            *self = Self {
                begun: Some(now),
                held_back: self.held_back,
                ..Self::default()
            };
        }
        if self.passed < LINES {
            self.passed += 1;
            return true;
        }
        self.held_back += 1;
        false
    }

    /// Returns the number of lines held back since the last report, if any, and resets it. Reports
    /// at most twice a period: for the first burst, and at the end.
    pub fn report(&mut self, now: Instant) -> Option<u64> {
        if self.held_back == 0 || (self.reported && !self.is_over(now)) {
            return None;
        }
        self.reported = true;
        Some(std::mem::take(&mut self.held_back))
    }

    fn is_over(&self, now: Instant) -> bool {
        self.begun
            .is_none_or(|begun| now.duration_since(begun) >= PERIOD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_twenty_lines_and_a_count() {
        let start = Instant::now();
        let mut limit = LogLimit::default();
        assert_eq!((0..100_000).filter(|_| limit.admit(start)).count(), 20);
        assert_eq!(limit.report(start), Some(99_980));
        assert_eq!(limit.report(start), None);
    }

    #[test]
    fn an_endless_stream_is_counted_once_a_minute() {
        let start = Instant::now();
        let mut limit = LogLimit::default();
        let (mut lines, mut counted) = (0_u64, 0);
        for second in 0..600 {
            let now = start + Duration::from_secs(second);
            for _ in 0..1000 {
                lines += u64::from(limit.admit(now));
            }
            if let Some(more) = limit.report(now) {
                (lines, counted) = (lines + 1, counted + more);
            }
        }
        assert!(lines <= 10 * 22, "{lines} lines in ten minutes");
        let end = limit
            .report(start + Duration::from_mins(10))
            .expect("the rest is counted at the end");
        assert_eq!(
            counted + end + 10 * u64::from(LINES),
            600_000,
            "each is logged or counted"
        );
    }
}
