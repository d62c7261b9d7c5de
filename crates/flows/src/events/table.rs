//! The flows of mode `fast`, compared with those of the last reading.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    time::{Duration, Instant},
};

use super::{
    INTERVAL,
    event::{FlowEvent, FlowEventKind},
};
use crate::rows::FlowRow;

/// A flow of the last reading.
#[derive(Debug)]
struct Known {
    packets: u64,
    /// When it last had an event.
    reported: Instant,
    /// The reading that had it last.
    reading: u32,
    /// For the event of its end, if ends are asked for.
    row: Option<Box<FlowRow>>,
}

/// Compares readings. A flow is known by a hash of its ends, so that ten thousand take half a
/// megabyte.
#[derive(Debug, Default)]
pub(super) struct TableEvents {
    known: HashMap<u64, Known>,
    hasher: RandomState,
    reading: u32,
    with_ends: bool,
}

impl TableEvents {
    /// With or without events for the ends of flows.
    pub(super) fn new(with_ends: bool) -> Self {
        Self {
            with_ends,
            ..Self::default()
        }
    }

    /// Begins a reading.
    pub(super) fn begin(&mut self) {
        self.reading = self.reading.wrapping_add(1);
    }

    /// The event of one flow of the reading, if there is news: it is new, or it had packets and no
    /// event within the interval. In the first reading flows are not new.
    pub(super) fn observe(
        &mut self,
        row: FlowRow,
        now: Instant,
        wall: Duration,
    ) -> Option<FlowEvent> {
        let hash = self
            .hasher
            .hash_one((row.protocol, row.source, row.destination, row.device));
        let reading = self.reading;
        let kind = match self.known.get_mut(&hash) {
            None if reading == 1 => FlowEventKind::Active,
            None => FlowEventKind::New,
            Some(known) => {
                known.reading = reading;
                let is_due = now.saturating_duration_since(known.reported) >= INTERVAL;
                if known.packets == row.packets || !is_due {
                    return None;
                }
                FlowEventKind::Active
            }
        };
        let event = FlowEvent::of_row(&row, kind, wall);
        let kept = Known {
            packets: row.packets,
            reported: now,
            reading,
            row: self.with_ends.then(|| Box::new(row)),
        };
        self.known.insert(hash, kept);
        Some(event)
    }

    /// Ends a reading: the flows that it did not have are forgotten. Returns the events of their
    /// ends, if these are asked for.
    pub(super) fn finish(&mut self, wall: Duration) -> Vec<FlowEvent> {
        let (reading, mut ended) = (self.reading, Vec::new());
        self.known.retain(|_, known| {
            let is_there = known.reading == reading;
            if let Some(row) = known.row.as_ref().filter(|_| !is_there) {
                ended.push(FlowEvent::of_row(row, FlowEventKind::Ended, wall));
            }
            is_there
        });
        ended
    }
}
