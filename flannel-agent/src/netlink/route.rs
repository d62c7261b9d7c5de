//! Routes of the main table: reading, replacing, deleting.
//!
//! A route is told from its neighbours in the table by destination, table and metric. Routes that also
//! select by TOS or (IPv6) by source prefix are left out of every answer: flannel makes none, and the key
//! could not tell them apart.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
pub use netlink_packet_route::route::{RouteScope, RouteType};
use netlink_packet_route::{
    RouteNetlinkMessage,
    route::{RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteVia},
};
use nix::errno::Errno;

use super::{
    Netlink,
    error::{NetlinkError, Verb},
    family::Family,
};

/// Number of the main routing table.
pub const MAIN_TABLE: u32 = 254;

/// Route protocol numbers (`rtm_protocol`): who made the route.
pub mod protocol {
    /// `boot`: what `ip route` writes without `proto`, and stock flannel on all its routes.
    pub const BOOT: u8 = 3;
    /// Ours, on the routes that do not go through the tunnel device.
    pub const FLANNEL: u8 = 191;
}

/// Which route.
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
    /// A route of the main table with the metric the kernel gives when none is named: 0 for IPv4, 1024
    /// for IPv6.
    pub const fn main(dst: IpNet) -> Self {
        let metric = match dst {
            IpNet::V4(_) => 0,
            IpNet::V6(_) => 1024,
        };
        Self { dst, table: MAIN_TABLE, metric }
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
        write!(f, "route {} table {} metric {}", self.dst, self.table, self.metric)
    }
}

/// Where a route leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Next hop; `None` on a directly attached prefix. May be of the other family.
    pub gateway: Option<IpAddr>,
    /// Interface index; `None` on a multipath route and on one that leads nowhere.
    pub oif: Option<u32>,
    /// The gateway counts as attached to the link although no prefix there covers it.
    pub onlink: bool,
    /// Who made it, see [`protocol`].
    pub protocol: u8,
    /// How far the destination is. The kernel has no scopes for IPv6 and always says universe.
    pub scope: RouteScope,
    /// Unicast, or what happens to packets instead.
    pub kind: RouteType,
    /// Preferred source address.
    pub src: Option<IpAddr>,
    /// Several next hops. They are not listed: such a route is read, never written.
    pub multipath: bool,
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
            multipath: false,
            nexthop: None,
        }
    }

    /// `via <gateway> dev <oif> onlink`: how a peer's subnet is routed into the tunnel device.
    pub const fn onlink(gateway: IpAddr, oif: u32, protocol: u8) -> Self {
        Self { onlink: true, ..Self::via(gateway, Some(oif), protocol) }
    }
}

/// The route a message is about; `None` for those the module doc leaves out, for the kernel's cached
/// clones, and for other families.
pub(super) fn from_message(message: &RouteMessage) -> Option<(RouteKey, Route)> {
    let header = &message.header;
    let family = Family::from_kernel(header.address_family)?;
    if header.tos != 0 || header.source_prefix_length != 0 || header.flags.contains(RouteFlags::Cloned) {
        return None;
    }
    let mut dst = None;
    let mut key = RouteKey { dst: family.everything(), table: header.table.into(), metric: 0 };
    let mut route = Route {
        gateway: None,
        oif: None,
        onlink: header.flags.contains(RouteFlags::Onlink),
        protocol: header.protocol.into(),
        scope: header.scope,
        kind: header.kind,
        src: None,
        multipath: false,
        nexthop: None,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(addr) => dst = ip(addr),
            RouteAttribute::Table(table) => key.table = *table,
            RouteAttribute::Priority(metric) => key.metric = *metric,
            other => take(&mut route, other),
        }
    }
    if let Some(dst) = dst {
        key.dst = IpNet::new(dst, header.destination_prefix_length).ok()?;
    }
    Some((key, route))
}

fn take(route: &mut Route, attribute: &RouteAttribute) {
    match attribute {
        RouteAttribute::Gateway(addr) => route.gateway = ip(addr),
        RouteAttribute::Via(addr) => route.gateway = via(addr),
        RouteAttribute::Oif(index) => route.oif = Some(*index),
        RouteAttribute::PrefSource(addr) => route.src = ip(addr),
        RouteAttribute::MultiPath(_) => route.multipath = true,
        RouteAttribute::NhId(id) => route.nexthop = Some(*id),
        _ => {}
    }
}

/// An IP address in a route attribute.
pub(super) fn ip(addr: &RouteAddress) -> Option<IpAddr> {
    match addr {
        RouteAddress::Inet(addr) => Some((*addr).into()),
        RouteAddress::Inet6(addr) => Some((*addr).into()),
        _ => None,
    }
}

/// A gateway of the other family.
pub(super) fn via(addr: &RouteVia) -> Option<IpAddr> {
    match addr {
        RouteVia::Inet(addr) => Some((*addr).into()),
        RouteVia::Inet6(addr) => Some((*addr).into()),
        _ => None,
    }
}

