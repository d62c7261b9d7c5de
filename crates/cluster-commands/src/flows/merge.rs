//! One list of the flows of all nodes. Pure.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, btree_map::Entry},
    net::{IpAddr, SocketAddr},
};

use flannel_flows::rows::{FlowRow, FlowWay};
use flannel_node_commands::flows::EndRow;

use super::reported_flow::ReportedFlow;

/// Gives each end the names that any node knows of its address: an agent without the right to list
/// pods knows only the pods of its node.
pub(super) fn complete_names(flows: &mut [ReportedFlow]) {
    let mut known = BTreeMap::<IpAddr, EndRow>::new();
    for end in flows.iter().flat_map(|row| row.flow.ends()) {
        known
            .entry(end.address)
            .or_insert_with(|| end.clone())
            .complete(end);
    }
    for end in flows.iter_mut().flat_map(|row| row.flow.ends_mut()) {
        if let Some(names) = known.get(&end.address) {
            end.complete(names);
        }
    }
}

/// The flows, the busiest first. A flow between two nodes is one row, as the sender's node has it.
pub(super) fn merged(flows: Vec<ReportedFlow>) -> Vec<ReportedFlow> {
    let mut rows = BTreeMap::<_, ReportedFlow>::new();
    for row in flows {
        match rows.entry(between_nodes(&row.flow.flow.flow)) {
            Entry::Vacant(place) => {
                place.insert(row);
            }
            Entry::Occupied(mut known) => add(known.get_mut(), row),
        }
    }
    let mut rows: Vec<_> = rows.into_values().collect();
    // Stable, so that flows with the same count keep the order of their addresses.
    rows.sort_by_key(|row| Reverse(row.flow.flow.flow.packets));
    rows
}

/// Protocol and ends as they are between nodes: the sender's node translates before that, the
/// receiver's after it.
fn between_nodes(row: &FlowRow) -> (&'static str, SocketAddr, SocketAddr) {
    if row.way == FlowWay::Pod {
        (row.protocol, row.source, row.destination)
    } else {
        (row.protocol, row.out_source, row.out_destination)
    }
}

/// Adds the row of another node. By the way `pod` a packet arrives; the node of its sender sends it
/// by another.
fn add(known: &mut ReportedFlow, row: ReportedFlow) {
    let way = |row: &ReportedFlow| row.flow.flow.flow.way;
    let is_of_sender = way(known) == FlowWay::Pod && way(&row) != FlowWay::Pod;
    let other = if is_of_sender {
        std::mem::replace(known, row)
    } else {
        row
    };
    for node in other.nodes {
        if !known.nodes.contains(&node) {
            known.nodes.push(node);
        }
    }
}
