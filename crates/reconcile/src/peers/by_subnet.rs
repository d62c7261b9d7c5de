//! A peer and the way to it in an ordered set, by its subnet: a map would have the subnet twice.

use std::{borrow::Borrow, cmp::Ordering};

use flannel_backend_api::PeerWay;
use ipnet::IpNet;

/// Equal to another if the subnets are.
#[derive(Debug)]
pub(super) struct BySubnet(pub(super) Box<PeerWay>);

impl Borrow<IpNet> for BySubnet {
    fn borrow(&self) -> &IpNet {
        &self.0.peer.subnet
    }
}

impl PartialEq for BySubnet {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for BySubnet {}

impl PartialOrd for BySubnet {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for BySubnet {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.peer.subnet.cmp(&other.0.peer.subnet)
    }
}
