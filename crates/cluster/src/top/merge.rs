//! Pairs of nodes and flows, by the documents of the nodes at both ends. Pure.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeMap, btree_map::Entry},
};

use flannel_flows::rows::FlowWay;
use flannel_top::document::{FlowRates, TopDocument};
use serde::Serialize;

use super::names::NodeNames;

/// The replayed packets from a node to a peer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PairRates {
    /// The node that sends.
    pub node: String,
    /// The node that receives.
    pub peer: String,
    /// The path by the map of the sender; absent if only the receiver was read.
    pub path: Option<String>,
    /// The known flows of the sender with this peer; likewise.
    pub flows: Option<usize>,
    /// Packets a second: by the sender, or by the receiver if the sender does not know.
    pub packets_per_second: Option<f64>,
}

/// A flow, with the nodes that know it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ClusterFlow {
    /// The nodes: that of the source first.
    pub nodes: Vec<String>,
    /// The flow, as the first of them has it.
    #[serde(flatten)]
    pub flow: FlowRates,
}

/// The greatest first; what is not known last.
pub(super) fn descending(a: Option<f64>, b: Option<f64>) -> Ordering {
    let key = |rate: Option<f64>| rate.unwrap_or(-1.0);
    key(b).total_cmp(&key(a))
}

/// A pair, by what both of its nodes say.
#[derive(Default)]
struct Pair {
    path: Option<String>,
    flows: Option<usize>,
    sent: Option<f64>,
    received: Option<f64>,
}

/// The pairs, the busiest first.
pub(super) fn pairs<'a>(
    documents: impl Iterator<Item = (&'a str, &'a TopDocument)>,
    names: &NodeNames,
) -> Vec<PairRates> {
    let mut pairs = BTreeMap::<(String, String), Pair>::new();
    for (node, document) in documents {
        // A peer has a row for each family.
        for row in &document.peers {
            let peer = names.of_peer(&row.subnet, &row.node);
            let there = pairs.entry((node.to_owned(), peer.clone())).or_default();
            there.path.get_or_insert_with(|| row.path.clone());
            *there.flows.get_or_insert_default() += row.flows;
            add(&mut there.sent, row.to_packets_per_second);
            let back = pairs.entry((peer, node.to_owned())).or_default();
            add(&mut back.received, row.from_packets_per_second);
        }
    }
    let row = |((node, peer), pair): ((String, String), Pair)| PairRates {
        node,
        peer,
        packets_per_second: pair.sent.or(pair.received),
        path: pair.path,
        flows: pair.flows,
    };
    let is_shown = |row: &PairRates| {
        row.path.is_some() || row.packets_per_second.is_some_and(|rate| rate > 0.0)
    };
    let mut rows: Vec<PairRates> = pairs.into_iter().map(row).filter(is_shown).collect();
    // Stable, so that pairs of one rate keep the order of their names.
    rows.sort_by(|a, b| descending(a.packets_per_second, b.packets_per_second));
    rows
}

fn add(sum: &mut Option<f64>, more: Option<f64>) {
    if let Some(more) = more {
        *sum.get_or_insert_default() += more;
    }
}

/// The flows, the busiest first. Two nodes know a flow between them: it is one row.
pub(super) fn flows<'a>(
    documents: impl Iterator<Item = (&'a str, &'a TopDocument)>,
) -> Vec<ClusterFlow> {
    let mut rows = BTreeMap::<(&str, &str, &str), ClusterFlow>::new();
    for (node, document) in documents {
        for flow in &document.flows {
            let end = flow.translated.as_ref().unwrap_or(&flow.destination);
            match rows.entry((&flow.protocol, &flow.source, end)) {
                Entry::Vacant(place) => {
                    place.insert(ClusterFlow {
                        nodes: vec![node.to_owned()],
                        flow: flow.clone(),
                    });
                }
                Entry::Occupied(mut known) => known.get_mut().merge(node, flow),
            }
        }
    }
    let mut rows: Vec<ClusterFlow> = rows.into_values().collect();
    rows.sort_by(|a, b| {
        let rates = descending(a.flow.packets_per_second, b.flow.packets_per_second);
        rates.then_with(|| Reverse(a.flow.packets).cmp(&Reverse(b.flow.packets)))
    });
    rows
}

impl ClusterFlow {
    /// Adds what another node says: the node of the source has the row, with the higher rate.
    fn merge(&mut self, node: &str, flow: &FlowRates) {
        let rate = [self.flow.packets_per_second, flow.packets_per_second]
            .into_iter()
            .flatten()
            .reduce(f64::max);
        // By the way `pod` a packet arrives; the node of its source sends it by another.
        if self.flow.way == FlowWay::Pod && flow.way != FlowWay::Pod {
            self.nodes.insert(0, node.to_owned());
            self.flow = flow.clone();
        } else {
            self.nodes.push(node.to_owned());
        }
        self.flow.packets_per_second = rate;
    }
}
