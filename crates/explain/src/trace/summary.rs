//! From the ways of packets to the part of the document. Pure.

use std::collections::BTreeMap;

use flannel_firewall::nft_family;
use flannel_netfilter::{TraceDirection, TraceJudgement, TraceVerdict};

use super::{
    collect::PacketTrack,
    document::{PacketDirection, TraceDrop, TraceOutcome, TracePath, TraceReport, TracedRule},
};

/// Ways that are listed.
const PATHS: usize = 12;

/// The report of these ways.
pub(super) fn report(ways: &BTreeMap<PacketTrack, u64>) -> TraceReport {
    let of = |outcome| {
        ways.iter()
            .filter(|(track, _)| track.outcome == outcome)
            .map(|(_, packets)| packets)
            .sum()
    };
    // Packets of one outcome are next to each other, the dropped ones first.
    let mut sorted: Vec<_> = ways.iter().collect();
    sorted.sort_by_key(|(track, packets)| (track.outcome, std::cmp::Reverse(**packets)));
    TraceReport {
        traced: ways.values().sum(),
        dropped: of(TraceOutcome::Dropped),
        passed: of(TraceOutcome::Passed),
        taken: of(TraceOutcome::Taken),
        unknown: of(TraceOutcome::Unknown),
        drops: drops(ways),
        paths: sorted
            .iter()
            .take(PATHS)
            .map(|(track, packets)| path(track, **packets))
            .collect(),
        omitted: sorted
            .iter()
            .skip(PATHS)
            .map(|(_, packets)| **packets)
            .sum(),
        ..TraceReport::default()
    }
}

fn drops(ways: &BTreeMap<PacketTrack, u64>) -> Vec<TraceDrop> {
    let mut by_rule: BTreeMap<(TraceDirection, &TraceJudgement), u64> = BTreeMap::new();
    for (track, packets) in ways
        .iter()
        .filter(|(track, _)| track.outcome == TraceOutcome::Dropped)
    {
        if let Some(last) = track.judgements.last() {
            *by_rule.entry((track.direction, last)).or_default() += packets;
        }
    }
    let drop = |((direction, judgement), packets)| TraceDrop {
        packets,
        direction: PacketDirection::from(direction),
        rule: TracedRule::from(judgement),
    };
    let mut drops: Vec<_> = by_rule.into_iter().map(drop).collect();
    drops.sort_by_key(|drop| std::cmp::Reverse(drop.packets));
    drops.truncate(PATHS);
    drops
}

fn path(track: &PacketTrack, packets: u64) -> TracePath {
    TracePath {
        packets,
        direction: PacketDirection::from(track.direction),
        outcome: track.outcome,
        rules: track.judgements.iter().map(TracedRule::from).collect(),
    }
}

impl From<TraceDirection> for PacketDirection {
    fn from(direction: TraceDirection) -> Self {
        match direction {
            TraceDirection::Original => Self::Original,
            TraceDirection::Reply => Self::Reply,
        }
    }
}

impl From<&TraceJudgement> for TracedRule {
    fn from(judgement: &TraceJudgement) -> Self {
        let TraceJudgement {
            table,
            chain,
            rule,
            verdict,
        } = judgement;
        Self {
            family: nft_family(table.family).unwrap_or("?").to_owned(),
            table: table.name.clone(),
            chain: chain.clone(),
            handle: *rule,
            verdict: verdict_text(verdict),
            text: None,
        }
    }
}

fn verdict_text(verdict: &TraceVerdict) -> String {
    match verdict {
        TraceVerdict::Accept => "accept".to_owned(),
        TraceVerdict::Drop => "drop".to_owned(),
        TraceVerdict::Stolen => "stolen".to_owned(),
        TraceVerdict::Queue => "queue".to_owned(),
        TraceVerdict::Continue => "continue".to_owned(),
        TraceVerdict::Jump(chain) => format!("jump {chain}"),
        TraceVerdict::Goto(chain) => format!("goto {chain}"),
        TraceVerdict::Return => "return".to_owned(),
        TraceVerdict::Other(code) => format!("verdict {code}"),
    }
}

#[cfg(test)]
mod tests {
    use flannel_netfilter::NftablesTable;

    use super::*;

    fn track(outcome: TraceOutcome, handle: u64, verdict: TraceVerdict) -> PacketTrack {
        let table = NftablesTable {
            family: 1,
            name: "filter".to_owned(),
        };
        let judgement = TraceJudgement {
            table,
            chain: "forward".to_owned(),
            rule: Some(handle),
            verdict,
        };
        PacketTrack {
            outcome,
            direction: TraceDirection::Original,
            judgements: vec![judgement],
        }
    }

    #[test]
    fn dropped_packets_come_first_and_are_counted_by_rule() {
        let ways = BTreeMap::from([
            (track(TraceOutcome::Passed, 1, TraceVerdict::Accept), 90),
            (track(TraceOutcome::Dropped, 2, TraceVerdict::Drop), 3),
            (track(TraceOutcome::Dropped, 3, TraceVerdict::Drop), 7),
        ]);
        let report = report(&ways);
        assert_eq!(
            (report.traced, report.dropped, report.passed, report.unknown),
            (100, 10, 90, 0)
        );
        let handles: Vec<_> = report
            .drops
            .iter()
            .map(|drop| (drop.rule.handle, drop.packets))
            .collect();
        assert_eq!(handles, [(Some(3), 7), (Some(2), 3)]);
        let packets: Vec<_> = report
            .paths
            .iter()
            .map(|path| (path.outcome, path.packets))
            .collect();
        assert_eq!(
            packets,
            [
                (TraceOutcome::Dropped, 7),
                (TraceOutcome::Dropped, 3),
                (TraceOutcome::Passed, 90)
            ]
        );
        let rule = &report.paths[0].rules[0];
        assert_eq!(
            (
                rule.family.as_str(),
                rule.table.as_str(),
                rule.verdict.as_str()
            ),
            ("inet", "filter", "drop")
        );
    }

    #[test]
    fn ways_that_are_too_many_are_counted_and_not_listed() {
        let way = |handle| {
            (
                track(
                    TraceOutcome::Passed,
                    handle,
                    TraceVerdict::Jump("other".to_owned()),
                ),
                2,
            )
        };
        let report = report(&(0..20).map(way).collect());
        assert_eq!(
            (report.paths.len(), report.omitted, report.traced),
            (PATHS, 16, 40)
        );
        assert_eq!(report.paths[0].rules[0].verdict, "jump other");
    }
}
