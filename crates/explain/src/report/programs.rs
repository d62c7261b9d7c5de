//! The steps about the programs: the mode, the flow they know, and their verdict.

use flannel_common::abi::{
    entry_state::EntryState,
    fast::PodEntry,
    guard::Checks,
    mode::Mode,
    node::heartbeat_is_fresh,
    program::Program,
    reason::{Reason, Verdict},
};
use flannel_flows::rows::{FlowRow, seconds};

use super::step::Step;
use crate::{
    location::{LocalPod, Location},
    snapshot::Snapshot,
    tried::Tried,
};

/// Returns the step about the active mode, and about the programs' trust in their maps.
pub(super) fn mode(facts: &Snapshot) -> Step {
    let node = match &facts.node {
        Ok(node) => node,
        Err(error) => return without_pins(facts, error),
    };
    let mode = node.mode.mode();
    let age = facts.now_ns.saturating_sub(node.config.heartbeat_ns) / 1_000_000;
    let age = seconds(i64::try_from(age).unwrap_or(i64::MAX));
    let text = format!("{mode}; the agent's last heartbeat was {age} ago");
    if !node.config.word.has(EntryState::VALID) {
        return Step::warn(
            "mode",
            format!("{text}, and the maps are considered stale: all packets take the kernel path"),
        );
    }
    if !heartbeat_is_fresh(facts.now_ns, node.config.heartbeat_ns) {
        return Step::warn(
            "mode",
            format!(
                "{text}, more than a minute: all packets take the kernel's way. Start the agent"
            ),
        );
    }
    let reason = facts
        .status
        .as_ref()
        .and_then(|status| status.mode.reason.as_ref());
    match reason {
        Some(reason) => Step::warn("mode", format!("{text}; more was asked for: {reason}")),
        None => Step::ok("mode", text),
    }
}

/// Without pins, what the agent says of its mode.
fn without_pins(facts: &Snapshot, error: &str) -> Step {
    match &facts.status {
        Some(status) if status.runs_without_bpf() => {
            let reason = status
                .mode
                .reason
                .as_ref()
                .map(|reason| format!(": {reason}"));
            Step::ok(
                "mode",
                format!(
                    "kernel; the agent runs without eBPF{}",
                    reason.unwrap_or_default()
                ),
            )
        }
        Some(status) => {
            let mode = &status.mode.effective;
            Step::warn(
                "mode",
                format!("{mode}, as the agent says; its programs cannot be asked: {error}"),
            )
        }
        None => Step::warn("mode", format!("only the kernel is left to ask: {error}")),
    }
}

/// The flow, and what each program does.
pub(super) fn steps(facts: &Snapshot) -> Vec<Step> {
    let mut steps: Vec<Step> = guard(facts).into_iter().collect();
    if facts
        .node
        .as_ref()
        .is_ok_and(|node| node.mode.mode() == Mode::Fast)
    {
        steps.extend(flows(facts));
    }
    match &facts.tried {
        Ok(tried) => steps.extend(tried.iter().map(program)),
        Err(error) => steps.push(Step::warn(
            "program",
            format!("the programs could not be asked: {error}"),
        )),
    }
    steps
}

/// Returns the step about the guard's modes; `None` without a tunnel, or if the source is not in a
/// peer's subnet.
fn guard(facts: &Snapshot) -> Option<Step> {
    facts.config().filter(|config| config.has_tunnel())?;
    let node = facts
        .node
        .as_ref()
        .ok()
        .filter(|_| matches!(facts.source, Location::Peer(_)))?;
    let Checks { outer, inner } = node.guard;
    Some(Step::ok(
        "guard",
        format!(
            "tunnel packets of others than peers: {outer}; of a peer, from outside of its subnet: \
             {inner}"
        ),
    ))
}

