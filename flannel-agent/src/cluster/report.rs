//! The status of all nodes as one document, made of what each agent says of itself.
//!
//! The field names are an interface; they are added to and not changed.

use std::{collections::BTreeMap, time::Duration};

use flannel_host::error_chain::chain;
use flannel_status::{ModeStatus, ProblemCode, Status};
use futures::{StreamExt as _, stream};
use serde::Serialize;

use super::{
    AT_ONCE,
    client::ClusterClient,
    error::{ClusterError, ExecError},
    exec::Container,
    members::{AgentPods, ClusterNode},
    progress::Progress,
    records::PodObject,
};

/// For the answer of one agent.
const LIMIT: Duration = Duration::from_secs(20);
/// The command that is run in each pod.
const STATUS: [&str; 3] = ["flannel-agent", "status", "--output=json"];
/// The annotation by which a node takes part in flannel, of any agent.
const MANAGED: &str = "kube-subnet-manager";
/// Silent peers that a report names.
const NAMED_PEERS: usize = 3;

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterReport {
    /// True if every node is ready.
    pub ready: bool,
    /// The nodes, by name.
    pub nodes: Vec<NodeReport>,
}

/// The program that serves a node's pod network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServedBy {
    /// This agent.
    FlannelAgent,
    /// Stock flannel.
    StockFlannel,
    /// Not known, because the agent does not answer.
    Unknown,
    /// None: the node has neither a flannel pod nor an annotation of flannel.
    None,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeReport {
    /// The name of the Node.
    pub name: String,
    /// The program that serves it.
    pub served_by: ServedBy,
    /// The agent's own readiness; with stock flannel, that its pod runs and the network is not
    /// reported as unavailable.
    pub ready: bool,
    /// The version of the agent.
    pub version: Option<String>,
    /// Its mode.
    pub mode: Option<ModeStatus>,
    /// The subnets of the node's pods.
    pub subnets: Vec<String>,
    /// The addresses at which peers reach it.
    pub public_addresses: Vec<String>,
    /// Leases that it refuses.
    pub refused_leases: Option<u64>,
    /// Packets that its programs dropped.
    pub drops: Option<u64>,
    /// The problems, in words.
    pub problems: Vec<String>,
}

impl ClusterReport {
    /// Asks every node.
    pub async fn ask(client: &ClusterClient, pods: &AgentPods, progress: &mut Progress) -> Result<Self, ClusterError> {
        let members = client.nodes(pods).await?;
        let number = members.len();
        let mut answers = stream::iter(&members).map(|member| ask(client, pods, member)).buffered(AT_ONCE);
        let mut nodes = Vec::with_capacity(number);
        while let Some(report) = answers.next().await {
            nodes.push(report);
            progress.show(&format!("{} of {number} nodes asked", nodes.len()));
        }
        Ok(Self { ready: !nodes.is_empty() && nodes.iter().all(|node| node.ready), nodes })
    }
}

async fn ask(client: &ClusterClient, pods: &AgentPods, member: &ClusterNode) -> NodeReport {
    let answer = match member.agent(pods) {
        Some(container) if member.pod.as_ref().is_some_and(PodObject::is_running) => {
            Some(agent_status(client, &container).await)
        }
        _ => None,
    };
    judge(member, &pods.namespace, answer)
}

/// An agent that does not answer.
#[derive(Debug, thiserror::Error)]
pub enum Silence {
    /// Its command has no result.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// Its output is not a status document.
    #[error("the output of its status command cannot be read: {0}")]
    Answer(String),
}

/// Asks the agent in a container.
pub async fn agent_status(client: &ClusterClient, container: &Container) -> Result<Status, Silence> {
    let executed = client.exec(container, &STATUS, LIMIT).await?;
    serde_json::from_slice(&executed.stdout).map_err(|error| {
        let said = executed.stderr.trim();
        Silence::Answer(if said.is_empty() { error.to_string() } else { said.to_owned() })
    })
}

