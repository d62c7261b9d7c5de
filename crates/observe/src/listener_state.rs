//! The state of the listeners, for the status.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use flannel_status::ListenerStatus;

/// The listeners of an agent. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct SharedListeners(Arc<Mutex<Vec<ListenerState>>>);

impl SharedListeners {
    /// The listeners for the status.
    pub fn status(&self) -> Vec<ListenerStatus> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(ListenerState::status)
            .collect()
    }

    pub(super) fn add(&self, state: ListenerState) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(state);
    }
}

/// One listener. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct ListenerState(Arc<Mutex<ListenerStatus>>);

impl ListenerState {
    pub(super) fn new(purpose: &str, flags: &str, address: SocketAddr) -> Self {
        Self(Arc::new(Mutex::new(ListenerStatus {
            purpose: purpose.to_owned(),
            address: address.to_string(),
            flags: flags.to_owned(),
            error: None,
        })))
    }

    pub(super) fn set_error(&self, error: Option<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).error = error;
    }

    pub(super) fn status(&self) -> ListenerStatus {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
