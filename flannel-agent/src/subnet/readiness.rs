//! How the main loop tells a store whether this node carries packets.

use tokio::sync::watch;

/// Takes the word, at any time and at no cost; who publishes it, and how soon, is the manager's affair.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Option<watch::Sender<bool>>);

impl Readiness {
    /// For a store that publishes nothing.
    pub const fn unpublished() -> Self {
        Self(None)
    }

    /// A handle, and where its word arrives. Not ready until told.
    pub fn new() -> (Self, watch::Receiver<bool>) {
        let (sender, receiver) = watch::channel(false);
        (Self(Some(sender)), receiver)
    }

    /// The node is ready, or is not.
    pub fn set(&self, ready: bool) {
        if let Some(sender) = &self.0 {
            sender.send_if_modified(|told| std::mem::replace(told, ready) != ready);
        }
    }
}
