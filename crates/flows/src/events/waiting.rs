//! Events that wait for the names of their ends, in their order and for a bounded time.

use std::{
    collections::{BTreeSet, VecDeque},
    net::IpAddr,
    time::{Duration, Instant},
};

use super::FlowEvent;

/// The longest wait for names.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);
/// Events that wait. More are passed on with the names that are known.
pub(crate) const WAITING: usize = 1024;

/// The events.
#[derive(Debug, Default)]
pub struct Waiting(VecDeque<(Instant, FlowEvent)>);

impl Waiting {
    /// Adds events.
    pub fn extend(&mut self, events: Vec<FlowEvent>, now: Instant) {
        self.0.extend(events.into_iter().map(|event| (now, event)));
    }

    /// The addresses of the events that wait.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let all: BTreeSet<_> = self
            .0
            .iter()
            .flat_map(|(_, event)| event.all_addresses())
            .collect();
        all.into_iter().collect()
    }

    /// The events that need not wait any more: all of them if every name is known, or else those
    /// that have waited for long, and those that are too many.
    pub fn due(&mut self, is_complete: bool, now: Instant) -> impl Iterator<Item = FlowEvent> + '_ {
        let surplus = self.0.len().saturating_sub(WAITING);
        let has_waited =
            |(at, _): &(Instant, FlowEvent)| now.saturating_duration_since(*at) >= PATIENCE;
        let old = self.0.iter().take_while(|event| has_waited(event)).count();
        let due = if is_complete {
            self.0.len()
        } else {
            surplus.max(old)
        };
        self.0.drain(..due).map(|(_, event)| event)
    }

    /// True if no event waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Discards all events.
    pub fn clear(&mut self) {
        self.0 = VecDeque::new();
    }
}
