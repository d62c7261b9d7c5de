//! The step about the trace of the flow, and what it decides about the packet.

use std::fmt::Write as _;

use flannel_flows::rows::seconds;
use flannel_host::words::{count, first};

use super::step::{Step, StepState};
use crate::{
    snapshot::Snapshot,
    trace::{PacketDirection, TraceDrop, TraceReport, TracedRule},
};

/// Places without a trace that are named.
const NAMED: usize = 3;

/// Returns the step; none without a trace.
pub(super) fn step(facts: &Snapshot) -> Option<Step> {
    let trace = facts.trace.as_ref()?;
    Some(Step::new("trace", state(trace), closing(trace)))
}

/// True if the trace saw packets of the question pass all rules, and none that a rule dropped.
pub(super) fn has_passed(facts: &Snapshot) -> bool {
    facts
        .trace
        .as_ref()
        .is_some_and(|trace| state(trace) == StepState::Ok)
}

fn state(trace: &TraceReport) -> StepState {
    match trace {
        TraceReport { dropped: 1.., .. } => StepState::Fail,
        TraceReport {
            seen: 1..,
            passed: 1..,
            unknown: 0,
            taken: 0,
            ..
        } => StepState::Ok,
        _ => StepState::Unknown,
    }
}

/// The outcome of the trace in a sentence.
fn closing(trace: &TraceReport) -> String {
    let TraceReport {
        seen,
        seen_replies,
        traced,
        passed,
        unknown,
        taken,
        ..
    } = trace;
    let time = time(trace);
    let mut text = match trace.drops.first() {
        Some(drop) => dropped_by(trace, drop),
        None if *seen == 0 && *seen_replies == 0 => {
            format!("no packet of this flow was seen in {time}")
        }
        None if *seen == 0 => format!(
            "no packet of this flow was seen in {time}, and {} of the way back",
            count(*seen_replies, "packet", "packets")
        ),
        None if *traced == 0 => {
            format!(
                "the way of none of {} seen in {time} was over",
                count(*seen, "packet", "packets")
            )
        }
        None if *unknown > 0 => format!(
            "no traced rule dropped a packet, and {unknown} of {traced} did not come to the last \
             hook: see the route, \
             and rules that are not traced"
        ),
        None if *taken > 0 => format!(
            "a rule gave {taken} of {traced} packets to a program, which decides about them"
        ),
        None => format!("passed: no rule dropped a packet, {passed} were traced in {time}"),
    };
    add_limits(&mut text, trace);
    text
}

fn dropped_by(trace: &TraceReport, drop: &TraceDrop) -> String {
    let TraceDrop {
        packets,
        direction,
        rule,
    } = drop;
    let back = if *direction == PacketDirection::Reply {
        " on the way back"
    } else {
        ""
    };
    let mut text = format!(
        "dropped{back} by: {} ({packets} of {})",
        place(rule),
        count(trace.traced, "packet", "packets")
    );
    if trace.drops.len() > 1 {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "; also by {}",
            count(trace.drops.len() - 1, "other rule", "other rules")
        );
    }
    text
}

/// A rule or a policy with its place.
fn place(rule: &TracedRule) -> String {
    let TracedRule {
        family,
        table,
        chain,
        handle,
        verdict,
        text,
    } = rule;
    let place = format!("table {family} {table}, chain {chain}");
    match (handle, text) {
        (Some(handle), Some(text)) => format!("{place}, handle {handle}: {text}"),
        (Some(handle), None) => format!("{place}, handle {handle}: {verdict}"),
        (None, _) => format!("{place}: policy {verdict}"),
    }
}

/// Adds what the trace does not see.
fn add_limits(text: &mut String, trace: &TraceReport) {
    if trace.replayed > 0 {
        let _ = write!(
            text,
            "; mode fast replayed {} without netfilter",
            count(trace.replayed, "packet", "packets")
        );
    }
    if trace.dropped == 0 && !trace.untraced.is_empty() && state(trace) != StepState::Ok {
        let _ = write!(text, "; not traced: {}", first(&trace.untraced, NAMED));
    }
    if trace.events_lost {
        text.push_str("; the kernel lost events of the trace");
    }
}

