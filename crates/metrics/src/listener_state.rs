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

    /// Adds a listener.
    pub fn add(&self, state: ListenerState) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(state);
    }
}

/// One listener. Clones share it.
#[derive(Clone, Debug)]
pub struct ListenerState(Arc<Mutex<ListenerStatus>>);

impl ListenerState {
    /// A listener for a purpose, at the address that these flags name.
    pub fn new(purpose: &str, flags: &str, address: SocketAddr) -> Self {
        Self(Arc::new(Mutex::new(ListenerStatus {
            purpose: purpose.to_owned(),
            address: address.to_string(),
            flags: flags.to_owned(),
            error: None,
        })))
    }

    /// Notes the error that keeps it from listening, or that there is none.
    pub fn set_error(&self, error: Option<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).error = error;
    }

    /// The listener for the status.
    pub fn status(&self) -> ListenerStatus {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
