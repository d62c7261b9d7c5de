//! The main loop's report to the store on whether this node's pod network works.

use tokio::sync::watch;

/// The reporting end. Reports cost nothing; when and how one is published is the manager's
/// decision.
///
/// Not the same as readiness: a network stays available while the store is away, because packets
/// flow on.
#[derive(Clone, Debug, Default)]
pub struct NetworkAvailability(Option<watch::Sender<bool>>);

impl NetworkAvailability {
    /// For a store that publishes nothing.
    pub const fn unpublished() -> Self {
        Self(None)
    }

    /// A reporting end and its receiver. Unavailable until reported otherwise.
    pub fn new() -> (Self, watch::Receiver<bool>) {
        let (sender, receiver) = watch::channel(false);
        (Self(Some(sender)), receiver)
    }

    /// Reports the network as available, or not.
    pub fn set(&self, available: bool) {
        if let Some(sender) = &self.0 {
            sender.send_if_modified(|reported| std::mem::replace(reported, available) != available);
        }
    }
}
