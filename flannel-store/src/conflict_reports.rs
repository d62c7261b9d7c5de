//! The main loop's report to the store of nodes that claim what this node has.

use std::collections::BTreeSet;

use tokio::sync::watch;

use super::{Conflict, LeaseSet};

/// A conflict with this node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConflictReport {
    /// The kind of resource that is claimed.
    pub conflict: Conflict,
    /// The lease that claims it, and the remedy, in words.
    pub message: String,
}

/// The reporting end. Reports cost nothing; when and how one is published is the manager's
/// decision.
#[derive(Clone, Debug, Default)]
pub struct ConflictReports(Option<watch::Sender<BTreeSet<ConflictReport>>>);

impl ConflictReports {
    /// For a store that publishes nothing.
    pub const fn unpublished() -> Self {
        Self(None)
    }

    /// A reporting end and its receiver.
    pub fn new() -> (Self, watch::Receiver<BTreeSet<ConflictReport>>) {
        let (sender, receiver) = watch::channel(BTreeSet::new());
        (Self(Some(sender)), receiver)
    }

    /// Reports the conflicts there are now, instead of those before.
    pub fn set(&self, leases: &LeaseSet) {
        let Some(sender) = &self.0 else { return };
        let report = |(lease, conflict): (super::Rejected, _)| ConflictReport { conflict, message: lease.to_string() };
        let now: BTreeSet<_> = leases.conflicts_with_us().map(report).collect();
        sender.send_if_modified(|reported| {
            *reported != now && {
                *reported = now;
                true
            }
        });
    }
}
