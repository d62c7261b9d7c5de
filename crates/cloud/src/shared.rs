//! The state of the routes in the cloud, for the status and the metrics.

use std::sync::{Arc, Mutex, PoisonError};

use flannel_status::{CloudStatus, RequestCounts};

use super::error::CloudError;

/// Counts a request by its outcome.
pub(super) fn count<T>(requests: &mut RequestCounts, answer: &Result<T, CloudError>) {
    *match answer {
        Ok(_) => &mut requests.done,
        Err(error) if error.is_throttled() => &mut requests.throttled,
        Err(error) if error.code().is_some() => &mut requests.refused,
        Err(_) => &mut requests.failed,
    } += 1;
}

/// The known state. Clones share it. Where the backend is another it is empty.
#[derive(Clone, Debug, Default)]
pub struct SharedCloudStatus(Arc<Mutex<Option<CloudStatus>>>);

impl SharedCloudStatus {
    pub(super) fn set(&self, status: CloudStatus) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
    }

    /// Returns the state; `None` where the backend is another.
    pub fn status(&self) -> Option<CloudStatus> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns true unless a route of this node is missing from a table.
    pub fn is_routed(&self) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .is_none_or(|status| status.present)
    }
}
