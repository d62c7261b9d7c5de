//! The leases and the node, as the main loop shows them to the task. Pure.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::Ipv4Net;

/// The facts about the leases and the node on which routes depend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredRoute {
    /// The subnet of this node's pods.
    pub own: Ipv4Net,
    /// The address of the external interface.
    pub address: IpAddr,
    /// The subnets of other nodes.
    pub others: BTreeSet<Ipv4Net>,
    /// True once the store has shown all leases.
    pub in_sync: bool,
}

impl DesiredRoute {
    /// Returns true if routes have to be looked at for another one. Leases of other nodes can wait:
    /// what they change is cleared away with the next regular look.
    pub(super) fn needs_other_routes_than(&self, other: &Self) -> bool {
        (self.own, self.address, self.in_sync) != (other.own, other.address, other.in_sync)
    }
}
