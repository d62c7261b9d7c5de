//! Default routes, and the source addresses that the kernel takes for packets by them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flannel_host::family::Family;
use flannel_netlink::{Netlink, NetlinkError, Route, RouteKey, RouteType};

/// An address that a default route without a gateway leads to: reserved (RFC 1112 section 4), so
/// that no other route does.
const ANY_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(240, 0, 0, 1));
/// The same where the gateway has an IPv6 address of link scope, for which the kernel would take a
/// source of that scope: the first global unicast address (RFC 4291 section 2.4).
const ANY_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 1));

/// A default route of the main table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultRoute {
    /// The family of the packets it leads.
    pub family: Family,
    /// The interface by which it leaves; `None` where there are several.
    pub ifindex: Option<u32>,
    /// The metric; the lowest wins.
    pub metric: u32,
    /// The source address that the route names.
    pub src: Option<IpAddr>,
    /// The source address that the kernel takes for packets to the gateway.
    pub source: Option<IpAddr>,
}

impl DefaultRoute {
    /// Reads the default routes of a family, the one with the lowest metric first.
    pub(super) async fn read(netlink: &Netlink, family: Family) -> Result<Vec<Self>, NetlinkError> {
        let mut found = Vec::new();
        for (key, route) in netlink.routes(family).await? {
            if key.dst == family.everything() && route.kind == RouteType::Unicast {
                found.push(Self::of(netlink, family, &key, &route).await?);
            }
        }
        found.sort_by_key(|route| route.metric);
        Ok(found)
    }

    async fn of(netlink: &Netlink, family: Family, key: &RouteKey, route: &Route) -> Result<Self, NetlinkError> {
        let source = match route.oif {
            Some(index) => source_by(netlink, index, target(family, route.gateway)).await?,
            None => None,
        };
        Ok(Self { family, ifindex: route.oif, metric: key.metric, src: route.src, source })
    }
}

/// The address whose source is that of packets by the route.
fn target(family: Family, gateway: Option<IpAddr>) -> IpAddr {
    let is_of_family = |gateway: &IpAddr| Family::of(*gateway) == family && !gateway.is_unspecified();
    let is_global = |gateway: &IpAddr| !super::address::is_link_scope(*gateway);
    gateway.filter(is_of_family).filter(is_global).unwrap_or(match family {
        Family::V4 => ANY_V4,
        Family::V6 => ANY_V6,
    })
}

/// The source of packets to an address by an interface. `None` where the kernel sends none: the
/// interface is down, or went away since.
async fn source_by(netlink: &Netlink, ifindex: u32, dst: IpAddr) -> Result<Option<IpAddr>, NetlinkError> {
    match netlink.route_out_of(ifindex, dst).await {
        Ok(answer) => Ok(answer.src.filter(|_| answer.kind == RouteType::Unicast)),
        Err(error) if error.is_gone() || error.errno().is_some() => Ok(None),
        Err(error) => Err(error),
    }
}
