//! The report on one node.

use flannel_status::{ModeStatus, ProblemCode};
use serde::Serialize;

/// The program that serves a node's pod network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
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
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct NodeReport {
    /// The name of the Node.
    pub name: String,
    /// The program that serves it.
    pub served_by: ServedBy,
    /// The agent's own readiness; with stock flannel, that its pod runs and the network is not
    /// reported as unavailable. Absent if it is not known, because the agent cannot be asked.
    pub ready: Option<bool>,
    /// The version of the agent.
    pub version: Option<String>,
    /// Its mode.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "Option<flannel_json_schema::types::ModeStatus>")
    )]
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
    /// The kind of each of these problems, in the same order.
    pub codes: Vec<NodeProblemCode>,
}

/// The kind of a node's problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NodeProblemCode {
    /// The agent says that it is not ready.
    NotReady,
    /// The agent cannot be asked.
    NoAnswer,
    /// The pod of flannel does not run.
    PodDoesNotRun,
    /// The node has no pod of flannel.
    NoPod,
    /// The condition `NetworkUnavailable` of the Node is true.
    NetworkUnavailable,
    /// The condition `Ready` of the Node is not true.
    NodeNotReady,
    /// A problem in the agent's status.
    #[serde(untagged)]
    Status(
        #[cfg_attr(
            any(test, feature = "schema"),
            schemars(with = "flannel_json_schema::types::ProblemCode")
        )]
        ProblemCode,
    ),
}

impl NodeReport {
    pub(super) const fn unknown(name: String) -> Self {
        Self {
            name,
            served_by: ServedBy::Unknown,
            ready: None,
            version: None,
            mode: None,
            subnets: Vec::new(),
            public_addresses: Vec::new(),
            refused_leases: None,
            drops: None,
            problems: Vec::new(),
            codes: Vec::new(),
        }
    }

    /// The same with one more problem.
    pub(super) fn with(mut self, code: NodeProblemCode, text: String) -> Self {
        self.codes.push(code);
        self.problems.push(text);
        self
    }
}
