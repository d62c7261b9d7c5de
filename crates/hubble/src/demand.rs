//! The number of clients that read flows, for the task that makes them.

use tokio::sync::watch;

/// Counts the clients that read flows. Clones share the count.
#[derive(Clone, Debug)]
pub struct Demand(watch::Sender<usize>);

impl Default for Demand {
    fn default() -> Self {
        Self(watch::channel(0).0)
    }
}

impl Demand {
    /// Follows the number of clients.
    pub fn subscribe(&self) -> watch::Receiver<usize> {
        self.0.subscribe()
    }

    /// Counts one client until the result is dropped.
    pub(crate) fn begin(&self) -> Reading {
        self.0.send_modify(|clients| *clients += 1);
        Reading(self.0.clone())
    }
}

/// One client that reads.
#[derive(Debug)]
pub(crate) struct Reading(watch::Sender<usize>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.send_modify(|clients| *clients -= 1);
    }
}
