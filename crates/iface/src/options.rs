//! The operator's choice of interface and of public addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flannel_host::family::Family;

use super::NamePattern;

/// The operator's choice of interface and of public addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IfaceOptions {
    /// `--iface`, in order: an interface name or a local address each.
    pub iface: Vec<String>,
    /// `--iface-regex`, in order.
    pub patterns: Vec<NamePattern>,
    /// `--iface-can-reach`.
    pub can_reach: Option<IpAddr>,
    /// `--public-ip`.
    pub public_ip: Option<Ipv4Addr>,
    /// `--public-ipv6`.
    pub public_ipv6: Option<Ipv6Addr>,
}

impl IfaceOptions {
    /// Returns the address to publish to peers instead of the interface's own, if one was given.
    pub fn public(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.public_ip.map(IpAddr::V4),
            Family::V6 => self.public_ipv6.map(IpAddr::V6),
        }
    }

    pub(super) fn publics(&self, families: &[Family]) -> impl Iterator<Item = IpAddr> {
        families.iter().filter_map(|family| self.public(*family))
    }
}