fn flows(facts: &Snapshot) -> Vec<Step> {
    let [there, back] = &facts.flows;
    match there {
        None if may_be_learned(facts) => vec![Step::ok(
            "flow",
            "mode fast knows no such flow: its packets take the kernel's way, and may be learned \
             from",
        )],
        None => vec![Step::ok(
            "flow",
            "mode fast knows no such flow, and learns none from this packet",
        )],
        Some(there) => {
            let is_left = is_left_to_the_kernel(facts);
            let text = "nothing is known of the way back; TCP needs it".to_owned();
            let back = back
                .as_ref()
                .map_or_else(|| Step::ok("back", text), |back| flow("back", back, false));
            vec![flow("flow", there, is_left), back]
        }
    }
}

/// Returns true if the programs trust the maps, and the pod at the end where the packet meets mode
/// `fast` takes part in that direction.
fn may_be_learned(facts: &Snapshot) -> bool {
    let is_current = facts.node.as_ref().is_ok_and(|node| {
        node.config.word.has(EntryState::VALID)
            && heartbeat_is_fresh(facts.now_ns, node.config.heartbeat_ns)
    });
    let takes_part = |pod: &LocalPod, flag| pod.entry.is_some_and(|entry| entry.has(flag));
    is_current
        && match (&facts.source, &facts.destination) {
            (Location::Pod(pod), _) => takes_part(pod, PodEntry::SENDS),
            (Location::Peer(_), Location::Pod(pod)) => takes_part(pod, PodEntry::RECEIVES),
            _ => false,
        }
}

/// True if the first program on the packet's way, which looks flows up, leaves it to the kernel. It
/// is tried a moment after flows are read, and looks at more than the flow.
fn is_left_to_the_kernel(facts: &Snapshot) -> bool {
    let first = facts.tried.iter().flatten().find(|tried| tried.attached);
    first.is_some_and(|tried| {
        [Program::FromPod, Program::FromUnderlay].contains(&tried.program)
            && !tried.reasons.contains(&Reason::Replayed)
    })
}

fn flow(topic: &'static str, row: &FlowRow, is_left: bool) -> Step {
    let FlowRow {
        protocol,
        source,
        destination,
        out_source,
        out_destination,
        packets,
        ..
    } = row;
    let ends = format!("{protocol} {source} to {destination}");
    let translated = (out_source, out_destination) != (source, destination);
    let out = if translated {
        format!(", leaving as {out_source} to {out_destination}")
    } else {
        String::new()
    };
    let state = match &row.why {
        Some(why) => format!("left to the kernel ({}: {why})", row.state),
        None if is_left => {
            "usable when it was read; the program below leaves this packet to the kernel".to_owned()
        }
        None => format!(
            "usable for another {}",
            row.expires_in_ms.map(seconds).unwrap_or_default()
        ),
    };
    Step::ok(
        topic,
        format!("{ends}{out}: {state}; {packets} packets replayed so far"),
    )
}

fn program(tried: &Tried) -> Step {
    let Tried {
        program,
        device,
        attached,
        reasons,
        other_build,
    } = tried;
    let name = program.name();
    if !attached {
        return Step::ok(
            "program",
            format!("{name} is not on {device}: the kernel has the packet"),
        );
    }
    let what = match tried.verdict() {
        Verdict::Redirect => "takes it",
        Verdict::Pass => "leaves it to the kernel",
        Verdict::Drop => "drops it",
    };
    let why: Vec<String> = reasons
        .iter()
        .map(|reason| format!("{}: {}", reason.name(), reason.meaning()))
        .collect();
    let build = if *other_build {
        " (asked of this build's program; the one in force is of another)"
    } else {
        ""
    };
    let text = format!("{name} on {device} {what}{build}. {}", why.join(" "));
    match tried.verdict() {
        Verdict::Drop => Step::fail("program", text),
        _ if reasons.iter().any(|reason| reason.is_suspicious()) => Step::warn("program", text),
        _ => Step::ok("program", text),
    }
}
