//! The state of the reconciler, as `status` shows it.

use std::ops::Add;

use serde::{Deserialize, Serialize};

/// Counts of repairs: objects that were as desired, were then found missing or changed, and were
/// restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Repairs {
    /// Tunnel devices that were replaced.
    pub devices: u64,
    /// Their addresses.
    pub addresses: u64,
    /// Neighbours.
    pub neighbours: u64,
    /// FDB entries.
    pub fdb: u64,
    /// Nexthop objects.
    pub nexthops: u64,
    /// Peers of WireGuard devices.
    #[serde(default)]
    pub wireguard: u64,
    /// Policies of IPsec.
    #[serde(default)]
    pub policies: u64,
    /// Routes.
    pub routes: u64,
    /// Entries of the BPF maps.
    pub maps: u64,
    /// Sysctls of the host and of our devices.
    #[serde(default)]
    pub sysctls: u64,
}

impl Add for Repairs {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            devices: self.devices + other.devices,
            addresses: self.addresses + other.addresses,
            neighbours: self.neighbours + other.neighbours,
            fdb: self.fdb + other.fdb,
            nexthops: self.nexthops + other.nexthops,
            wireguard: self.wireguard + other.wireguard,
            policies: self.policies + other.policies,
            routes: self.routes + other.routes,
            maps: self.maps + other.maps,
            sysctls: self.sysctls + other.sysctls,
        }
    }
}

/// An entry the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Dirty {
    /// The object, in words.
    pub object: String,
    /// The error.
    pub error: String,
    /// The number of failures in a row.
    pub attempts: u32,
}

/// The unreachable route for one pod network: packets for it that no other route matches end on
/// this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UnreachableStatus {
    /// The pod network.
    pub network: String,
    /// True if the kernel has the route.
    pub in_place: bool,
    /// The reason for which the route is not made; absent where it is.
    pub reason: Option<String>,
}
