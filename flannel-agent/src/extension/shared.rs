//! The state of the commands, for the status and the metrics.

use std::sync::{Arc, Mutex, PoisonError};

use flannel_status::ExtensionStatus;

/// Failures that are listed.
pub(super) const LISTED: usize = 100;

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