/// The report on a node. Pure. Without an answer the command was not run.
fn judge(member: &ClusterNode, namespace: &str, answer: Option<Result<Status, Silence>>) -> NodeReport {
    let node = &member.node;
    let addresses = ["public-ip", "public-ipv6"].into_iter().filter_map(|suffix| node.annotation(suffix));
    let report = NodeReport {
        name: member.name().to_owned(),
        served_by: ServedBy::Unknown,
        ready: false,
        version: None,
        mode: None,
        subnets: node.subnets(),
        public_addresses: addresses.map(str::to_owned).collect(),
        refused_leases: None,
        drops: None,
        problems: Vec::new(),
    };
    let mut report = match (answer, &member.pod) {
        (Some(Ok(status)), _) => of_agent(report, &status),
        (Some(Err(Silence::Exec(error))), _) if error.lacks_program() => {
            let ready = !is_network_unavailable(member);
            NodeReport { served_by: ServedBy::StockFlannel, ready, ..report }
        }
        (Some(Err(silence)), _) => {
            NodeReport { problems: vec![format!("cannot be asked: {}", chain(&silence))], ..report }
        }
        (None, Some(pod)) => {
            let problem = format!("pod {} does not run: {}", pod.metadata.name, pod.problem());
            NodeReport { problems: vec![problem], ..report }
        }
        (None, None) => {
            let served_by = if node.annotation(MANAGED) == Some("true") { ServedBy::Unknown } else { ServedBy::None };
            let problem = format!("no pod of flannel in namespace {namespace}");
            NodeReport { served_by, problems: vec![problem], ..report }
        }
    };
    if let Some(condition) = node.condition("NetworkUnavailable").filter(|condition| condition.status == "True") {
        report.problems.push(format!("NetworkUnavailable: {}", condition.message));
    }
    if let Some(condition) = node.condition("Ready").filter(|condition| condition.status != "True") {
        report.problems.push(format!("the Node is not Ready: {}", condition.message));
    }
    report
}

fn is_network_unavailable(member: &ClusterNode) -> bool {
    member.node.condition("NetworkUnavailable").is_some_and(|condition| condition.status == "True")
}

fn of_agent(report: NodeReport, status: &Status) -> NodeReport {
    let lease = status.lease.as_ref();
    let subnets = lease.map(|lease| [Some(&lease.subnet), lease.ipv6_subnet.as_ref()]);
    let addresses = lease.map(|lease| [Some(&lease.public_ip), lease.public_ipv6.as_ref()]);
    let or_known = |found: Option<[Option<&String>; 2]>, known: Vec<String>| {
        let mut texts: Vec<String> = found.into_iter().flatten().flatten().cloned().collect();
        texts.dedup();
        if texts.is_empty() { known } else { texts }
    };
    NodeReport {
        served_by: ServedBy::FlannelAgent,
        ready: status.ready,
        version: Some(status.version.clone()),
        mode: Some(status.mode.clone()),
        subnets: or_known(subnets, report.subnets),
        public_addresses: or_known(addresses, report.public_addresses),
        refused_leases: Some(status.rejected_total),
        drops: status.drops,
        problems: problems(status),
        name: report.name,
    }
}

/// The problems of a node, a line for each kind: the first of many, and for silent peers their
/// names.
fn problems(status: &Status) -> Vec<String> {
    let stage = (!status.ready).then(|| format!("not ready: {}", status.stage));
    let lines = status.problem_kinds().into_iter().map(|(first, number)| match first.code {
        ProblemCode::SilentPeer => silent_peers(status).unwrap_or_else(|| first.line()),
        _ if number > 1 => format!("{} (one of {number})", first.line()),
        _ => first.line(),
    });
    stage.into_iter().chain(lines).collect()
}

/// Names the nodes that do not answer, the first few of many.
fn silent_peers(status: &Status) -> Option<String> {
    // A node is a peer of each family.
    let mut asked = BTreeMap::<&str, bool>::new();
    for (peer, echo) in status.peers.iter().filter_map(|peer| Some((peer, peer.echo.as_ref()?))) {
        *asked.entry(peer.node.as_ref().unwrap_or(&peer.subnet)).or_default() |= echo.state.is_problem();
    }
    let silent: Vec<_> = asked.iter().filter(|(_, is_silent)| **is_silent).map(|(name, _)| *name).collect();
    let more = if silent.len() > NAMED_PEERS { ", ..." } else { "" };
    let names = silent[..silent.len().min(NAMED_PEERS)].join(", ");
    (!silent.is_empty()).then(|| format!("{} of {} peers do not answer: {names}{more}", silent.len(), asked.len()))
}

