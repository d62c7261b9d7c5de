//! Default routes, and the source addresses that the kernel takes for packets by them.
//!
//! One with several next hops is as many default routes of one metric, the kernel's own choice
//! first. The kernel chooses by a hash of the addresses that is another one after each boot
//! (`fib_multipath_hash()` in [net/ipv4/route.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/route.c)).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flannel_host::family::Family;
use flannel_netlink::{Netlink, NetlinkError, Route, RouteHop, RouteType};

/// An address that a default route without a gateway leads to: reserved ([RFC 1112, section
/// 4](https://www.rfc-editor.org/rfc/rfc1112#section-4)), so that no other route does.
const ANY_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(240, 0, 0, 1));
/// The same where the gateway has an IPv6 address of link scope, for which the kernel would take a
/// source of that scope: the first global unicast address ([RFC 4291, section
/// 2.4](https://www.rfc-editor.org/rfc/rfc4291#section-2.4)).
const ANY_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 1));

/// A default route of the main table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultRoute {
    /// The family of the packets it leads.
    pub family: Family,
    /// The interface by which it leaves.
    pub ifindex: u32,
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
            if key.dst != family.everything() || route.kind != RouteType::Unicast {
                continue;
            }
            for hop in next_hops(netlink, family, &route).await? {
                let source = source_by(netlink, hop.oif, target(family, hop.gateway)).await?;
                found.push(Self {
                    family,
                    ifindex: hop.oif,
                    metric: key.metric,
                    src: route.src,
                    source,
                });
            }
        }
        found.sort_by_key(|route| route.metric);
        Ok(found)
    }
}

/// The next hops of a route, of several the kernel's own choice first.
async fn next_hops(
    netlink: &Netlink,
    family: Family,
    route: &Route,
) -> Result<Vec<RouteHop>, NetlinkError> {
    if let Some(oif) = route.oif {
        return Ok(vec![RouteHop {
            oif,
            gateway: route.gateway,
        }]);
    }
    let answer = netlink.route_from_here(any(family)).await?;
    let mut hops = route.hops.clone();
    if hops.is_empty() {
        // With `net.ipv4.nexthop_compat_mode` 0 a route does not show what its nexthop object has.
        hops.extend(answer.oif.map(|oif| RouteHop {
            oif,
            gateway: answer.gateway,
        }));
    }
    hops.sort_by_key(|hop| answer.oif != Some(hop.oif));
    Ok(hops)
}

/// An address to which no other route than a default route leads.
const fn any(family: Family) -> IpAddr {
    match family {
        Family::V4 => ANY_V4,
        Family::V6 => ANY_V6,
    }
}

/// The address whose source is that of packets by the route.
fn target(family: Family, gateway: Option<IpAddr>) -> IpAddr {
    let is_of_family =
        |gateway: &IpAddr| Family::of(*gateway) == family && !gateway.is_unspecified();
    let is_global = |gateway: &IpAddr| !super::link_scope::is_link_scope(*gateway);
    gateway
        .filter(is_of_family)
        .filter(is_global)
        .unwrap_or(any(family))
}

/// The source of packets to an address by an interface. `None` where the kernel sends none: the
/// interface is down, or went away since.
async fn source_by(
    netlink: &Netlink,
    ifindex: u32,
    dst: IpAddr,
) -> Result<Option<IpAddr>, NetlinkError> {
    match netlink.route_out_of(ifindex, dst).await {
        Ok(answer) => Ok(answer.src.filter(|_| answer.kind == RouteType::Unicast)),
        Err(error) if error.is_gone() || error.errno().is_some() => Ok(None),
        Err(error) => Err(error),
    }
}
