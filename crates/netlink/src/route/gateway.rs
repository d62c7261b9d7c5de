//! The address of a gateway, in the forms that messages have.

use std::net::IpAddr;

use netlink_packet_route::route::{RouteAddress, RouteVia};

/// An IP address in a route attribute.
pub(crate) fn ip(addr: &RouteAddress) -> Option<IpAddr> {
    match addr {
        RouteAddress::Inet(addr) => Some((*addr).into()),
        RouteAddress::Inet6(addr) => Some((*addr).into()),
        _ => None,
    }
}

/// A gateway that may be of the other family.
pub(crate) fn via(addr: &RouteVia) -> Option<IpAddr> {
    match addr {
        RouteVia::Inet(addr) => Some((*addr).into()),
        RouteVia::Inet6(addr) => Some((*addr).into()),
        _ => None,
    }
}
