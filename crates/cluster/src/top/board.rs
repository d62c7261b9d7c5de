//! The documents of all nodes as one board. Pure.
//!
//! A value that no document has is absent (`null`, `-`); it does not count as 0 in a sum.

use std::iter;

use flannel_document::Document;
use flannel_flows::history::RateHistory;
use flannel_host::words::compare_names;
use flannel_top::{
    board::NO_AGENT,
    document::{FlowRates, ProgramRates, TopDocument},
};
use serde::Serialize;

use super::{
    merge::{ClusterFlow, PairRates, descending, flows, pairs},
    names::NodeNames,
    stream::{Reading, StreamState},
};

/// The rates of all nodes between two readings of their maps. A rate is absent where it is not
/// known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ClusterBoard {
    /// When it was made, in seconds since 1970 UTC.
    pub time: u64,
    /// The reason why the list of nodes is not up to date.
    pub listing_error: Option<String>,
    /// The nodes, the busiest first.
    pub nodes: Vec<NodeRates>,
    /// The busiest pairs of nodes.
    pub pairs: Vec<PairRates>,
    /// The busiest flows.
    pub flows: Vec<ClusterFlow>,
    /// The problems of nodes: of each node the first, then of each the second.
    pub problems: Vec<NodeProblem>,
}

/// The state of a node's documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DocumentState {
    /// They come.
    Live,
    /// The first is waited for.
    Asked,
    /// They do not come.
    NoAnswer,
    /// The node runs stock flannel, which has none.
    StockFlannel,
}

/// The packets that a node's programs see.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct NodeRates {
    /// The name of the node.
    pub node: String,
    /// The state of its documents.
    pub state: DocumentState,
    /// The reason why there are none.
    pub reason: Option<String>,
    /// The active mode.
    pub mode: Option<String>,
    /// Packets a second at the programs that take packets off the kernel's path. A packet that
    /// meets two of them counts twice.
    pub packets_per_second: Option<f64>,
    /// Bytes a second, likewise.
    pub bytes_per_second: Option<f64>,
    /// The share of these packets that leaves the kernel's path, of 1; absent without packets.
    pub fast_share: Option<f64>,
    /// Packets a second that programs drop.
    pub drops_per_second: Option<f64>,
    /// The number of its problems.
    pub problems: Option<usize>,
    /// The rates of these packets in the last ten minutes; absent if its agent does not have them.
    pub history: Option<RateHistory>,
}

/// A problem of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct NodeProblem {
    /// The name of the node.
    pub node: String,
    /// The kind of a problem that the agent found itself.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "Option<flannel_json_schema::types::ProblemCode>")
    )]
    pub code: Option<String>,
    /// The problem in words.
    pub text: String,
}

impl Document for ClusterBoard {
    const NAME: &'static str = "cluster-top";
}

impl ClusterBoard {
    /// The board of these nodes, with at most `rows` pairs and flows.
    pub fn new(nodes: &[(String, StreamState)], names: &NodeNames, rows: usize) -> Self {
        let mut rates: Vec<NodeRates> = nodes
            .iter()
            .map(|(node, state)| NodeRates::of(node, state))
            .collect();
        rates.sort_by(|a, b| {
            descending(a.packets_per_second, b.packets_per_second)
                .then_with(|| compare_names(&a.node, &b.node))
        });
        let live = || {
            nodes.iter().filter_map(|(node, state)| match state {
                StreamState::Live(reading) => Some((node.as_str(), &reading.document)),
                StreamState::Asked | StreamState::Silent(_) | StreamState::StockFlannel => None,
            })
        };
        let mut pairs = pairs(live(), names);
        pairs.truncate(rows);
        let mut flows = flows(live());
        flows.truncate(rows);
        Self {
            time: 0,
            listing_error: None,
            nodes: rates,
            pairs,
            flows,
            problems: problems(nodes),
        }
    }

