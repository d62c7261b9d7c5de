//! The answer of one node.

use flannel_explain::ExplainDocument;
use serde::Serialize;

/// The answer of one node.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct NodeAnswer {
    /// The name of the node.
    pub node: String,
    /// The ends of the packet's way on it.
    pub ends: Vec<EndRole>,
    /// The reason why the node cannot be asked; absent if it answered.
    pub problem: Option<String>,
    /// The output of `flannel-agent explain -o json` there.
    pub explanation: Option<ExplainDocument>,
}

/// An end of a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum EndRole {
    /// The sender.
    Source,
    /// The receiver.
    Destination,
}
