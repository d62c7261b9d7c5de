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
