//! The story of a packet: numbered steps, each good, doubtful or broken, and the verdict. Pure.
//!
//! A packet reaches its end if no step is broken. That holds also for a packet that a program
//! takes: every two seconds one of its flow goes the kernel's way, and a way that is broken loses
//! it.

mod carrier;
mod commands;
mod echo;
mod ends;
mod firewall;
mod kernel;
mod nat;
mod programs;
mod step;
mod trace;

use flannel_common::abi::reason::{Reason, Verdict};
use serde::{Deserialize, Serialize};

pub use self::step::{Step, StepState};
use super::{location::Location, snapshot::Snapshot, trace::TraceReport, tried::Tried};

/// The way of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PacketWay {
    /// By mode `fast`, past the host's stack.
    Fast,
    /// Encapsulated by the program `to_tunnel`.
    Encap,
    /// By the vxlan device.
    Kernel,
    /// By a route to the peer, without a tunnel.
    Direct,
    /// By the host's routing, to a peer that a device or routes reach.
    Routed,
    /// To a pod or an address of this node.
    Local,
    /// Out of the pod network.
    Outside,
    /// None: the packet does not arrive, or the place of its destination is not known.
    None,
}

impl PacketWay {
    /// Returns true if a program takes the packet.
    const fn is_programs(self) -> bool {
        matches!(self, Self::Fast | Self::Encap)
    }
}

/// The end of the story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conclusion {
    /// True if the packet gets through the part of its way that this node is responsible for;
    /// absent (`null`) if that is not known.
    pub reaches: Option<bool>,
    /// The way of the packet.
    pub way: PacketWay,
    /// The same in words.
    pub text: String,
}

/// The whole story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The findings, in the order of the packet's way.
    pub steps: Vec<Step>,
    /// The verdicts of the programs.
    pub programs: Vec<Tried>,
    /// The packets of the flow on their way through netfilter; none unless they were traced.
    pub trace: Option<TraceReport>,
    /// The outcome for the packet.
    pub verdict: Conclusion,
}

/// Builds the report from the snapshot.
pub(super) fn build(facts: &Snapshot) -> Report {
    let mut steps = ends::steps(facts);
    steps.push(programs::mode(facts));
    steps.extend(kernel::steps(facts));
    steps.extend(carrier::step(facts));
    steps.extend(firewall::step(facts));
    steps.extend(echo::step(facts));
    steps.extend(nat::masquerade(facts));
    steps.extend(programs::steps(facts));
    steps.extend(trace::step(facts));
    let verdict = verdict(facts, &steps);
    let programs = facts.tried.iter().flatten().cloned().collect();
    Report {
        steps,
        programs,
        trace: facts.trace.clone(),
        verdict,
    }
}

fn verdict(facts: &Snapshot, steps: &[Step]) -> Conclusion {
    let way = way(facts);
    // The packets themselves say more than the kernel's answers about them.
    if let Some(conclusion) = steps.iter().find_map(|step| by_trace(step, way)) {
        return conclusion;
    }
    let first = |state| (1..).zip(steps).find(|(_, step)| step.state == state);
    let Some((number, step)) = first(StepState::Fail) else {
        let Some((number, step)) = first(StepState::Unknown) else {
            return Conclusion {
                reaches: Some(true),
                way,
                text: arrival(facts, way),
            };
        };
        if let Some(step) = steps
            .iter()
            .find(|step| step.topic == "trace" && step.state == StepState::Unknown)
        {
            return Conclusion {
                reaches: None,
                way,
                text: step.text.clone(),
            };
        }
        let text = format!(
            "no step is broken, and not all is known: see step {number} ({})",
            step.topic
        );
        return Conclusion {
            reaches: None,
            way,
            text,
        };
    };
    let text = match way {
        _ if way.is_programs() => format!(
            "a program takes this packet, but the kernel's way is broken at step {number} ({}): \
             the packets that look at the \
             path are lost, and soon all",
            step.topic
        ),
        _ => format!("it does not arrive: see step {number} ({})", step.topic),
    };
    Conclusion {
        reaches: Some(false),
        way: if way.is_programs() {
            way
        } else {
            PacketWay::None
        },
        text,
    }
}

/// The verdict of a trace whose packets were dropped.
fn by_trace(step: &Step, way: PacketWay) -> Option<Conclusion> {
    let is_dropped = step.topic == "trace" && step.state == StepState::Fail;
    let way = if way.is_programs() {
        way
    } else {
        PacketWay::None
    };
    is_dropped.then(|| Conclusion {
        reaches: Some(false),
        way,
        text: step.text.clone(),
    })
}

/// Returns the way of the packet.
fn way(facts: &Snapshot) -> PacketWay {
    let taken = facts
        .tried
        .iter()
        .flatten()
        .find(|tried| tried.attached && tried.verdict() == Verdict::Redirect);
    if let Some(tried) = taken {
        return if tried.reasons.contains(&Reason::Replayed) {
            PacketWay::Fast
        } else {
            PacketWay::Encap
        };
    }
    match (&facts.source, &facts.destination) {
        (_, Location::Peer(peer)) | (Location::Peer(peer), _) if peer.entry.is_routed() => {
            PacketWay::Routed
        }
        (_, Location::Peer(peer)) | (Location::Peer(peer), _) if kernel::is_direct(&peer.entry) => {
            PacketWay::Direct
        }
        (Location::Peer(_), _) | (_, Location::Peer(_)) => PacketWay::Kernel,
        (_, Location::Pod(_) | Location::Node(_)) => PacketWay::Local,
        (_, Location::Unknown) => PacketWay::None,
        _ => PacketWay::Outside,
    }
}

fn arrival(facts: &Snapshot, way: PacketWay) -> String {
    let by = match way {
        PacketWay::Fast => "by mode fast, past the host's stack",
        PacketWay::Encap => "encapsulated by to_tunnel",
        PacketWay::Kernel => "by the vxlan device, the kernel's way",
        PacketWay::Direct => "by a plain route, without a tunnel",
        PacketWay::Local => "on this node",
        _ => "by the host's routing",
    };
    let end = match &facts.destination {
        Location::Peer(peer) => format!("it leaves for the node {}", peer.entry.vtep),
        Location::Pod(pod) => format!("it comes to the pod at {}", pod.veth.name),
        Location::Node(_) => "it comes to this host".to_owned(),
        _ => "it leaves the pod network".to_owned(),
    };
    if let Some(step) = trace::step(facts) {
        return format!("{}: {end}, {by}", step.text);
    }
    format!("{end}, {by}, unless a rule of the host's firewall drops it")
}

#[cfg(test)]
mod tests;
#[cfg(any(test, feature = "schema"))]
pub(super) mod topics;
