//! The main loop's report to the store of what is wrong with this node, for those who watch the
//! whole cluster.

use std::collections::BTreeSet;

use tokio::sync::watch;

use super::{Conflict, LeaseSet, Rejected};

/// The kinds of problems of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeProblem {
    /// Another node claims what this one has.
    Conflict(Conflict),
    /// The active datapath mode is lower than the requested one.
    ModeLowered,
    /// A setting of this node cannot be used.
    SettingRefused,
    /// An address of this node lies in the pod network.
    AddressInPods,
    /// A peer answered echo requests and does not any more.
    PeerSilent,
}

/// A problem of this node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeReport {
    /// Its kind.
    pub problem: NodeProblem,
    /// The problem, and the remedy, in words.
    pub message: String,
}

impl NodeReport {
    /// The nodes that claim what this node has.
    pub fn conflicts(leases: &LeaseSet) -> impl Iterator<Item = Self> {
        leases.conflicts_with_us().map(|(lease, conflict): (Rejected, _)| Self {
            problem: NodeProblem::Conflict(conflict),
            message: lease.to_string(),
        })
    }
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
