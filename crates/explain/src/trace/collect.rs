//! From the events of a trace to the ways of packets. Pure.
//!
//! Packets and the rules of each are limited, so a trace has a bounded size.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use flannel_netfilter::{
    HeaderFingerprint, TraceDirection, TraceEvent, TraceJudgement, TraceStep, TraceVerdict,
};

use super::document::TraceOutcome;

/// Packets that are followed.
const PACKETS: usize = 2000;
/// Rules of one packet that are kept. The last one is always kept.
const RULES: usize = 64;
/// The time in which a packet passes the rules. A packet that began less than that before the end
/// of the trace may still be on its way.
const WAY: Duration = Duration::from_millis(200);

/// The packets of a trace.
#[derive(Debug, Default)]
pub(super) struct Collector {
    /// Packets on their way, by their numbers.
    moving: BTreeMap<u32, MovingPacket>,
    /// The ways that packets took, and their number.
    ways: BTreeMap<PacketTrack, u64>,
    followed: usize,
    pub(super) lost: bool,
}

/// A packet on its way.
#[derive(Debug)]
struct MovingPacket {
    begun: Instant,
    fingerprint: Option<HeaderFingerprint>,
    direction: TraceDirection,
    judgements: Vec<TraceJudgement>,
    has_passed: bool,
}

/// The way of a packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PacketTrack {
    pub(super) outcome: TraceOutcome,
    pub(super) direction: TraceDirection,
    pub(super) judgements: Vec<TraceJudgement>,
}

impl Collector {
    /// Takes an event that came at this time.
    pub(super) fn take(&mut self, event: TraceEvent, now: Instant) {
        let TraceEvent::Step {
            packet,
            fingerprint,
            step,
        } = event
        else {
            self.lost = true;
            return;
        };
        if let TraceStep::Begun(direction) = step {
            let moving = MovingPacket {
                begun: now,
                fingerprint,
                direction,
                judgements: Vec::new(),
                has_passed: false,
            };
            return self.begin(packet, moving);
        }
        self.renumber(packet, fingerprint);
        match step {
            TraceStep::Judged(judgement) => self.judge(packet, judgement),
            TraceStep::Passed => {
                if let Some(moving) = self.moving.get_mut(&packet) {
                    moving.has_passed = true;
                }
            }
            TraceStep::Begun(_) => {}
        }
    }

    /// Ends the trace. Returns the ways of packets with their numbers.
    pub(super) fn finish(mut self, now: Instant) -> BTreeMap<PacketTrack, u64> {
        for moving in std::mem::take(&mut self.moving).into_values() {
            let is_moving =
                moving.outcome() == TraceOutcome::Unknown && now.duration_since(moving.begun) < WAY;
            if !is_moving {
                self.count(moving);
            }
        }
        self.ways
    }

    fn begin(&mut self, packet: u32, moving: MovingPacket) {
        if self.followed < PACKETS {
            self.followed += 1;
            self.number(packet, moving);
        } else if let Some(before) = self.moving.remove(&packet) {
            self.count(before);
        }
    }

    /// Gives this number to a packet. The number may have been that of a packet whose way is over.
    fn number(&mut self, packet: u32, moving: MovingPacket) {
        if let Some(before) = self.moving.insert(packet, moving) {
            self.count(before);
        }
    }

    /// Gives this number to the packet with this fingerprint whose way is not over, unless it is
    /// that of such a packet.
    fn renumber(&mut self, packet: u32, fingerprint: Option<HeaderFingerprint>) {
        let is_same = |moving: &MovingPacket| {
            moving.fingerprint == fingerprint && moving.outcome() == TraceOutcome::Unknown
        };
        if fingerprint.is_none() || self.moving.get(&packet).is_some_and(is_same) {
            return;
        }
        let known = self
            .moving
            .iter()
            .filter(|(_, moving)| is_same(moving))
            .min_by_key(|(_, moving)| moving.begun)
            .map(|(number, _)| *number);
        if let Some(moving) = known.and_then(|number| self.moving.remove(&number)) {
            self.number(packet, moving);
        }
    }

    fn judge(&mut self, packet: u32, judgement: TraceJudgement) {
        let Some(moving) = self.moving.get_mut(&packet) else {
            return;
        };
        let is_end_of_chain = judgement.rule.is_none() && judgement.verdict == TraceVerdict::Return;
        if judgement.verdict == TraceVerdict::Continue || is_end_of_chain {
            return;
        }
        if moving.judgements.len() == RULES {
            moving.judgements.pop();
        }
        moving.judgements.push(judgement);
        if moving.outcome() == TraceOutcome::Dropped
            && let Some(moving) = self.moving.remove(&packet)
        {
            self.count(moving);
        }
    }

    fn count(&mut self, packet: MovingPacket) {
        let outcome = packet.outcome();
        let MovingPacket {
            direction,
            judgements,
            ..
        } = packet;
        *self
            .ways
            .entry(PacketTrack {
                outcome,
                direction,
                judgements,
            })
            .or_default() += 1;
    }
}

