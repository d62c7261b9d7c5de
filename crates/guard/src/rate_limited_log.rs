//! Log lines about packets that failed a check: one at once when it begins, then at intervals as
//! long as it goes on, with the sources. They are made from counters, so that a flood of packets
//! does not flood the log.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use flannel_common::abi::guard::Checks;

use super::report::{Count, Suspected};

/// Between lines on packets that are dropped.
const DROPPED: Duration = Duration::from_mins(1);
/// Between lines on packets that pass.
const PASSED: Duration = Duration::from_hours(1);
/// Sources named in one line.
const NAMED: usize = 5;

/// The counts that were logged, and the times.
#[derive(Debug, Default)]
pub(super) struct RateLimitedLog {
    /// True after the first call. Packets counted before it are left to an earlier agent's log.
    begun: bool,
    refused: LastLine,
    passed: LastLine,
}

#[derive(Debug, Default)]
struct LastLine {
    packets: u64,
    at: Option<Instant>,
}

impl LastLine {
    /// Returns the number of packets since the last report, if there are any and a report is due.
    /// It then counts as reported.
    fn take_new(&mut self, packets: u64, interval: Duration, now: Instant) -> Option<u64> {
        // Counters begin again at 0 with new maps.
        let new = packets.checked_sub(self.packets).unwrap_or(packets);
        if new == 0 || self.at.is_some_and(|at| now.duration_since(at) < interval) {
            return None;
        }
        *self = Self {
            packets,
            at: Some(now),
        };
        Some(new)
    }
}

impl RateLimitedLog {
    /// Takes in the current counts, and logs what is due. `suspects` is read only if something is.
    pub(super) fn update<E>(
        &mut self,
        counts: Checks<Count>,
        now: Instant,
        suspects: impl Fn() -> Result<Vec<Suspected>, E>,
    ) -> Result<(), E> {
        let Checks { outer, inner } = counts;
        let (refused, passed) = (outer.refused + inner.refused, outer.passed + inner.passed);
        if !std::mem::replace(&mut self.begun, true) {
            (self.refused.packets, self.passed.packets) = (refused, passed);
            return Ok(());
        }
        if let Some(packets) = self.refused.take_new(refused, DROPPED, now) {
            let sources = named(&suspects()?, |suspect| suspect.dropped);
            tracing::warn!(
                packets,
                sources,
                "the guard drops tunnel packets; if they are from nodes of this cluster, switch it \
                 off with `flannel-agent \
                 guard set off`"
            );
        }
        if let Some(packets) = self.passed.take_new(passed, PASSED, now) {
            let sources = named(&suspects()?, |suspect| {
                suspect.packets - suspect.dropped.min(suspect.packets)
            });
            if !sources.is_empty() {
                tracing::info!(
                    packets,
                    sources,
                    "the guard would drop tunnel packets if it were enforced"
                );
            }
        }
        Ok(())
    }
}

/// The latest sources with something to count, as text.
fn named(suspects: &[Suspected], count: impl Fn(&Suspected) -> u64) -> String {
    let mut text = String::new();
    for suspect in suspects
        .iter()
        .filter(|suspect| count(suspect) > 0)
        .take(NAMED)
    {
        let separator = if text.is_empty() { "" } else { ", " };
        let reason = suspect.reason.map_or("unknown", |reason| reason.name());
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{separator}{} ({}, {reason})",
            suspect.source,
            count(suspect)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_is_logged_at_once_and_the_rest_at_intervals() {
        let (mut last_line, start) = (LastLine::default(), Instant::now());
        let mut take_new = |packets, seconds| {
            last_line.take_new(packets, DROPPED, start + Duration::from_secs(seconds))
        };
        assert_eq!(take_new(0, 0), None);
        assert_eq!(take_new(3, 1), Some(3));
        assert_eq!(take_new(900, 2), None);
        assert_eq!(take_new(1000, 60), None);
        assert_eq!(take_new(1003, 61), Some(1000));
        assert_eq!(take_new(1003, 200), None, "it has ended");
        assert_eq!(take_new(1004, 201), Some(1));
        assert_eq!(take_new(2, 300), Some(2), "the counters began again");
    }

    #[test]
    fn counts_from_before_the_agent_are_not_logged() {
        let mut log = RateLimitedLog::default();
        let count = |refused| Checks {
            outer: Count { refused, passed: 0 },
            inner: Count::default(),
        };
        let asked = std::cell::Cell::new(0);
        let suspects = || {
            asked.set(asked.get() + 1);
            Ok::<_, ()>(Vec::new())
        };
        for (refused, expected) in [(7, 0), (7, 0), (8, 1), (9, 1)] {
            assert_eq!(log.update(count(refused), Instant::now(), suspects), Ok(()));
            assert_eq!(asked.get(), expected, "{refused}");
        }
    }

    #[test]
    fn sources_are_named_up_to_a_number() {
        let suspect = |last: u8, dropped| Suspected {
            source: [192, 0, 2, last].into(),
            packets: 9,
            dropped,
            last_ns: 0,
            reason: Some(flannel_common::abi::reason::Reason::RefusedVtep),
        };
        let few = [suspect(1, 4), suspect(2, 0), suspect(3, 1)];
        let text = "192.0.2.1 (4, refused_vtep), 192.0.2.3 (1, refused_vtep)";
        assert_eq!(named(&few, |suspect| suspect.dropped), text);
        let many: Vec<_> = (1..=9).map(|last| suspect(last, 1)).collect();
        assert_eq!(
            named(&many, |suspect| suspect.dropped)
                .matches("refused_vtep")
                .count(),
            NAMED
        );
    }
}