fn time(trace: &TraceReport) -> String {
    seconds(i64::try_from(trace.milliseconds).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drop_of(direction: PacketDirection, handle: Option<u64>, text: Option<&str>) -> TraceDrop {
        let rule = TracedRule {
            family: "inet".to_owned(),
            table: "filter".to_owned(),
            chain: "forward".to_owned(),
            handle,
            verdict: "drop".to_owned(),
            text: text.map(str::to_owned),
        };
        TraceDrop {
            packets: 3,
            direction,
            rule,
        }
    }

    fn trace() -> TraceReport {
        TraceReport {
            milliseconds: 10_000,
            seen: 9,
            traced: 4,
            passed: 4,
            ..TraceReport::default()
        }
    }

    fn dropping(drop: TraceDrop) -> TraceReport {
        TraceReport {
            dropped: 3,
            passed: 1,
            drops: vec![drop],
            ..trace()
        }
    }

    #[test]
    fn the_rule_that_drops_is_named_with_its_text() {
        let said = closing(&dropping(drop_of(
            PacketDirection::Original,
            Some(12),
            Some("ip daddr 10.2.0.2 drop"),
        )));
        assert_eq!(
            said,
            "dropped by: table inet filter, chain forward, handle 12: ip daddr 10.2.0.2 drop (3 of \
             4 packets)"
        );
        let said = closing(&dropping(drop_of(PacketDirection::Reply, Some(12), None)));
        assert!(said.starts_with(
            "dropped on the way back by: table inet filter, chain forward, handle 12: drop ("
        ));
        let said = closing(&dropping(drop_of(PacketDirection::Original, None, None)));
        assert!(
            said.starts_with("dropped by: table inet filter, chain forward: policy drop ("),
            "{said}"
        );
    }

    #[test]
    fn each_outcome_has_its_state() {
        let unseen = TraceReport {
            milliseconds: 10_000,
            ..TraceReport::default()
        };
        for (trace, expected, text) in [
            (
                trace(),
                StepState::Ok,
                "passed: no rule dropped a packet, 4 were traced in 10.0 s",
            ),
            (
                dropping(drop_of(PacketDirection::Original, None, None)),
                StepState::Fail,
                "dropped by: ",
            ),
            (
                unseen.clone(),
                StepState::Unknown,
                "no packet of this flow was seen in 10.0 s",
            ),
            (
                TraceReport {
                    seen_replies: 2,
                    passed: 2,
                    ..unseen.clone()
                },
                StepState::Unknown,
                "no packet of this",
            ),
            (
                TraceReport {
                    seen: 2,
                    events_lost: true,
                    ..unseen
                },
                StepState::Unknown,
                "the way of none of 2 packets",
            ),
            (
                TraceReport {
                    unknown: 1,
                    passed: 3,
                    ..trace()
                },
                StepState::Unknown,
                "no traced rule dropped",
            ),
            (
                TraceReport {
                    taken: 1,
                    passed: 3,
                    ..trace()
                },
                StepState::Unknown,
                "a rule gave 1 of 4",
            ),
        ] {
            assert_eq!(state(&trace), expected, "{trace:?}");
            assert!(closing(&trace).starts_with(text), "{}", closing(&trace));
        }
    }

    #[test]
    fn replayed_packets_and_rules_without_a_trace_are_named() {
        let untraced = vec!["legacy iptables: filter".to_owned()];
        let unseen = TraceReport {
            replayed: 70,
            untraced,
            milliseconds: 1000,
            ..TraceReport::default()
        };
        assert_eq!(
            closing(&unseen),
            "no packet of this flow was seen in 1.0 s; mode fast replayed 70 packets without \
             netfilter; not traced: \
             legacy iptables: filter"
        );
    }
}
