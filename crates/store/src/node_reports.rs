//! The agent's report to the store of what is wrong with this node, for those who watch the whole
//! cluster.

use std::collections::BTreeSet;

use tokio::sync::watch;

/// A problem of this node, to be published once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeReport {
    /// Its kind, as the reason of an Event.
    pub reason: &'static str,
    /// The difference from others of the kind. A report with the same identity is not published
    /// again, whatever its message is now.
    pub identity: String,
    /// The problem, and the remedy, in words.
    pub message: String,
}

/// The reporting end. Reports cost nothing; when and how one is published is the manager's
/// decision.
#[derive(Clone, Debug, Default)]
pub struct NodeReports(Option<watch::Sender<BTreeSet<NodeReport>>>);

impl NodeReports {
    /// For a store that publishes nothing.
    pub const fn unpublished() -> Self {
        Self(None)
    }

    /// A reporting end and its receiver.
    pub fn new() -> (Self, watch::Receiver<BTreeSet<NodeReport>>) {
        let (sender, receiver) = watch::channel(BTreeSet::new());
        (Self(Some(sender)), receiver)
    }

    /// True if reports are published.
    pub const fn are_published(&self) -> bool {
        self.0.is_some()
    }

    /// Reports the problems there are now, instead of those before.
    pub fn set(&self, now: impl IntoIterator<Item = NodeReport>) {
        let Some(sender) = &self.0 else { return };
        let now: BTreeSet<_> = now.into_iter().collect();
        sender.send_if_modified(|reported| {
            *reported != now && {
                *reported = now;
                true
            }
        });
    }
}
