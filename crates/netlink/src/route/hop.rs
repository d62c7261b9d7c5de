//! One next hop of a route that has several.

use std::net::IpAddr;

use netlink_packet_route::route::{RouteAttribute, RouteNextHop};

use super::gateway::{ip, via};

/// One of several next hops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteHop {
    /// Interface index.
    pub oif: u32,
    /// The gateway; `None` when the destination is attached.
    pub gateway: Option<IpAddr>,
}

impl RouteHop {
    pub(crate) fn from_message(hop: &RouteNextHop) -> Self {
        let gateway = hop.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Gateway(addr) => ip(addr),
            RouteAttribute::Via(addr) => via(addr),
            _ => None,
        });
        Self {
            oif: hop.interface_index,
            gateway,
        }
    }
}
