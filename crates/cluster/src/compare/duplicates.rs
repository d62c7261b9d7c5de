//! Duplicates: what only one node may have, and several do.

use std::{collections::BTreeMap, net::IpAddr};

use flannel_host::words::first;
use ipnet::IpNet;

use super::{
    claims::NodeClaims,
    problem::{ClusterProblem, ClusterProblemCode, NAMED, names},
};

/// Nodes whose subnets overlap, each group once.
pub(super) fn same_subnet(nodes: &[NodeClaims]) -> Vec<ClusterProblem> {
    let mut subnets: Vec<(IpNet, usize)> = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        subnets.extend(node.subnets.iter().map(|subnet| (subnet.trunc(), index)));
    }
    // A subnet is followed by those that it contains.
    subnets.sort_by_key(|(subnet, _)| (subnet.network(), subnet.prefix_len()));
    let mut groups: Vec<(IpNet, Vec<usize>)> = Vec::new();
    for (subnet, index) in subnets {
        match groups.last_mut() {
            Some((outer, members)) if outer.contains(&subnet) => members.push(index),
            _ => groups.push((subnet, vec![index])),
        }
    }
    // Nodes with one subnet in both families are one group.
    let mut found = BTreeMap::<Vec<usize>, Vec<IpNet>>::new();
    for (subnet, mut members) in groups {
        members.sort_unstable();
        members.dedup();
        if members.len() > 1 {
            found.entry(members).or_default().push(subnet);
        }
    }
    found
        .into_iter()
        .map(|(members, subnets)| group(nodes, &members, &subnets))
        .collect()
}

fn group(nodes: &[NodeClaims], members: &[usize], subnets: &[IpNet]) -> ClusterProblem {
    let members: Vec<&NodeClaims> = members
        .iter()
        .filter_map(|index| nodes.get(*index))
        .collect();
    let members_names: Vec<String> = members.iter().map(|node| node.name.clone()).collect();
    let mut address = String::new();
    if let Some(first_node) = members.first()
        && members
            .iter()
            .all(|node| node.addresses == first_node.addresses)
    {
        address = format!(" and the address {}", first(&first_node.addresses, NAMED));
    }
    let others: Vec<String> = members
        .iter()
        .filter_map(|node| other_subnet(node))
        .collect();
    let others = match others.len() {
        0 => String::new(),
        1 => format!(
            "; one of these Nodes has another pod CIDR ({})",
            first(&others, NAMED)
        ),
        number => format!(
            "; {number} of these Nodes have another pod CIDR ({})",
            first(&others, NAMED)
        ),
    };
    let lost = match &members_names[..] {
        [a, b] => {
            format!("packets from pods of {a} to pods of {b} are lost, and those from {b} to {a}")
        }
        _ => "packets between their pods are lost, in both directions of each pair".to_owned(),
    };
    let who = match members_names.len() {
        2 => members_names.join(" and "),
        number => format!("{number} nodes ({})", names(&members_names)),
    };
    let text = format!(
        "{who} have the subnet {}{address}: {lost}{others}",
        first(subnets, NAMED)
    );
    ClusterProblem::new(ClusterProblemCode::SameSubnet, members_names, text)
}

/// The pod CIDR of a Node whose agent uses another subnet.
fn other_subnet(node: &NodeClaims) -> Option<String> {
    let other = node
        .published
        .iter()
        .find(|published| !node.subnets.contains(&published.subnet))?;
    Some(format!("{}: {}", node.name, other.subnet))
}

/// Nodes with one public address.
pub(super) fn same_address(nodes: &[&NodeClaims]) -> Vec<ClusterProblem> {
    let all = nodes.iter().flat_map(|node| {
        node.addresses
            .iter()
            .map(move |address| (*address, &node.name))
    });
    let found = groups(all);
    let problem = |(address, nodes): (IpAddr, Vec<String>)| {
        let text = format!(
            "{} nodes have the public address {address} ({}): packets reach one of them at most",
            nodes.len(),
            names(&nodes)
        );
        ClusterProblem::new(ClusterProblemCode::SameAddress, nodes, text)
    };
    found.into_iter().map(problem).collect()
}

/// Nodes with one VTEP MAC or one public key.
pub(super) fn same_end(nodes: &[&NodeClaims]) -> Vec<ClusterProblem> {
    let ends = nodes.iter().flat_map(|node| {
        let ends = node
            .published
            .iter()
            .filter_map(|published| published.end.clone());
        ends.map(move |end| (end, &node.name))
    });
    let problem = |(end, nodes): (String, Vec<String>)| {
        let what = if end.contains(':') {
            "VTEP MAC"
        } else {
            "public key"
        };
        let text = format!(
            "{} nodes have the {what} {end} ({}): their peers refuse all but one of them",
            nodes.len(),
            names(&nodes)
        );
        ClusterProblem::new(ClusterProblemCode::SameEnd, nodes, text)
    };
    groups(ends).into_iter().map(problem).collect()
}

/// The values that several nodes have. A node with a value in both families counts once.
fn groups<'a, T: Ord>(all: impl Iterator<Item = (T, &'a String)>) -> BTreeMap<T, Vec<String>> {
    let mut of_value = BTreeMap::<T, Vec<String>>::new();
    for (value, name) in all {
        let nodes = of_value.entry(value).or_default();
        if nodes.last() != Some(name) {
            nodes.push(name.clone());
        }
    }
    of_value.retain(|_, nodes| nodes.len() > 1);
    of_value
}
