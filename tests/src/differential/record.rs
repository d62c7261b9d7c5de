//! The outcome of a run, packet by packet. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    frame::{Header, IcmpError, Outer, Seen, read},
    packets::Key,
    scenario::{Direction, Place, Scenario},
    tracked::{Entry, Tuple},
};

/// A flow and a direction.
pub type Way = (u16, Direction);

/// A run's outcome.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Arrivals of each packet, intact, at the receiver's socket or at the receiving end of a
    /// connection.
    pub delivered: BTreeMap<Key, u32>,
    /// The header of each packet as it first came to the receiver's device.
    pub headers: BTreeMap<Key, Header>,
    /// Packets that came to the receiver's device after one with a higher number.
    pub late: BTreeMap<Way, u32>,
    /// Packets that came to a pod they were not for.
    pub copies: BTreeMap<Way, u32>,
    /// The outer header of each packet as it first came over the cable.
    pub outer: BTreeMap<Key, Outer>,
    /// Outer identifications that a flow used again while fragments of the first packet could still
    /// be waited for.
    pub repeated_ids: BTreeMap<Way, u32>,
    /// The same of another flow's identifications.
    pub shared_ids: BTreeMap<Way, u32>,
    /// Packets that a filter on a cable saw.
    pub mirrored: BTreeSet<Key>,
    /// Errors of ICMP that came to a pod.
    pub errors: BTreeMap<(Place, IcmpError), u32>,
    /// Packets counted by each rule.
    pub counters: BTreeMap<u16, u64>,
    /// Conntrack's entries of the flows at the end.
    pub tracked: BTreeMap<Tuple, Entry>,
    /// The outcome of each conversation.
    pub outcomes: BTreeMap<u16, String>,
    /// Packets that were sent.
    pub sent: u64,
    /// Packets that were replayed.
    pub replayed: u64,
}

/// Outer packets of a node after which an identification may come again.
const ID_WINDOW: usize = 100;

impl Record {
    /// Adds the frames that came in by a pod's device.
    pub fn add_pod(&mut self, scenario: &Scenario, pod: Place, frames: &[Vec<u8>]) {
        let mut highest: BTreeMap<Way, u32> = BTreeMap::new();
        for seen in frames.iter().filter_map(|frame| read(frame)) {
            match seen {
                Seen::Packet(key, header, _) => {
                    let way = (key.flow, key.direction);
                    let Some(flow) = scenario.flow(key.flow) else {
                        continue;
                    };
                    let receiver = if key.direction == Direction::Forward {
                        flow.to
                    } else {
                        Place::Near
                    };
                    if pod != receiver {
                        *self.copies.entry(way).or_default() += 1;
                        continue;
                    }
                    let before = highest.entry(way).or_insert(key.number);
                    if key.number < *before {
                        *self.late.entry(way).or_default() += 1;
                    }
                    *before = key.number.max(*before);
                    self.headers.entry(key).or_insert(header);
                }
                Seen::Error(error) => *self.errors.entry((pod, error)).or_default() += 1,
            }
        }
    }

    /// Adds the frames that came in by a node's cable.
    pub fn add_cable(&mut self, frames: &[Vec<u8>]) {
        let mut ids: VecDeque<(u16, Way)> = VecDeque::new();
        for seen in frames.iter().filter_map(|frame| read(frame)) {
            if let Seen::Packet(key, _, Some(outer)) = seen {
                let way = (key.flow, key.direction);
                if let Some((_, other)) =
                    ids.iter().find(|(id, _)| outer.id != 0 && *id == outer.id)
                {
                    let ids = if *other == way {
                        &mut self.repeated_ids
                    } else {
                        &mut self.shared_ids
                    };
                    *ids.entry(way).or_default() += 1;
                }
                ids.push_front((outer.id, way));
                ids.truncate(ID_WINDOW);
                self.outer.entry(key).or_insert(outer);
            }
        }
    }

    /// Adds the frames that a filter on a cable mirrored.
    pub fn add_mirrored(&mut self, frames: &[Vec<u8>]) {
        for seen in frames.iter().filter_map(|frame| read(frame)) {
            if let Seen::Packet(key, ..) = seen {
                self.mirrored.insert(key);
            }
        }
    }

    /// Notes that a receiver got a packet.
    pub fn deliver(&mut self, key: Key) {
        *self.delivered.entry(key).or_default() += 1;
    }
}
