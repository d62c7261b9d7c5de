//! A task that runs next to the main loop, and its view of the cluster.

use flannel_iface::ExternalInterface;
use flannel_store::{Changes, LeaseKey, LeaseSet};

/// This node and the cluster, as the main loop knows them.
pub(in crate::agent) struct ServiceView<'a> {
    pub(in crate::agent) own: LeaseKey,
    pub(in crate::agent) interface: &'a ExternalInterface,
    /// All leases.
    pub(in crate::agent) leases: &'a LeaseSet,
    /// The difference to the last view.
    pub(in crate::agent) changes: &'a Changes,
    /// True if the leases are those of the store.
    pub(in crate::agent) in_sync: bool,
}

/// A task that runs next to the main loop.
pub(super) trait Service: Send {
    /// Takes in the view, and does not wait for what follows from it.
    fn learn(&mut self, view: &ServiceView<'_>);

    /// Returns false while packets for pods of this node get lost before it, which the service is
    /// to change.
    fn is_routed(&self) -> bool {
        true
    }
}
