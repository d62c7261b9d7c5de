//! Decides whether a repeated failure is worth another line in the log.

use std::time::{Duration, Instant};

const REPEAT_AFTER: Duration = Duration::from_mins(1);

/// What was last told about one thing that keeps failing.
#[derive(Clone, Debug, Default)]
pub struct Complaint {
    last: Option<(String, Instant)>,
}

impl Complaint {
    /// Whether `text` should be logged at `now`: it is new, or it was last logged a minute ago.
    pub fn is_due(&mut self, text: &str, now: Instant) -> bool {
        let told = |(last, at): &(String, Instant)| last == text && now.duration_since(*at) < REPEAT_AFTER;
        if self.last.as_ref().is_some_and(told) {
            return false;
        }
        self.last = Some((text.to_owned(), now));
        true
    }

    /// Forgets what was told, and whether there was anything: the failure is over.
    pub fn settle(&mut self) -> bool {
        self.last.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_on_change_and_once_a_minute() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut complaint = Complaint::default();
        assert!(!complaint.settle());
        assert!(complaint.is_due("a", at(0)));
        assert!(!complaint.is_due("a", at(59)));
        assert!(complaint.is_due("a", at(60)));
        assert!(complaint.is_due("b", at(61)));
        assert!(complaint.settle());
        assert!(complaint.is_due("b", at(62)));
    }
}
