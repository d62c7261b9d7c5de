//! The counters of a store's task, for monitoring the agent. No decision depends on them.

use flannel_host::count::Count;

/// The counts of one store. Clones are the same counts.
#[derive(Clone, Debug, Default)]
pub struct StoreCounts {
    /// Our lease was written again: renewed or, in Kubernetes, published.
    pub renewals: Count,
    /// That failed, and is tried again.
    pub renewal_failures: Count,
    /// We found that our lease is not ours any more.
    pub losses: Count,
    /// All leases were listed.
    pub listings: Count,
    /// A watch was begun, or taken up again.
    pub watches: Count,
    /// The stream of changes could not be had, or broke off with an error.
    pub failures: Count,
}
