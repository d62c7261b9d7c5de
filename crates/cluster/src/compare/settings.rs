//! Settings that differ between nodes, or between a node and its Node object.

use std::collections::BTreeMap;

use flannel_host::{duration, words::first};

use super::{
    claims::NodeClaims,
    problem::{ClusterProblem, ClusterProblemCode, NAMED, names},
};

/// A clock may differ by that much, in seconds.
const CLOCK: i64 = 5;

/// Agents that use another subnet or address than their Nodes say, by which peers go.
pub(super) fn node_differs(nodes: &[&NodeClaims]) -> Option<ClusterProblem> {
    let answered = nodes.iter().filter(|node| node.answered);
    let ends = answered.flat_map(|node| {
        node.published
            .iter()
            .map(move |published| (node, published))
    });
    let found = ends.filter_map(|(node, published)| {
        let (uses, says) = if !node.subnets.contains(&published.subnet) {
            (first(&node.subnets, NAMED), published.subnet.to_string())
        } else if !node.addresses.contains(&published.address) {
            (first(&node.addresses, NAMED), published.address.to_string())
        } else {
            return None;
        };
        Some((
            node.name.clone(),
            format!("{}: {uses} instead of {says}", node.name),
        ))
    });
    let (nodes, details): (Vec<String>, Vec<String>) = found.unzip();
    let details = (!nodes.is_empty()).then(|| first(&details, NAMED))?;
    let text = format!(
        "agents use another subnet or address than their Nodes say ({details}): peers send packets \
         elsewhere"
    );
    Some(ClusterProblem::new(
        ClusterProblemCode::NodeDiffers,
        nodes,
        text,
    ))
}

/// The settings that are alike on all nodes of a cluster that is well.
pub(super) fn differences(nodes: &[NodeClaims]) -> Vec<ClusterProblem> {
    use ClusterProblemCode::{ModeDiffers, MtuDiffers, NetworkDiffers, VersionDiffers};
    let lost = "packets between them are lost";
    let network = |node: &NodeClaims| {
        node.network
            .as_ref()
            .map(|network| first(&network.networks, NAMED))
    };
    let vni = |node: &NodeClaims| {
        let published = || node.published.iter().find_map(|published| published.vni);
        node.network
            .as_ref()
            .map_or_else(published, |network| network.vni)
            .map(|vni| vni.to_string())
    };
    let port = |node: &NodeClaims| {
        node.network
            .as_ref()
            .and_then(|network| Some(network.port?.to_string()))
    };
    let mtu = |node: &NodeClaims| {
        node.network
            .as_ref()
            .and_then(|network| Some(network.mtu?.to_string()))
    };
    let found = [
        differs(NetworkDiffers, nodes, "the pod network", lost, network),
        differs(NetworkDiffers, nodes, "the backend", lost, |node| {
            node.backend.clone()
        }),
        differs(NetworkDiffers, nodes, "the VNI", lost, vni),
        differs(NetworkDiffers, nodes, "the VXLAN port", lost, port),
        differs(
            MtuDiffers,
            nodes,
            "the MTU of pods",
            "large packets to nodes with the smaller one are lost",
            mtu,
        ),
        differs(
            ModeDiffers,
            nodes,
            "the mode asked for",
            "no packet is lost",
            |node| node.mode.clone(),
        ),
        differs(
            VersionDiffers,
            nodes,
            "the agent's version",
            "an update is not finished",
            |node| node.version.clone(),
        ),
        clock(nodes),
    ];
    found.into_iter().flatten().collect()
}

/// The problem of a setting with several values: the most frequent value first.
fn differs(
    code: ClusterProblemCode,
    nodes: &[NodeClaims],
    what: &str,
    effect: &str,
    value: impl Fn(&NodeClaims) -> Option<String>,
) -> Option<ClusterProblem> {
    let mut of_value = BTreeMap::<String, Vec<String>>::new();
    for node in nodes {
        if let Some(value) = value(node) {
            of_value.entry(value).or_default().push(node.name.clone());
        }
    }
    if of_value.len() < 2 {
        return None;
    }
    let mut values: Vec<(String, Vec<String>)> = of_value.into_iter().collect();
    values.sort_by_key(|(_, nodes)| std::cmp::Reverse(nodes.len()));
    let shown: Vec<String> = values
        .iter()
        .map(|(value, nodes)| format!("{value} on {}", names(nodes)))
        .collect();
    let text = format!("{what} differs: {}: {effect}", shown.join("; "));
    let others = values
        .into_iter()
        .skip(1)
        .flat_map(|(_, nodes)| nodes)
        .collect();
    Some(ClusterProblem::new(code, others, text))
}

/// Clocks that differ from most.
fn clock(nodes: &[NodeClaims]) -> Option<ClusterProblem> {
    let mut clocks: Vec<i64> = nodes.iter().filter_map(|node| node.clock).collect();
    clocks.sort_unstable();
    let middle = *clocks.get(clocks.len() / 2)?;
    let ahead = nodes
        .iter()
        .filter_map(|node| Some((&node.name, node.clock? - middle)));
    let apart: Vec<(&String, i64)> = ahead.filter(|(_, seconds)| seconds.abs() > CLOCK).collect();
    let words = |(name, seconds): &(&String, i64)| {
        let side = if *seconds > 0 { "ahead" } else { "behind" };
        format!(
            "{name} is {} {side}",
            duration::format(seconds.unsigned_abs())
        )
    };
    let clocks: Vec<String> = apart.iter().map(words).collect();
    let clocks = (!clocks.is_empty()).then(|| first(&clocks, NAMED))?;
    let nodes = apart.iter().map(|(name, _)| (*name).clone()).collect();
    let text = format!("clocks differ from those of most nodes: {clocks}");
    Some(ClusterProblem::new(
        ClusterProblemCode::ClockDiffers,
        nodes,
        text,
    ))
}
