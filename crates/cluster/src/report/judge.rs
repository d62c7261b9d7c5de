//! The report on one node, from its Node, its pod and the answer of its agent.

use std::collections::BTreeMap;

use flannel_host::error_chain::chain;
use flannel_status::{ProblemCode, Status};

use super::node::{NodeProblemCode, NodeReport, ServedBy};
use crate::{
    answer::Silence,
    members::{AgentAbsence, ClusterNode},
};

/// The annotation by which a node takes part in flannel, of any agent.
const MANAGED: &str = "kube-subnet-manager";
/// Silent peers that a report names.
const NAMED_PEERS: usize = 3;

/// The answer of an agent; none where it was not asked.
pub(super) type Asked = Option<Result<Status, Silence>>;

impl NodeReport {
    /// The report on a node by its agent's answer only.
    pub fn of_answer(name: &str, status: &Status) -> Self {
        of_agent(Self::unknown(name.to_owned()), status)
    }
}

/// The report on a node. Pure. Without an answer the command was not run.
pub(super) fn judge(member: &ClusterNode, namespace: &str, answer: Asked) -> NodeReport {
    let node = &member.node;
    let addresses = ["public-ip", "public-ipv6"]
        .into_iter()
        .filter_map(|suffix| node.annotation(suffix));
    let report = NodeReport {
        subnets: node.subnets(),
        public_addresses: addresses.map(str::to_owned).collect(),
        ..NodeReport::unknown(member.name().to_owned())
    };
    let mut report = match (answer, &member.pod) {
        (Some(Ok(status)), _) => of_agent(report, &status),
        (Some(Err(Silence::Exec(error))), _) if error.lacks_program() => {
            let ready = Some(!is_network_unavailable(member));
            NodeReport {
                served_by: ServedBy::StockFlannel,
                ready,
                ..report
            }
        }
        (Some(Err(silence)), _) => report.with(
            NodeProblemCode::NoAnswer,
            format!("cannot be asked: {}", chain(&silence)),
        ),
        (None, Some(pod)) => {
            let absence = AgentAbsence::DoesNotRun {
                pod: pod.metadata.name.clone(),
                problem: pod.problem(),
            };
            NodeReport {
                ready: Some(false),
                ..report
            }
            .with(NodeProblemCode::PodDoesNotRun, absence.to_string())
        }
        (None, None) => without_pod(report, member, namespace),
    };
    if let Some(condition) = node
        .condition("NetworkUnavailable")
        .filter(|condition| condition.status == "True")
    {
        let text = format!("NetworkUnavailable: {}", condition.message);
        report = report.with(NodeProblemCode::NetworkUnavailable, text);
    }
    if let Some(condition) = node
        .condition("Ready")
        .filter(|condition| condition.status != "True")
    {
        let text = format!("the Node is not Ready: {}", condition.message);
        report = report.with(NodeProblemCode::NodeNotReady, text);
    }
    report
}

/// A node without a pod may have an agent all the same: a service of the host.
fn without_pod(report: NodeReport, member: &ClusterNode, namespace: &str) -> NodeReport {
    let is_managed = member.node.annotation(MANAGED) == Some("true");
    let (served_by, ready) = if is_managed {
        (ServedBy::Unknown, None)
    } else {
        (ServedBy::None, Some(false))
    };
    let absence = AgentAbsence::NoPod {
        namespace: namespace.to_owned(),
    };
    NodeReport {
        served_by,
        ready,
        ..report
    }
    .with(NodeProblemCode::NoPod, absence.to_string())
}

fn is_network_unavailable(member: &ClusterNode) -> bool {
    member
        .node
        .condition("NetworkUnavailable")
        .is_some_and(|condition| condition.status == "True")
}

/// A command without its agent's answer, as of one that hangs, says nothing about the node.
pub(super) fn of_agent(report: NodeReport, status: &Status) -> NodeReport {
    if status.pid.is_none() {
        return report.with(
            NodeProblemCode::NoAnswer,
            format!("cannot be asked: {}", status.stage),
        );
    }
    let lease = status.lease.as_ref();
    let subnets = lease.map(|lease| [Some(&lease.subnet), lease.ipv6_subnet.as_ref()]);
    let addresses = lease.map(|lease| [Some(&lease.public_ip), lease.public_ipv6.as_ref()]);
    let or_known = |found: Option<[Option<&String>; 2]>, known: Vec<String>| {
        let mut texts: Vec<String> = found.into_iter().flatten().flatten().cloned().collect();
        texts.dedup();
        if texts.is_empty() { known } else { texts }
    };
    let (codes, problems) = problems(status).into_iter().unzip();
    NodeReport {
        served_by: ServedBy::FlannelAgent,
        ready: Some(status.ready),
        version: Some(status.version.clone()),
        mode: Some(status.mode.clone()),
        subnets: or_known(subnets, report.subnets),
        public_addresses: or_known(addresses, report.public_addresses),
        refused_leases: Some(status.rejected_total),
        drops: status.drops,
        problems,
        codes,
        name: report.name,
    }
}

/// The problems of a node, a line for each kind: the first of many, and for silent peers their
/// names.
fn problems(status: &Status) -> Vec<(NodeProblemCode, String)> {
    let stage = (!status.ready).then(|| {
        (
            NodeProblemCode::NotReady,
            format!("not ready: {}", status.stage),
        )
    });
    let lines = status.problem_kinds().into_iter().map(|(first, number)| {
        let line = match first.code {
            ProblemCode::SilentPeer => silent_peers(status).unwrap_or_else(|| first.line()),
            _ if number > 1 => format!("{} (one of {number})", first.line()),
            _ => first.line(),
        };
        (NodeProblemCode::Status(first.code), line)
    });
    stage.into_iter().chain(lines).collect()
}

/// Names the nodes that do not answer, the first few of many.
fn silent_peers(status: &Status) -> Option<String> {
    // A node is a peer of each family.
    let mut asked = BTreeMap::<&str, bool>::new();
    for (peer, echo) in status
        .peers
        .iter()
        .filter_map(|peer| Some((peer, peer.echo.as_ref()?)))
    {
        *asked
            .entry(peer.node.as_ref().unwrap_or(&peer.subnet))
            .or_default() |= echo.state.is_problem();
    }
    let silent: Vec<_> = asked
        .iter()
        .filter(|(_, is_silent)| **is_silent)
        .map(|(name, _)| *name)
        .collect();
    let more = if silent.len() > NAMED_PEERS {
        ", ..."
    } else {
        ""
    };
    let names = silent[..silent.len().min(NAMED_PEERS)].join(", ");
    (!silent.is_empty()).then(|| {
        format!(
            "{} of {} peers do not answer: {names}{more}",
            silent.len(),
            asked.len()
        )
    })
}