    /// Keeps the rows with this text in a name, a mode, an address, a path, a protocol, a problem
    /// or its code.
    pub fn retain(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let has = |cells: &[&str]| cells.iter().any(|cell| cell.contains(text));
        self.nodes
            .retain(|row| has(&[&row.node, row.mode.as_deref().unwrap_or_default()]));
        self.pairs.retain(|row| {
            has(&[
                &row.node,
                &row.peer,
                row.path.as_deref().unwrap_or_default(),
            ])
        });
        self.flows.retain(|row| {
            row.nodes.iter().any(|node| node.contains(text)) || has(&texts(&row.flow))
        });
        self.problems.retain(|row| {
            has(&[
                &row.node,
                &row.text,
                row.code.as_deref().unwrap_or_default(),
            ])
        });
    }
}

fn texts(flow: &FlowRates) -> [&str; 4] {
    let FlowRates {
        protocol,
        source,
        destination,
        translated,
        ..
    } = flow;
    [
        protocol,
        source,
        destination,
        translated.as_deref().unwrap_or_default(),
    ]
}

impl NodeRates {
    fn of(node: &str, state: &StreamState) -> Self {
        let (documents, reason, reading) = match state {
            StreamState::Live(reading) => (DocumentState::Live, None, Some(reading)),
            StreamState::Asked => (DocumentState::Asked, None, None),
            StreamState::Silent(reason) => (DocumentState::NoAnswer, Some(reason.clone()), None),
            StreamState::StockFlannel => (DocumentState::StockFlannel, None, None),
        };
        let of_programs = |rate: fn(&ProgramRates) -> Option<f64>| {
            sum(reading?.document.programs.iter().map(rate))
        };
        Self {
            node: node.to_owned(),
            state: documents,
            reason,
            mode: reading.map(|reading| reading.document.mode.clone()),
            packets_per_second: of_programs(|program| program.packets_per_second),
            bytes_per_second: of_programs(|program| program.bytes_per_second),
            fast_share: reading.and_then(|reading| fast_share(&reading.document)),
            drops_per_second: reading.and_then(|reading| {
                sum(reading
                    .document
                    .drops
                    .iter()
                    .map(|reason| reason.packets_per_second))
            }),
            problems: reading
                .filter(|reading| reading.has_agent())
                .map(|reading| reading.problems),
            history: reading.and_then(|reading| reading.document.history.clone()),
        }
    }
}

/// The sum; absent if one of the values is.
fn sum(mut values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.try_fold(0.0, |sum, value| Some(sum + value?))
}

/// The share of all packets; absent without packets, and if it is not known for some.
fn fast_share(document: &TopDocument) -> Option<f64> {
    let (mut all, mut taken) = (0.0, 0.0);
    for program in &document.programs {
        let packets = program.packets_per_second?;
        if packets > 0.0 {
            taken += program.fast_share? * packets;
            all += packets;
        }
    }
    (all > 0.0).then(|| taken / all)
}

/// The problems of all nodes. A node that does not answer has that one.
fn problems(nodes: &[(String, StreamState)]) -> Vec<NodeProblem> {
    let of_node = |(node, state): &(String, StreamState)| -> Vec<(usize, NodeProblem)> {
        let found = match state {
            StreamState::Silent(reason) => vec![(None, format!("no answer: {reason}"))],
            StreamState::Live(reading) => found_by(reading),
            StreamState::Asked | StreamState::StockFlannel => Vec::new(),
        };
        found
            .into_iter()
            .map(|(code, text)| NodeProblem {
                node: node.clone(),
                code,
                text,
            })
            .enumerate()
            .collect()
    };
    let mut problems: Vec<(usize, NodeProblem)> = nodes.iter().flat_map(of_node).collect();
    problems.sort_by_key(|(place, _)| *place);
    problems.into_iter().map(|(_, problem)| problem).collect()
}

/// Each with its code. An agent of an older version prints none.
fn found_by(reading: &Reading) -> Vec<(Option<String>, String)> {
    let document = &reading.document;
    let stale = (!document.current).then(|| {
        let age = document
            .heartbeat_age
            .map_or_else(|| "never".to_owned(), |age| format!("{age:.0} s ago"));
        format!("last heartbeat of the agent: {age}; every packet takes the kernel's path")
    });
    let absent = (!reading.has_agent()).then(|| NO_AGENT.to_owned());
    let codes = document
        .codes
        .iter()
        .cloned()
        .map(Some)
        .chain(iter::repeat(None));
    let problems = codes.zip(document.problems.iter().cloned());
    absent
        .into_iter()
        .chain(stale)
        .map(|text| (None, text))
        .chain(problems)
        .collect()
}
