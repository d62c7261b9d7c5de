//! The external interface, and this node's ends of the paths to peers.

use std::{collections::BTreeMap, net::IpAddr};

use flannel_host::family::Family;

/// The external interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalInterface {
    /// Interface index.
    pub index: u32,
    /// Interface name.
    pub name: String,
    /// MTU in bytes, never 0.
    pub mtu: u32,
    /// Hardware type, `ARPHRD_*`.
    pub arphrd: u16,
    /// Our ends of the paths to peers, by family.
    pub ends: BTreeMap<Family, End>,
}

impl ExternalInterface {
    /// Returns its own and its public addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.ends.values().flat_map(|end| [end.addr, end.public])
    }
}

/// Our end of the paths to the peers of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The interface's own address.
    pub addr: IpAddr,
    /// The address peers send to; differs from `addr` behind NAT.
    pub public: IpAddr,
    /// Source of outer packets: the public address if this host has it, else the interface's own.
    /// In the latter case the public address belongs to a NAT in front of this node.
    pub source: IpAddr,
}
