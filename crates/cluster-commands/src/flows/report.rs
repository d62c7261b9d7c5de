//! The flows of all nodes as one document, and as text.

use std::fmt::Write as _;

use flannel_cluster::report::ServedBy;
use flannel_document::Document;
use flannel_host::words::count;
use flannel_node_commands::flows::{FlowLine, FlowsDocument, remark, text};
use flannel_terminal::{color::Paint, wrap};
use serde::Serialize;

use super::{
    merge::{complete_names, merged},
    reported_flow::ReportedFlow,
};

/// The busiest flows of a cluster.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ClusterFlows {
    /// True if every node answered that has an agent.
    pub(super) complete: bool,
    /// The nodes, by name.
    pub(super) nodes: Vec<NodeFlows>,
    /// The flows that mode `fast` has learned, the busiest first.
    pub(super) flows: Vec<ReportedFlow>,
    /// The number of flows that `--rows` left out. A flow between two nodes may count twice.
    pub(super) left_out: usize,
}

/// The answer of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct NodeFlows {
    /// The name of the node.
    pub(super) node: String,
    /// The program that serves it; `unknown` if it did not answer.
    pub(super) served_by: ServedBy,
    /// The number of its flows that match the filters; absent if it did not answer.
    pub(super) flows: Option<usize>,
    /// The reason why it did not answer; absent if it did.
    pub(super) reason: Option<String>,
}

impl Document for ClusterFlows {
    const NAME: &'static str = "cluster-flows";
}

impl ClusterFlows {
    /// The flows of the documents, at most as many as `rows`.
    pub(super) fn new(
        nodes: Vec<NodeFlows>,
        documents: Vec<(String, FlowsDocument)>,
        rows: usize,
    ) -> Self {
        let left_out_there: usize = documents
            .iter()
            .map(|(_, document)| document.left_out)
            .sum();
        let of_node = |(node, document): (String, FlowsDocument)| {
            document.flows.into_iter().map(move |flow| ReportedFlow {
                nodes: vec![node.clone()],
                flow,
            })
        };
        let mut flows: Vec<ReportedFlow> = documents.into_iter().flat_map(of_node).collect();
        complete_names(&mut flows);
        let mut flows = merged(flows);
        let left_out = left_out_there + flows.len().saturating_sub(rows);
        flows.truncate(rows);
        let complete = nodes.iter().all(|node| node.reason.is_none());
        Self {
            complete,
            nodes,
            flows,
            left_out,
        }
    }

    /// Counts, the nodes that did not answer, and the table.
    pub(super) fn text(&self, paint: Paint) -> String {
        let mut out = self.summary();
        for node in &self.nodes {
            if let Some(reason) = &node.reason {
                // Writing to a string cannot fail.
                let _ = writeln!(
                    out,
                    "{}",
                    paint.bad(&format!("{}: no answer: {reason}", node.node))
                );
            }
        }
        let lines: Vec<_> = self
            .flows
            .iter()
            .map(|row| FlowLine {
                nodes: Some(row.nodes.join(",")),
                flow: &row.flow,
            })
            .collect();
        out + "\n" + &text(&lines, wrap::columns()) + &remark(self.left_out)
    }

    fn summary(&self) -> String {
        let number = |wanted| {
            self.nodes
                .iter()
                .filter(|node| node.served_by == wanted)
                .count()
        };
        let counted =
            |number: usize, text: &str| (number > 0).then(|| format!(", {number} {text}"));
        let nodes = count(
            self.nodes.len().try_into().unwrap_or(u32::MAX),
            "node",
            "nodes",
        );
        let mut line = format!("{nodes}: {} answered", number(ServedBy::FlannelAgent));
        line.extend(counted(number(ServedBy::Unknown), "did not"));
        line.extend(counted(
            number(ServedBy::StockFlannel),
            "with stock flannel",
        ));
        line + "\n"
    }
}
