//! The last flows, encoded, for any number of readers at their own pace.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use prost::{Message as _, bytes::Bytes};
use tokio::sync::watch;

use crate::flow::{Flow, LostEvent, LostEventSource, Timestamp};

/// The period of the rate in the status.
const RATE_PERIOD: Duration = Duration::from_mins(1);

/// A bounded ring of flows. Clones share it.
#[derive(Clone, Debug)]
pub struct FlowRing(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    ring: Mutex<Ring>,
    /// The sequence number of the next entry.
    end: watch::Sender<u64>,
    /// True once the source has filled in the flows that it found.
    primed: watch::Sender<bool>,
    capacity: usize,
}

#[derive(Debug, Default)]
struct Ring {
    entries: VecDeque<Entry>,
    /// The sequence number behind the last entry.
    end: u64,
    seen: u64,
    /// The beginning of the current period, the flows before it, and the rate of the period before.
    period: Option<(Instant, u64, f64)>,
}

/// An entry of the ring.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// An encoded [`Flow`], and its time.
    Flow(Bytes, Timestamp),
    /// Flows that were lost before they came to the ring.
    Lost(LostEvent),
}

/// The entries from a position on.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) entries: Vec<Entry>,
    /// The position behind them.
    pub(crate) next: u64,
    /// Entries before them that were overwritten.
    pub(crate) missed: u64,
}

/// Numbers for the status.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RingState {
    pub(crate) held: u64,
    pub(crate) capacity: u64,
    pub(crate) seen: u64,
    pub(crate) rate: f64,
}

/// The most entries that are read at once, so that the lock is held briefly.
const BATCH: usize = 256;

impl FlowRing {
    /// An empty ring for this number of flows, at least one.
    pub fn new(capacity: usize) -> Self {
        let (end, primed) = (watch::channel(0).0, watch::channel(false).0);
        Self(Arc::new(Shared {
            ring: Mutex::default(),
            end,
            primed,
            capacity: capacity.max(1),
        }))
    }

    /// Adds a flow, in place of the oldest if the ring is full. Readers that wait are woken by
    /// [`Self::show`]: once for flows that come together.
    pub fn push(&self, flow: &Flow) {
        let entry = Entry::Flow(flow.encode_to_vec().into(), flow.time.unwrap_or_default());
        let mut ring = self.lock();
        ring.count_flow(Instant::now());
        self.append(&mut ring, entry);
    }

    /// Adds the number of flows that were lost before they came here, likewise.
    pub fn push_lost(&self, count: u64) {
        let source = LostEventSource::PerfEventRingBuffer.into();
        self.append(
            &mut self.lock(),
            Entry::Lost(LostEvent {
                source,
                num_events_lost: count,
            }),
        );
    }

    /// Wakes readers that wait for flows.
    pub fn show(&self) {
        let end = self.lock().end;
        self.0
            .end
            .send_if_modified(|shown| std::mem::replace(shown, end) != end);
    }

    /// Removes all flows. For a source that has stopped: they are old.
    pub fn clear(&self) {
        self.0.primed.send_replace(false);
        self.lock().entries = VecDeque::new();
    }

    /// Marks the flows that exist as being in the ring, for readers that wait for them.
    pub fn set_primed(&self) {
        self.0.primed.send_replace(true);
    }

    /// Waits until [`Self::set_primed`] was called.
    pub(crate) async fn primed(&self) {
        // The sender lives as long as the ring.
        let _ = self.0.primed.subscribe().wait_for(|primed| *primed).await;
    }

    /// The position of the oldest entry.
    pub(crate) fn oldest(&self) -> u64 {
        self.lock().oldest()
    }

    /// The position behind the newest entry.
    pub(crate) fn end(&self) -> u64 {
        self.lock().end
    }

