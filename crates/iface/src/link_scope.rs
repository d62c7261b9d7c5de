//! Addresses that are valid only on one link.

use std::net::IpAddr;

/// An IPv6 address that is valid only on one link.
pub(super) fn is_link_scope(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V6(addr) if addr.is_unicast_link_local())
}
