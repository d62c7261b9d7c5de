//! Routes of the main table: reading, replacing, deleting.
//!
//! Routes in a table are distinguished by destination, table and metric. Routes that also select by
//! TOS or (IPv6) by source prefix are left out of every answer: flannel makes none, and the key
//! could not distinguish them.

mod message;

use std::{fmt, net::IpAddr};

use flannel_host::family::Family;
use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
pub use netlink_packet_route::route::{RouteScope, RouteType};
use netlink_packet_route::{
    RouteNetlinkMessage,
    route::{RouteAttribute, RouteMessage},
};
use nix::errno::Errno;

use self::message::to_message;
pub(super) use self::message::{from_message, ip, via};
use super::{
    Netlink,
    error::{NetlinkError, Verb},
    lookup::RouteHop,
};
use crate::family::to_kernel;

/// Number of the main routing table.
pub const MAIN_TABLE: u32 = 254;

/// Route protocol numbers (`rtm_protocol`): who made the route.
pub mod protocol {
    /// `kernel`: the routes to the prefixes of a device's addresses.
    pub const KERNEL: u8 = 2;
    /// `boot`: what `ip route` writes without `proto`, and stock flannel on all its routes.
    pub const BOOT: u8 = 3;
    /// Ours, on the routes that do not go through the tunnel device.
    pub const FLANNEL: u8 = 191;
}

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

impl Netlink {
    /// The routes of the main table, in kernel order. IPv6 keys may repeat: the prefix of every
    /// link's link-local addresses is the same.
    pub async fn routes(&self, family: Family) -> Result<Vec<(RouteKey, Route)>, NetlinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = to_kernel(family);
        message.attributes.push(RouteAttribute::Table(MAIN_TABLE));
        let dump = match self
            .route
            .dump(RouteNetlinkMessage::GetRoute(message))
            .await
        {
            // A table without a route yet does not exist.
            Err(fault) if fault.errno() == Some(Errno::ENOENT) => return Ok(Vec::new()),
            other => {
                other.map_err(|fault| fault.on(Verb::Read, format_args!("the {family} routes")))?
            }
        };
        let entries = dump.readable();
        Ok(entries
            .iter()
            .filter_map(route_of)
            .filter(|(key, _)| key.table == MAIN_TABLE)
            .collect())
    }

    /// Adds a route or changes the one with the same key.
    ///
    /// IPv6 refuses an onlink gateway that is routed to a different device. A peer's gateway lies
    /// in the very subnet that is routed, so a route that sends the subnet elsewhere could not be
    /// replaced. A temporary route of the gateway by its device then makes the replacement
    /// possible, and the destination has a route at every moment.
    pub async fn replace_route(&self, key: &RouteKey, route: &Route) -> Result<(), NetlinkError> {
        match (self.write_route(key, route).await, route.gateway) {
            (Err(error), Some(gateway))
                if error.errno() == Some(Errno::EINVAL) && route.onlink && gateway.is_ipv6() =>
            {
                let link = (
                    RouteKey::main(gateway.into()),
                    Route {
                        gateway: None,
                        onlink: false,
                        ..route.clone()
                    },
                );
                self.write_route(&link.0, &link.1).await?;
                let replaced = self.write_route(key, route).await;
                self.del_route(&link.0, &link.1).await?;
                replaced
            }
            (other, _) => other,
        }
    }

    async fn write_route(&self, key: &RouteKey, route: &Route) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewRoute(to_message(key, route));
        let done = self
            .route
            .command(message, NLM_F_CREATE | NLM_F_REPLACE)
            .await;
        done.map_err(|fault| fault.on(Verb::Replace, key))
    }

    /// Adds an IPv4 route before those with the same key, which stay: the first of them counts.
    ///
    /// Without `NLM_F_APPEND` and `NLM_F_REPLACE` the kernel inserts before the first such route,
    /// and refuses only an identical one (`fib_table_insert()` in [net/ipv4/fib_trie.c, Linux
    /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/fib_trie.c)).
    pub async fn prepend_route(&self, key: &RouteKey, route: &Route) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewRoute(to_message(key, route));
        match self
            .route
            .command(message, NLM_F_CREATE)
            .await
            .map_err(|fault| fault.on(Verb::Create, key))
        {
            Err(there) if there.is_exists() => Ok(()),
            other => other,
        }
    }

    /// Deletes exactly this route: one with the same key that leads elsewhere, or that another
    /// program made, stays. [`NetlinkError::is_gone`] when there is none such.
    pub async fn del_route(&self, key: &RouteKey, route: &Route) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::DelRoute(to_message(key, route));
        self.route
            .command(message, 0)
            .await
            .map_err(|fault| fault.on(Verb::Delete, key))
    }
}

fn route_of(message: &RouteNetlinkMessage) -> Option<(RouteKey, Route)> {
    match message {
        RouteNetlinkMessage::NewRoute(route) => from_message(route),
        _ => None,
    }
}
