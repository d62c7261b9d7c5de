//! What a backend wants in the kernel, as data. Pure: nothing here reads or writes the kernel.
//!
//! A backend turns the believed leases, and what is known of the node and its underlay, into [`Desired`]. The reconciler
//! compares that with what is there and does the rest, so a backend has no state and no order to keep.

pub mod vxlan;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use flannel_common::{
    addr::{Addr, Mac},
    peer::{PeerEntry, VtepEntry},
};

use crate::netlink::{AddressKey, FdbKey, NeighbourKey, Route, RouteKey};

/// Everything that should exist besides the tunnel device itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// Addresses of the tunnel device.
    pub addresses: BTreeSet<AddressKey>,
    /// Permanent neighbours on it.
    pub neighbours: BTreeMap<NeighbourKey, Mac>,
    /// Permanent FDB entries on it.
    pub fdb: BTreeMap<FdbKey, IpAddr>,
    /// Entries of the `PEERS` map by subnet number.
    pub peers: BTreeMap<u32, PeerValue>,
    /// Entries of the `VTEPS` map.
    pub vteps: BTreeMap<Addr, VtepEntry>,
    /// Routes to the peers' subnets.
    pub routes: BTreeMap<RouteKey, Route>,
}

/// A peer map entry without what its writer adds: the generation, and what the programs saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerValue {
    /// Flags beside `VALID`.
    pub flags: u32,
    /// The body; its word is zero.
    pub entry: PeerEntry,
}
