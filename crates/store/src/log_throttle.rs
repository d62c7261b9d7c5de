//! Decides whether a repeated failure is worth another line in the log.

use std::time::{Duration, Instant};

use flannel_host::log_limit::LogLimit;

const REPEAT_AFTER: Duration = Duration::from_mins(1);

/// The message last logged about one recurring failure.
#[derive(Clone, Debug, Default)]
pub struct LogThrottle {
    last: Option<(String, Instant)>,
    limit: LogLimit,
}

impl LogThrottle {
    /// Returns true if `text` should be logged at `now`: it differs from the last one, or that was
    /// logged at least a minute ago. A text that changes each time is logged at most 20 times a
    /// minute.
    pub fn is_due(&mut self, text: &str, now: Instant) -> bool {
        let is_recent =
            |(last, at): &(String, Instant)| last == text && now.duration_since(*at) < REPEAT_AFTER;
        if self.last.as_ref().is_some_and(is_recent) || !self.limit.admit(now) {
            return false;
        }
        self.last = Some((text.to_owned(), now));
        true
    }

    /// Forgets the last message, because the failure is over. Returns true if there was one.
    pub fn clear(&mut self) -> bool {
        self.last.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_logged_on_change_and_once_a_minute() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut throttle = LogThrottle::default();
        assert!(!throttle.clear());
        assert!(throttle.is_due("a", at(0)));
        assert!(!throttle.is_due("a", at(59)));
        assert!(throttle.is_due("a", at(60)));
        assert!(throttle.is_due("b", at(61)));
        assert!(throttle.clear());
        assert!(throttle.is_due("b", at(62)));
    }

    #[test]
    fn a_failure_that_changes_all_the_time_is_logged_twenty_times_a_minute() {
        let start = Instant::now();
        let mut throttle = LogThrottle::default();
        let lines = (0..60_000_u64).filter(|n| {
            let due = throttle.is_due(
                &format!("problem {n}"),
                start + Duration::from_millis(n * 10),
            );
            throttle.clear();
            due
        });
        assert_eq!(lines.count(), 10 * 20);
    }
}
