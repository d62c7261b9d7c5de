//! The commands of the backend extension.

use serde::{Deserialize, Serialize};

/// The state of the commands for peers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExtensionStatus {
    /// The peers for which the command succeeded.
    pub added: u64,
    /// The peers for which a command is still to be run for the first time.
    pub waiting: u64,
    /// The peers for which a command failed, and is tried again.
    pub failing: u64,
    /// The first 100 of them.
    pub failures: Vec<FailingCommand>,
    /// The peers whose command succeeded, whose packets follow the default route or no route, and
    /// whose pods do not answer.
    #[serde(default)]
    pub unrouted: u64,
    /// The first 100 of them.
    #[serde(default)]
    pub unrouted_peers: Vec<UnroutedPeer>,
}

/// A peer to which no route leads that commands could have made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnroutedPeer {
    /// Its subnet.
    pub subnet: String,
    /// The route of packets from pods of this node; absent if the kernel has none.
    pub default_route: Option<String>,
}

/// A command that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FailingCommand {
    /// The store entry of the peer.
    pub peer: String,
    /// The error.
    pub error: String,
    /// The number of failures in a row.
    pub attempts: u32,
}
