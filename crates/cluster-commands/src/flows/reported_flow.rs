//! A flow in the list of all nodes.

use flannel_node_commands::flows::ListedFlow;
use serde::Serialize;

/// A flow, with the nodes that know it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ReportedFlow {
    /// The nodes: that of the sender first.
    pub(super) nodes: Vec<String>,
    /// The flow, as the first of them has it.
    #[serde(flatten)]
    pub(super) flow: ListedFlow,
}