fn to_message(key: &RouteKey, route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    let header = &mut message.header;
    header.address_family = key.family().into();
    header.destination_prefix_length = key.dst.prefix_len();
    header.protocol = route.protocol.into();
    header.scope = route.scope;
    header.kind = route.kind;
    header.flags.set(RouteFlags::Onlink, route.onlink);
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Destination(key.dst.network().into()));
    attributes.push(RouteAttribute::Table(key.table));
    if key.metric != 0 {
        attributes.push(RouteAttribute::Priority(key.metric));
    }
    match route.nexthop {
        // The kernel refuses a nexthop object together with what the object already says.
        Some(id) => attributes.push(RouteAttribute::NhId(id)),
        None => attributes.extend(next_hop(key, route)),
    }
    attributes.extend(route.src.map(|src| RouteAttribute::PrefSource(src.into())));
    message
}

fn next_hop(key: &RouteKey, route: &Route) -> impl Iterator<Item = RouteAttribute> {
    let gateway = route.gateway.map(|gateway| match gateway {
        IpAddr::V6(v6) if key.family() == Family::V4 => RouteAttribute::Via(RouteVia::Inet6(v6)),
        same => RouteAttribute::Gateway(same.into()),
    });
    gateway.into_iter().chain(route.oif.map(RouteAttribute::Oif))
}

impl Netlink {
    /// The routes of the main table, in kernel order. IPv6 keys may repeat: the prefix of every link's
    /// link-local addresses is the same.
    pub async fn routes(&self, family: Family) -> Result<Vec<(RouteKey, Route)>, NetlinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = family.into();
        message.attributes.push(RouteAttribute::Table(MAIN_TABLE));
        let dump = match self.route.dump(RouteNetlinkMessage::GetRoute(message)).await {
            // A table without a route yet does not exist.
            Err(fault) if fault.errno() == Some(Errno::ENOENT) => return Ok(Vec::new()),
            other => other.map_err(|fault| fault.on(Verb::Read, format_args!("the {family} routes")))?,
        };
        let entries = dump.readable();
        Ok(entries.iter().filter_map(route_of).filter(|(key, _)| key.table == MAIN_TABLE).collect())
    }

    /// Adds a route or changes the one with the same key.
    pub async fn replace_route(&self, key: &RouteKey, route: &Route) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::NewRoute(to_message(key, route));
        let done = self.route.command(message, NLM_F_CREATE | NLM_F_REPLACE).await;
        done.map_err(|fault| fault.on(Verb::Replace, key))
    }

    /// Deletes exactly this route: one with the same key that leads elsewhere, or that another program
    /// made, stays. [`NetlinkError::is_gone`] when there is none such.
    pub async fn del_route(&self, key: &RouteKey, route: &Route) -> Result<(), NetlinkError> {
        let message = RouteNetlinkMessage::DelRoute(to_message(key, route));
        self.route.command(message, 0).await.map_err(|fault| fault.on(Verb::Delete, key))
    }
}

fn route_of(message: &RouteNetlinkMessage) -> Option<(RouteKey, Route)> {
    match message {
        RouteNetlinkMessage::NewRoute(route) => from_message(route),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    fn addr(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_message_reads_back_as_what_it_was_made_from() {
        let src = Some(addr("10.0.0.1"));
        for (key, route) in [
            (RouteKey::main(net("10.5.2.0/24")), Route::onlink(addr("10.5.2.0"), 7, protocol::BOOT)),
            (RouteKey::main(net("10.5.3.0/24")), Route::via(addr("10.9.0.3"), None, protocol::FLANNEL)),
            (RouteKey::main(net("fd00:2::/64")), Route::onlink(addr("fd00:2::"), 7, protocol::BOOT)),
            (
                RouteKey { dst: net("10.5.4.0/24"), table: 4000, metric: 9 },
                Route { src, ..Route::via(addr("fe80::1"), Some(3), 4) },
            ),
        ] {
            assert_eq!(from_message(&to_message(&key, &route)), Some((key, route)));
        }
    }

    #[test]
    fn a_route_without_destination_is_the_default_route() {
        let mut message = RouteMessage::default();
        message.header.address_family = Family::V6.into();
        let (key, _) = from_message(&message).expect("a route");
        assert_eq!(key.dst, net("::/0"));
    }

    #[test]
    fn routes_the_key_cannot_tell_apart_are_left_out() {
        let plain = to_message(&RouteKey::main(net("10.5.2.0/24")), &Route::via(addr("10.0.0.1"), None, 3));
        assert!(from_message(&plain).is_some());
        let mut by_tos = plain.clone();
        by_tos.header.tos = 0x10;
        assert_eq!(from_message(&by_tos), None);
        let mut clone = plain;
        clone.header.flags |= RouteFlags::Cloned;
        assert_eq!(from_message(&clone), None);
    }
}
