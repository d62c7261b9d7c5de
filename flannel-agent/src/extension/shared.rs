//! The state of the commands, for the status and the metrics.

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// Failures that are listed.
pub(super) const LISTED: usize = 100;

/// The state of the commands for peers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
pub struct FailingCommand {
    /// The store entry of the peer.
    pub peer: String,
    /// The error.
    pub error: String,
    /// The number of failures in a row.
    pub attempts: u32,
}

/// The known state. Clones share it. Without the backend extension it is empty.
#[derive(Clone, Debug, Default)]
pub struct SharedExtensionStatus(Arc<Mutex<Option<ExtensionStatus>>>);

impl SharedExtensionStatus {
    pub(super) fn set(&self, status: ExtensionStatus) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
    }

    /// Returns the state; `None` where the backend is another.
    pub fn status(&self) -> Option<ExtensionStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