    /// Reads entries from a position on.
    pub(crate) fn read(&self, from: u64) -> Batch {
        let ring = self.lock();
        let oldest = ring.oldest();
        let start = from.clamp(oldest, ring.end);
        let skipped = usize::try_from(start - oldest).unwrap_or(usize::MAX);
        let entries: Vec<_> = ring
            .entries
            .iter()
            .skip(skipped)
            .take(BATCH)
            .cloned()
            .collect();
        Batch {
            next: start + entries.len() as u64,
            entries,
            missed: oldest.saturating_sub(from),
        }
    }

    /// Follows the position behind the newest entry.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.end.subscribe()
    }

    pub(crate) fn state(&self) -> RingState {
        let mut ring = self.lock();
        RingState {
            held: ring.entries.len() as u64,
            capacity: self.0.capacity as u64,
            seen: ring.seen,
            rate: ring.rate(Instant::now()),
        }
    }

    fn append(&self, ring: &mut Ring, entry: Entry) {
        if ring.entries.len() >= self.0.capacity {
            ring.entries.pop_front();
        }
        ring.entries.push_back(entry);
        ring.end += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.0.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn oldest(&self) -> u64 {
        self.end - self.entries.len() as u64
    }

    fn count_flow(&mut self, now: Instant) {
        self.roll(now);
        self.seen += 1;
    }

    /// Flows a second of the last whole period, or of the time since the first flow.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn rate(&mut self, now: Instant) -> f64 {
        self.roll(now);
        match self.period {
            Some((begun, before, 0.0)) if now > begun => {
                (self.seen - before) as f64 / (now - begun).as_secs_f64()
            }
            Some((_, _, rate)) => rate,
            None => 0.0,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn roll(&mut self, now: Instant) {
        let (begun, before, _) = *self.period.get_or_insert((now, self.seen, 0.0));
        let passed = now - begun;
        if passed >= RATE_PERIOD {
            self.period = Some((
                now,
                self.seen,
                (self.seen - before) as f64 / passed.as_secs_f64(),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(seconds: i64) -> Flow {
        Flow {
            time: Some(Timestamp { seconds, nanos: 0 }),
            ..Flow::default()
        }
    }

    fn times(batch: &Batch) -> Vec<i64> {
        let time = |entry: &Entry| match entry {
            Entry::Flow(_, time) => time.seconds,
            Entry::Lost(lost) => -i64::try_from(lost.num_events_lost).expect("a small number"),
        };
        batch.entries.iter().map(time).collect()
    }

    #[test]
    fn a_full_ring_drops_its_oldest_and_tells_readers_how_many_they_missed() {
        let ring = FlowRing::new(3);
        (1..=2).for_each(|second| ring.push(&flow(second)));
        let first = ring.read(ring.oldest());
        assert_eq!(
            (times(&first), first.next, first.missed),
            (vec![1, 2], 2, 0)
        );
        (3..=6).for_each(|second| ring.push(&flow(second)));
        let second = ring.read(first.next);
        assert_eq!(
            (times(&second), second.next, second.missed),
            (vec![4, 5, 6], 6, 1)
        );
        assert!(ring.read(second.next).entries.is_empty());
        ring.push_lost(7);
        assert_eq!(times(&ring.read(second.next)), [-7]);
        let state = ring.state();
        assert_eq!(
            (state.held, state.capacity, state.seen),
            (3, 3, 6),
            "what was lost is not a flow"
        );
    }

    #[test]
    fn a_cleared_ring_keeps_its_positions() {
        let ring = FlowRing::new(3);
        (1..=2).for_each(|second| ring.push(&flow(second)));
        let next = ring.read(0).next;
        ring.clear();
        ring.push(&flow(3));
        assert_eq!(times(&ring.read(next)), [3]);
    }

    #[test]
    fn the_rate_is_that_of_a_whole_minute_once_there_is_one() {
        let (mut ring, start) = (Ring::default(), Instant::now());
        (0..10).for_each(|_| ring.count_flow(start));
        assert!((ring.rate(start + Duration::from_secs(5)) - 2.0).abs() < 0.01);
        (0..50).for_each(|_| ring.count_flow(start + Duration::from_secs(30)));
        assert!((ring.rate(start + Duration::from_mins(1)) - 1.0).abs() < 0.01);
    }
}