#[cfg(test)]
mod tests {
    use flannel_status::{LeaseStatus, ModeSource, RejectedStatus};
    use serde_json::json;

    use super::*;

    fn member(with_pod: bool, network_unavailable: &str) -> ClusterNode {
        let node = json!({
            "metadata": { "name": "n1", "annotations": {
                "flannel.alpha.coreos.com/public-ip": "192.0.2.1",
                "flannel.alpha.coreos.com/kube-subnet-manager": "true",
            } },
            "spec": { "podCIDR": "10.244.1.0/24" },
            "status": { "conditions": [
                { "type": "NetworkUnavailable", "status": network_unavailable, "message": "no tunnel" },
            ] },
        });
        let pod = json!({ "metadata": { "name": "p" }, "status": { "phase": "Running" } });
        ClusterNode {
            node: serde_json::from_value(node).expect("a node"),
            pod: with_pod.then(|| serde_json::from_value(pod).expect("a pod")),
        }
    }

    fn status() -> Status {
        let mode = ModeStatus {
            effective: "kernel".to_owned(),
            wanted: "fast".to_owned(),
            source: ModeSource::Default,
            reason: Some("no BPF".to_owned()),
            attach: None,
        };
        let lease = LeaseStatus {
            subnet: "10.244.1.0/24".to_owned(),
            public_ip: "192.0.2.1".to_owned(),
            ipv6_subnet: None,
            public_ipv6: None,
            held: true,
            expires_at: None,
            assigned: true,
        };
        let rejected = RejectedStatus { key: "n2".to_owned(), reason: "its MAC is ours".to_owned() };
        let mut status = Status {
            pid: Some(1),
            ready: true,
            lease: Some(lease),
            drops: Some(7),
            rejected: vec![rejected],
            rejected_total: 2,
            ..Status::without_agent("running", mode)
        };
        status.find_problems(0);
        status
    }

    #[test]
    fn a_lower_mode_is_a_problem_of_a_node_that_is_ready() {
        let report = judge(&member(true, "False"), "kube-flannel", Some(Ok(status())));
        assert!(report.ready && report.served_by == ServedBy::FlannelAgent, "{report:?}");
        let expected = ["refused lease: its MAC is ours (one of 2)", "mode kernel instead of fast: no BPF"];
        assert_eq!(report.problems, expected);
        assert_eq!((report.refused_leases, report.drops), (Some(2), Some(7)));
        assert_eq!(report.subnets, ["10.244.1.0/24"]);
        assert_eq!(report.public_addresses, ["192.0.2.1"]);
    }

    #[test]
    fn a_pod_without_our_program_is_stock_flannel() {
        let lacking = || {
            let message = "exec: \"flannel-agent\": executable file not found in $PATH".to_owned();
            Some(Err(Silence::Exec(ExecError::NotStarted { pod: "p".to_owned(), message })))
        };
        let report = judge(&member(true, "False"), "kube-flannel", lacking());
        assert!(report.ready && report.problems.is_empty(), "{report:?}");
        assert_eq!(report.served_by, ServedBy::StockFlannel);
        let report = judge(&member(true, "True"), "kube-flannel", lacking());
        assert!(!report.ready, "{report:?}");
        assert_eq!(report.problems, ["NetworkUnavailable: no tunnel"]);
    }

    #[test]
    fn a_node_that_cannot_be_asked_is_not_ready() {
        let broken = Some(Err(Silence::Exec(ExecError::Broken { pod: "p".to_owned() })));
        let report = judge(&member(true, "False"), "kube-flannel", broken);
        assert!(!report.ready && report.served_by == ServedBy::Unknown, "{report:?}");
        assert!(report.problems[0].starts_with("cannot be asked: "), "{report:?}");
        let report = judge(&member(false, "False"), "kube-flannel", None);
        assert!(!report.ready, "{report:?}");
        assert_eq!(report.problems, ["no pod of flannel in namespace kube-flannel"]);
    }
}
