//! The agent's view of the cluster.

use flannel_store::LeaseKey;

/// The agent's current view of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Cluster {
    /// Our own subnets.
    pub own: LeaseKey,
    /// True once the store has shown everything and the programs are loaded, or known to be absent,
    /// so that unwanted objects may be removed.
    pub in_sync: bool,
}
