//! A comparison of all nodes: duplicates of what only one node may have, peers that a node does
//! not have, and settings that differ.
//!
//! Each agent knows only its own node, and finds nothing wrong with it. Pure: what the nodes claim
//! in, problems out.

mod claims;
mod duplicates;
mod peers;
mod problem;
mod settings;

#[cfg(test)]
mod tests;

use flannel_host::words::count;

use self::problem::names;
pub use self::{
    claims::{NodeClaims, PublishedEnd},
    peers::PeerFindings,
    problem::{ClusterProblem, ClusterProblemCode},
};

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
