//! The series that are kept, and which of them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{PEERS, PODS, POINTS, RateHistory, TrafficHistory};

/// The rates of one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tick {
    /// Of the node.
    pub node: TickRate,
    /// Of each peer, by its subnet.
    pub peers: Vec<(String, TickRate)>,
    /// Of each pod, by its veth.
    pub pods: Vec<(String, TickRate)>,
}

/// Packets and bits a second; `None` if they are not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TickRate {
    /// Packets a second.
    pub packets: Option<f64>,
    /// Bits a second.
    pub bits: Option<f64>,
}

/// The recorder, for the task that fills it and for answers. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SharedHistory(Arc<Mutex<Recorder>>);

impl SharedHistory {
    /// Adds the rates of a moment.
    pub fn record(&self, tick: Tick) {
        self.lock().record(tick);
    }

    /// The rates of the last ten minutes.
    pub fn document(&self) -> TrafficHistory {
        self.lock().document()
    }

    fn lock(&self) -> MutexGuard<'_, Recorder> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The series of the last ten minutes.
#[derive(Debug)]
struct Recorder {
    node: Series,
    peers: SeriesSet,
    pods: SeriesSet,
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            node: Series::default(),
            peers: SeriesSet::new(PEERS),
            pods: SeriesSet::new(PODS),
        }
    }
}

impl Recorder {
    fn record(&mut self, tick: Tick) {
        self.node.push(tick.node);
        self.peers.record(tick.peers);
        self.pods.record(tick.pods);
    }

    fn document(&self) -> TrafficHistory {
        TrafficHistory {
            node: self.node.document(),
            peers: self.peers.documents(),
            pods: self.pods.documents(),
        }
    }
}

/// Packets and bits a second, eight bytes; not a number where they are not known.
#[derive(Clone, Copy, Debug)]
struct Point {
    packets: f32,
    bits: f32,
}

/// The last points, the oldest first. A series that began later has fewer.
#[derive(Debug, Default)]
struct Series(VecDeque<Point>);

impl Series {
    #[expect(clippy::cast_possible_truncation, reason = "three digits are shown")]
    fn push(&mut self, rate: TickRate) {
        if self.0.len() == POINTS {
            self.0.pop_front();
        }
        self.0.reserve_exact(POINTS - self.0.len());
        let value = |rate: Option<f64>| rate.map_or(f32::NAN, |rate| rate as f32);
        self.0.push_back(Point {
            packets: value(rate.packets),
            bits: value(rate.bits),
        });
    }

    /// Returns true if no packet is known of.
    fn is_idle(&self) -> bool {
        !self.0.iter().any(|point| point.packets > 0.0)
    }

    fn document(&self) -> RateHistory {
        let values = |of: fn(&Point) -> f32| self.0.iter().map(|point| whole(of(point))).collect();
        RateHistory {
            packets_per_second: values(|point| point.packets),
            bits_per_second: values(|point| point.bits),
        }
    }
}

/// The whole number that is not less; `None` for what is not a number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is not negative"
)]
fn whole(value: f32) -> Option<u64> {
    (!value.is_nan()).then(|| value.ceil() as u64)
}

/// Series by their names, a bounded number of them.
#[derive(Debug)]
struct SeriesSet {
    most: usize,
    series: BTreeMap<String, Series>,
}

impl SeriesSet {
    const fn new(most: usize) -> Self {
        Self {
            most,
            series: BTreeMap::new(),
        }
    }

    /// Adds a point to each series. New series are the busiest of those without one, while there is
    /// room; one without a packet makes room.
    fn record(&mut self, mut rates: Vec<(String, TickRate)>) {
        rates.sort_by_key(|(_, rate)| Reverse(rate.packets.unwrap_or_default().to_bits()));
        let (mut new, mut known) = (Vec::new(), BTreeMap::new());
        for (name, rate) in rates {
            if self.series.contains_key(&name) {
                known.insert(name, rate);
            } else if rate.packets.is_some_and(|packets| packets > 0.0) {
                new.push((name, rate));
            }
        }
        for (name, series) in &mut self.series {
            series.push(known.get(name).copied().unwrap_or_default());
        }
        self.series.retain(|_, series| !series.is_idle());
        new.truncate(self.most.saturating_sub(self.series.len()));
        for (name, rate) in new {
            self.series.entry(name).or_default().push(rate);
        }
    }

    fn documents(&self) -> BTreeMap<String, RateHistory> {
        self.series
            .iter()
            .map(|(name, series)| (name.clone(), series.document()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(packets: f64) -> TickRate {
        TickRate {
            packets: Some(packets),
            bits: Some(packets * 8000.0),
        }
    }

    fn peers(rates: &[(&str, f64)]) -> Tick {
        let peers = rates
            .iter()
            .map(|(name, packets)| ((*name).to_owned(), rate(*packets)))
            .collect();
        Tick {
            node: rate(rates.iter().map(|(_, packets)| packets).sum()),
            peers,
            ..Tick::default()
        }
    }

    fn packets(history: &RateHistory) -> &[Option<u64>] {
        &history.packets_per_second
    }

    #[test]
    fn the_last_ten_minutes_are_kept() {
        let mut recorder = Recorder::default();
        for packets in 0..200_u32 {
            recorder.record(peers(&[("a", f64::from(packets) + 0.5)]));
        }
        let document = recorder.document();
        let expected: Vec<_> = (141..=200).map(Some).collect();
        assert_eq!(packets(&document.peers["a"]), expected, "rounded up");
        assert_eq!(document.node.packets_per_second, expected);
        assert_eq!(document.node.bits_per_second[0], Some(140 * 8000 + 4000));
    }

    #[test]
    fn a_series_that_is_not_known_has_a_gap_and_one_without_packets_leaves() {
        let mut recorder = Recorder::default();
        recorder.record(peers(&[("a", 5.0), ("idle", 0.0)]));
        recorder.record(peers(&[]));
        recorder.record(peers(&[("a", 7.0)]));
        let document = recorder.document();
        assert_eq!(packets(&document.peers["a"]), [Some(5), None, Some(7)]);
        assert_eq!(
            document.peers.len(),
            1,
            "a peer that never had a packet takes no room"
        );
        for _ in 0..POINTS {
            recorder.record(peers(&[("a", 0.0)]));
        }
        assert_eq!(recorder.document().peers.len(), 0);
    }

    #[test]
    fn the_number_of_series_is_bounded_and_the_busiest_come_first() {
        let mut recorder = Recorder::default();
        let names: Vec<String> = (0..1000).map(|number| format!("peer-{number}")).collect();
        let rates = |from: u32| -> Tick {
            let rates: Vec<_> = names
                .iter()
                .map(String::as_str)
                .zip((from..).map(f64::from))
                .collect();
            peers(&rates)
        };
        recorder.record(rates(0));
        let document = recorder.document();
        assert_eq!(document.peers.len(), PEERS);
        assert!(
            document.peers.contains_key("peer-999") && !document.peers.contains_key("peer-743"),
            "the busiest"
        );
        for _ in 0..100 {
            recorder.record(rates(1));
        }
        let document = recorder.document();
        assert!(
            document.peers.len() == PEERS && document.peers.contains_key("peer-999"),
            "those stay"
        );
        assert_eq!(packets(&document.peers["peer-999"]).len(), POINTS);
        assert!(
            recorder.node.0.capacity() <= POINTS + 4 && size_of::<Point>() == 8,
            "a bounded number of bytes"
        );
    }
}
