//! The status of all nodes as one document, made of what each agent says of itself.
//!
//! The field names are an interface; they are added to and not changed.

mod judge;
mod node;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use flannel_document::Document;
use flannel_host::clock::unix_now;
use flannel_status::{Severity, Status};
use futures::{StreamExt as _, stream};
use serde::Serialize;
use tokio::time::Instant;

use self::judge::{Asked, judge};
pub use self::node::{NodeProblemCode, NodeReport, ServedBy};
use super::{
    AT_ONCE,
    answer::Silence,
    client::ClusterClient,
    compare::{ClusterProblem, NodeClaims, PeerFindings, compare, stock_flannel},
    error::ClusterError,
    exec::Container,
    members::{AgentPods, ClusterNode},
    progress::Progress,
};

/// The command that is run in each pod.
const STATUS: [&str; 3] = ["flannel-agent", "status", "--output=json"];

/// The state of all nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ClusterReport {
    /// True if every node is ready and none has a problem with another that costs packets; absent
    /// if that is not known, because nodes cannot be asked.
    pub ready: Option<bool>,
    /// The problems between nodes.
    pub problems: Vec<ClusterProblem>,
    /// The nodes, by name.
    pub nodes: Vec<NodeReport>,
}

impl Document for ClusterReport {
    const NAME: &'static str = "cluster-status";
}

impl ClusterReport {
    /// Asks every node. One that has not answered at the deadline counts as one that cannot be
    /// asked.
    pub async fn ask(
        client: &ClusterClient,
        pods: &AgentPods,
        progress: &mut Progress,
        deadline: Option<Instant>,
    ) -> Result<Self, ClusterError> {
        let members = client.nodes(pods).await?;
        let number = members.len();
        let mut answers = stream::iter(&members)
            .map(|member| ask(client, pods, member, deadline))
            .buffered(AT_ONCE);
        let mut comparison = Comparison::new(&members);
        let mut nodes = Vec::with_capacity(number);
        while let Some((member, answer, asked)) = answers.next().await {
            if let Some(Ok(status)) = &answer {
                comparison.add(nodes.len(), status, asked);
            }
            nodes.push(judge(member, &pods.namespace, answer));
            progress.show(&format!("{} of {number} nodes asked", nodes.len()));
        }
        let mut problems = comparison.problems();
        problems.extend(stock_pods(&members, &nodes, &pods.namespace));
        Ok(Self::new(nodes, problems))
    }

    /// The document.
    pub fn new(nodes: Vec<NodeReport>, problems: Vec<ClusterProblem>) -> Self {
        let is_ready = |wanted| nodes.iter().any(|node| node.ready == wanted);
        let costs_packets = problems
            .iter()
            .any(|problem| problem.severity > Severity::Notice);
        let ready = if nodes.is_empty() || is_ready(Some(false)) || costs_packets {
            Some(false)
        } else {
            (!is_ready(None)).then_some(true)
        };
        Self {
            ready,
            problems,
            nodes,
        }
    }
}

/// The pods with stock flannel, by their DaemonSets.
fn stock_pods(
    members: &[ClusterNode],
    nodes: &[NodeReport],
    namespace: &str,
) -> Vec<ClusterProblem> {
    let mut of_set = BTreeMap::<&str, Vec<String>>::new();
    for (member, node) in members
        .iter()
        .zip(nodes)
        .filter(|(_, node)| node.served_by == ServedBy::StockFlannel)
    {
        if let Some(name) = member.daemon_set() {
            of_set.entry(name).or_default().push(node.name.clone());
        }
    }
    of_set
        .into_iter()
        .map(|(name, nodes)| stock_flannel(nodes, namespace, name))
        .collect()
}

/// The claims of all nodes, and what differs.
struct Comparison {
    claims: Vec<NodeClaims>,
    peers: PeerFindings,
}

impl Comparison {
    fn new(members: &[ClusterNode]) -> Self {
        let claims: Vec<NodeClaims> = members
            .iter()
            .map(|member| NodeClaims::of_node(&member.node))
            .collect();
        Self {
            peers: PeerFindings::new(&claims),
            claims,
        }
    }

    /// Takes in the answer of a node, which was asked between these two times.
    fn add(&mut self, index: usize, status: &Status, asked: [u64; 2]) {
        let Some(claims) = self.claims.get_mut(index) else {
            return;
        };
        self.peers.add(&claims.name, status);
        *claims = std::mem::take(claims).with_answer(status, asked);
    }

    fn problems(&self) -> Vec<ClusterProblem> {
        compare(&self.claims, &self.peers)
    }
}

async fn ask<'a>(
    client: &ClusterClient,
    pods: &AgentPods,
    member: &'a ClusterNode,
    deadline: Option<Instant>,
) -> (&'a ClusterNode, Asked, [u64; 2]) {
    let begin = unix_now();
    let answer = client.ask_node(pods, member, &STATUS, deadline).await;
    (member, answer, [begin, unix_now()])
}

/// Asks the agent in a container.
pub async fn agent_status(
    client: &ClusterClient,
    container: &Container,
    limit: Duration,
) -> Result<Status, Silence> {
    client.ask(container, &STATUS, limit).await
}
