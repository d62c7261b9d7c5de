//! A route: its identity, next hop and attributes.

use std::{fmt, net::IpAddr};

use flannel_host::family::Family;
use ipnet::IpNet;
use netlink_packet_route::route::{RouteScope, RouteType};

use super::{hop::RouteHop, protocol};

/// Number of the main routing table.
pub const MAIN_TABLE: u32 = 254;

/// The identity of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteKey {
    /// Destination prefix.
    pub dst: IpNet,
    /// Routing table.
    pub table: u32,
    /// Metric; the lowest wins.
    pub metric: u32,
}

impl RouteKey {
    /// A route of the main table with the metric the kernel gives when none is named: 0 for IPv4,
    /// 1024 for IPv6 (`IP6_RT_PRIO_USER` in [include/uapi/linux/ipv6_route.h, Linux
    /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/ipv6_route.h)).
    pub const fn main(dst: IpNet) -> Self {
        let metric = match dst {
            IpNet::V4(_) => 0,
            IpNet::V6(_) => 1024,
        };
        Self {
            dst,
            table: MAIN_TABLE,
            metric,
        }
    }

    /// The family of the table it is in.
    pub const fn family(&self) -> Family {
        match self.dst {
            IpNet::V4(_) => Family::V4,
            IpNet::V6(_) => Family::V6,
        }
    }
}

impl fmt::Display for RouteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "route {} table {} metric {}",
            self.dst, self.table, self.metric
        )
    }
}

/// The next hop and the attributes of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Next hop; `None` on a directly attached prefix. May be of the other family.
    pub gateway: Option<IpAddr>,
    /// Interface index; `None` on a multipath route and on one that leads nowhere.
    pub oif: Option<u32>,
    /// The gateway counts as attached to the link although no prefix there covers it.
    pub onlink: bool,
    /// The number of the program that made it, see [`protocol`].
    pub protocol: u8,
    /// The distance of the destination. The kernel has no scopes for IPv6 and always reports
    /// universe.
    pub scope: RouteScope,
    /// Unicast, or what happens to packets instead.
    pub kind: RouteType,
    /// Preferred source address.
    pub src: Option<IpAddr>,
    /// The next hops of a multipath route, which is read and never written; empty where there is
    /// one.
    pub hops: Vec<RouteHop>,
    /// The nexthop object it uses (kernel 5.3).
    pub nexthop: Option<u32>,
}

impl Route {
    /// `via <gateway> [dev <oif>]`: the rest as the kernel fills it in.
    pub const fn via(gateway: IpAddr, oif: Option<u32>, protocol: u8) -> Self {
        Self {
            gateway: Some(gateway),
            oif,
            onlink: false,
            protocol,
            scope: RouteScope::Universe,
            kind: RouteType::Unicast,
            src: None,
            hops: Vec::new(),
            nexthop: None,
        }
    }

    /// `via <gateway> dev <oif> onlink`: how a peer's subnet is routed into the tunnel device.
    pub fn onlink(gateway: IpAddr, oif: u32, protocol: u8) -> Self {
        Self {
            onlink: true,
            ..Self::via(gateway, Some(oif), protocol)
        }
    }

    /// Returns true for a route with several next hops.
    pub const fn is_multipath(&self) -> bool {
        !self.hops.is_empty()
    }

    /// Returns true for a route that the kernel made for the prefix of a device's address.
    pub fn is_connected(&self) -> bool {
        self.protocol == protocol::KERNEL
            && self.kind == RouteType::Unicast
            && self.gateway.is_none()
            && self.oif.is_some()
    }

    /// `dev <oif>` for destinations of this family, which the device itself knows how to reach.
    pub const fn on_device(family: Family, oif: u32, protocol: u8) -> Self {
        let scope = match family {
            Family::V4 => RouteScope::Link,
            Family::V6 => RouteScope::Universe,
        };
        Self {
            gateway: None,
            oif: Some(oif),
            onlink: false,
            protocol,
            scope,
            kind: RouteType::Unicast,
            src: None,
            hops: Vec::new(),
            nexthop: None,
        }
    }
}
