//! A comparison of all nodes: duplicates of what only one node may have, peers that a node does
//! not have, and settings that differ.
//!
//! Each agent knows only its own node, and finds nothing wrong with it. Pure: what the nodes claim
//! in, problems out.

mod claims;
mod duplicates;
mod peers;
mod settings;

#[cfg(test)]
mod tests;

use flannel_host::words::count;
use flannel_status::Severity;
use serde::Serialize;

pub use self::{
    claims::{NodeClaims, PublishedEnd},
    peers::PeerFindings,
};

/// Nodes that a line names.
const NAMED: usize = 3;

/// The kind of a problem between nodes. The names are an interface: scripts compare them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClusterProblemCode {
    /// Several nodes have one subnet, or subnets that overlap.
    SameSubnet,
    /// Several nodes have one public address.
    SameAddress,
    /// Several nodes have one VTEP MAC or one public key.
    SameEnd,
    /// A node's agent uses another subnet or address than its Node says.
    NodeDiffers,
    /// A node does not have another as a peer.
    NotAPeer,
    /// A node has another address or VTEP MAC for a peer than the Node of the peer says.
    PeerDiffers,
    /// Network, backend, VNI or port differ.
    NetworkDiffers,
    /// The MTU of pods differs.
    MtuDiffers,
    /// The mode of the datapath differs.
    ModeDiffers,
    /// The version of the agent differs.
    VersionDiffers,
    /// The clock differs.
    ClockDiffers,
    /// Pods of a DaemonSet run stock flannel.
    StockFlannel,
}

impl ClusterProblemCode {
    /// Its effect.
    pub const fn severity(self) -> Severity {
        match self {
            Self::SameSubnet
            | Self::SameAddress
            | Self::SameEnd
            | Self::NodeDiffers
            | Self::NotAPeer
            | Self::PeerDiffers
            | Self::NetworkDiffers
            | Self::MtuDiffers => Severity::Warning,
            Self::ModeDiffers | Self::VersionDiffers | Self::ClockDiffers | Self::StockFlannel => {
                Severity::Notice
            }
        }
    }
}

/// A problem between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ClusterProblem {
    /// Its kind.
    pub code: ClusterProblemCode,
    /// Its effect.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::Severity")
    )]
    pub severity: Severity,
    /// The nodes that have it.
    pub nodes: Vec<String>,
    /// The problem in words.
    pub text: String,
}

impl ClusterProblem {
    fn new(code: ClusterProblemCode, nodes: Vec<String>, text: String) -> Self {
        Self {
            code,
            severity: code.severity(),
            nodes,
            text,
        }
    }
}

/// Compares the nodes: duplicates first, whose consequences are not listed again.
pub fn compare(nodes: &[NodeClaims], peers: &PeerFindings) -> Vec<ClusterProblem> {
    let same_subnet = duplicates::same_subnet(nodes);
    let is_apart = |name: &String| {
        !same_subnet
            .iter()
            .any(|problem| problem.nodes.contains(name))
    };
    let rest: Vec<&NodeClaims> = nodes.iter().filter(|node| is_apart(&node.name)).collect();
    let mut problems = same_subnet.clone();
    problems.extend(duplicates::same_address(&rest));
    problems.extend(duplicates::same_end(&rest));
    problems.extend(settings::node_differs(&rest));
    problems.extend(peers.problems(|name| is_apart(name)));
    problems.extend(settings::differences(nodes));
    problems
}

/// Nodes whose pods, of a DaemonSet, run stock flannel. A DaemonSet that takes pods over counts
/// them as up to date if both it and the one before were applied once, and does not replace them.
pub fn stock_flannel(nodes: Vec<String>, namespace: &str, daemon_set: &str) -> ClusterProblem {
    let text = format!(
        "{} of DaemonSet {daemon_set} run stock flannel still ({}). If the DaemonSet is the \
         agent's by now: kubectl -n \
         {namespace} rollout restart daemonset/{daemon_set}",
        count(nodes.len(), "pod", "pods"),
        names(&nodes)
    );
    ClusterProblem::new(ClusterProblemCode::StockFlannel, nodes, text)
}

/// Nodes in words: `n1, n2, n3 and 4 more`.
fn names(nodes: &[String]) -> String {
    flannel_host::words::first(nodes, NAMED)
}
