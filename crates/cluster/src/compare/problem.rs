//! A problem between nodes. Pure.

use flannel_status::Severity;
use serde::Serialize;

/// Nodes that a line names.
pub(super) const NAMED: usize = 3;

/// The kind of a problem between nodes. The names are an interface: scripts compare them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClusterProblemCode {
    /// Several nodes have one subnet, or subnets that overlap.
    SameSubnet,
    /// Several nodes have one public address.
    SameAddress,
    /// Several nodes have one VTEP MAC or one public key.
    SameEnd,
    /// A node's agent uses another subnet or address than its Node says.
    NodeDiffers,
    /// A node does not have another as a peer.
    NotAPeer,
    /// A node has another address or VTEP MAC for a peer than the Node of the peer says.
    PeerDiffers,
    /// Network, backend, VNI or port differ.
    NetworkDiffers,
    /// The MTU of pods differs.
    MtuDiffers,
    /// The mode of the datapath differs.
    ModeDiffers,
    /// The version of the agent differs.
    VersionDiffers,
    /// The clock differs.
    ClockDiffers,
    /// Pods of a DaemonSet run stock flannel.
    StockFlannel,
}

impl ClusterProblemCode {
    /// Its effect.
    pub const fn severity(self) -> Severity {
        match self {
            Self::SameSubnet
            | Self::SameAddress
            | Self::SameEnd
            | Self::NodeDiffers
            | Self::NotAPeer
            | Self::PeerDiffers
            | Self::NetworkDiffers
            | Self::MtuDiffers => Severity::Warning,
            Self::ModeDiffers | Self::VersionDiffers | Self::ClockDiffers | Self::StockFlannel => {
                Severity::Notice
            }
        }
    }
}

/// A problem between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ClusterProblem {
    /// Its kind.
    pub code: ClusterProblemCode,
    /// Its effect.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::Severity")
    )]
    pub severity: Severity,
    /// The nodes that have it.
    pub nodes: Vec<String>,
    /// The problem in words.
    pub text: String,
}

impl ClusterProblem {
    pub(super) fn new(code: ClusterProblemCode, nodes: Vec<String>, text: String) -> Self {
        Self {
            code,
            severity: code.severity(),
            nodes,
            text,
        }
    }
}

/// Nodes in words: `n1, n2, n3 and 4 more`.
pub(super) fn names(nodes: &[String]) -> String {
    flannel_host::words::first(nodes, NAMED)
}