impl MovingPacket {
    fn outcome(&self) -> TraceOutcome {
        match self.judgements.last().map(|judgement| &judgement.verdict) {
            // A packet may be dropped behind the last hook of the family inet, by a bridge.
            Some(TraceVerdict::Drop) => TraceOutcome::Dropped,
            _ if self.has_passed => TraceOutcome::Passed,
            Some(TraceVerdict::Stolen | TraceVerdict::Queue) => TraceOutcome::Taken,
            _ => TraceOutcome::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use flannel_netfilter::NftablesTable;

    use super::*;

    fn judged(packet: u32, chain: &str, rule: Option<u64>, verdict: TraceVerdict) -> TraceEvent {
        let table = NftablesTable {
            family: 1,
            name: "filter".to_owned(),
        };
        step(
            packet,
            TraceStep::Judged(TraceJudgement {
                table,
                chain: chain.to_owned(),
                rule,
                verdict,
            }),
        )
    }

    fn step(packet: u32, step: TraceStep) -> TraceEvent {
        TraceEvent::Step {
            packet,
            fingerprint: None,
            step,
        }
    }

    fn begun(packet: u32) -> TraceEvent {
        step(packet, TraceStep::Begun(TraceDirection::Original))
    }

    fn passed(packet: u32) -> TraceEvent {
        step(packet, TraceStep::Passed)
    }

    /// The outcomes, rules and numbers of the packets of these events, at the end of a long trace.
    fn ways(events: impl IntoIterator<Item = TraceEvent>) -> Vec<(TraceOutcome, usize, u64)> {
        let (mut collector, now) = (Collector::default(), Instant::now());
        for event in events {
            collector.take(event, now);
        }
        let ways = collector.finish(now + WAY);
        ways.into_iter()
            .map(|(track, packets)| (track.outcome, track.judgements.len(), packets))
            .collect()
    }

    #[test]
    fn packets_of_one_way_are_counted_together() {
        let dropped = |packet| {
            [
                begun(packet),
                judged(
                    packet,
                    "forward",
                    Some(3),
                    TraceVerdict::Jump("pol".to_owned()),
                ),
                judged(packet, "pol", Some(9), TraceVerdict::Continue),
                judged(packet, "pol", Some(4), TraceVerdict::Drop),
            ]
        };
        let accepted = [
            begun(3),
            judged(3, "forward", None, TraceVerdict::Accept),
            passed(3),
        ];
        let events = dropped(1).into_iter().chain(dropped(2)).chain(accepted);
        assert_eq!(
            ways(events),
            [(TraceOutcome::Dropped, 2, 2), (TraceOutcome::Passed, 1, 1)]
        );
    }

    #[test]
    fn a_number_that_is_used_again_is_another_packet() {
        let events = [begun(1), passed(1), begun(1), passed(1)];
        assert_eq!(ways(events), [(TraceOutcome::Passed, 0, 2)]);
    }

    /// The event with the headers of a UDP packet of this identification.
    fn with_headers(event: TraceEvent, id: u8) -> TraceEvent {
        let network = [
            0x45, 0, 0, 60, 0, id, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        match event {
            TraceEvent::Step { packet, step, .. } => TraceEvent::Step {
                packet,
                fingerprint: HeaderFingerprint::of(&network, &[0; 8]),
                step,
            },
            lost @ TraceEvent::Lost => lost,
        }
    }

    #[test]
    fn a_packet_that_a_bridge_hands_on_is_one_packet() {
        let events = [
            with_headers(begun(1), 1),
            with_headers(begun(2), 2),
            with_headers(judged(11, "forward", None, TraceVerdict::Accept), 1),
            with_headers(judged(12, "forward", Some(4), TraceVerdict::Drop), 2),
            with_headers(passed(11), 1),
            with_headers(judged(13, "forward", Some(5), TraceVerdict::Drop), 3),
        ];
        assert_eq!(
            ways(events),
            [(TraceOutcome::Dropped, 1, 1), (TraceOutcome::Passed, 1, 1)]
        );
    }

    /// A later packet may have the place in memory of one that the bridge handed on.
    #[test]
    fn a_number_that_a_bridge_gives_again_is_another_packet() {
        let handed_on = |id| {
            [
                with_headers(begun(1), id),
                with_headers(judged(11, "forward", None, TraceVerdict::Accept), id),
                with_headers(passed(11), id),
            ]
        };
        for ids in [[1, 2], [0, 0]] {
            assert_eq!(
                ways(ids.into_iter().flat_map(handed_on)),
                [(TraceOutcome::Passed, 1, 2)],
                "{ids:?}"
            );
        }
    }

    /// As the identifier of an echo request.
    #[test]
    fn a_packet_whose_headers_are_translated_keeps_its_number() {
        let events = [with_headers(begun(1), 1), with_headers(passed(1), 2)];
        assert_eq!(ways(events), [(TraceOutcome::Passed, 0, 1)]);
    }

    #[test]
    fn a_drop_behind_the_last_hook_counts_and_other_packets_do_not() {
        let events = [
            begun(1),
            passed(1),
            judged(1, "bridge", Some(1), TraceVerdict::Drop),
            judged(7, "forward", Some(1), TraceVerdict::Drop),
        ];
        assert_eq!(ways(events), [(TraceOutcome::Dropped, 1, 1)]);
    }

    #[test]
    fn a_packet_without_an_end_is_unknown_unless_it_is_moving() {
        let queued = judged(2, "forward", Some(1), TraceVerdict::Queue);
        let events = [begun(1), begun(2), queued];
        assert_eq!(
            ways(events),
            [(TraceOutcome::Unknown, 0, 1), (TraceOutcome::Taken, 1, 1)]
        );
        let (mut collector, now) = (Collector::default(), Instant::now());
        collector.take(begun(1), now);
        assert!(collector.finish(now).is_empty());
    }

    #[test]
    fn rules_and_packets_are_bounded() {
        let accepts =
            (0..1000).map(|handle| judged(1, "forward", Some(handle), TraceVerdict::Accept));
        let events = [begun(1)].into_iter().chain(accepts).chain([judged(
            1,
            "last",
            Some(1),
            TraceVerdict::Drop,
        )]);
        assert_eq!(ways(events), [(TraceOutcome::Dropped, RULES, 1)]);
        let packets = (0..10_000).map(begun);
        assert_eq!(ways(packets), [(TraceOutcome::Unknown, 0, 2000)]);
    }
}
