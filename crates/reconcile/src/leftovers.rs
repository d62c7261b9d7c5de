//! Objects with our marks that name no network of this agent: what a former configuration left.
//!
//! Routes and nexthop objects of protocol 191 are flannel's. Outside the networks of this agent
//! they are leftovers, unless they are of another agent of this host. Its networks are known by its
//! claims while it runs ([`flannel_claims`]), by the addresses of its tunnel devices, by its
//! unreachable routes for whole networks, and by what this agent has put on record when it saw the
//! claims ([`super::networks`]). Claims are taken before the first object is made, and they are
//! read here after the objects, so that an object of a new agent is never taken for a leftover.
//!
//! Objects on our own tunnel devices need none of this: they are part of the desired state, see
//! `super::ownership`.

use std::collections::BTreeSet;

use flannel_backend_api::Marks;
use flannel_claims::networks_of_others;
use flannel_host::{family::Family, networks::overlap};
use flannel_netlink::{
    MAIN_TABLE, Netlink, NetlinkError, Nexthop, NexthopId, Route, RouteKey, RouteScope, RouteType,
    protocol,
};
use ipnet::{IpNet, Ipv4Net};

use super::{networks::NetworksRecord, unreachable::METRIC};

/// Looks for leftovers, once in a while.
#[derive(Debug)]
pub struct Leftovers {
    record: NetworksRecord,
    marks: Marks,
    /// True if a look is due.
    due: bool,
    /// Former networks whose leftovers were found since the last [`Self::take_former`].
    former: BTreeSet<IpNet>,
}

/// The findings of a look.
#[derive(Debug, Default)]
struct Found {
    routes: Vec<(RouteKey, Route)>,
    nexthops: Vec<(NexthopId, IpNet)>,
}

impl Leftovers {
    /// None is known. The record has the networks of this agent.
    pub const fn new(record: NetworksRecord, marks: Marks) -> Self {
        Self {
            record,
            marks,
            due: true,
            former: BTreeSet::new(),
        }
    }

    /// The next [`Self::sweep`] looks again.
    pub(super) const fn invalidate(&mut self) {
        self.due = true;
    }

    /// Former networks of which something was found.
    pub(super) fn take_former(&mut self) -> BTreeSet<IpNet> {
        std::mem::take(&mut self.former)
    }

    /// Removes what is left over. `tunnels` are our own devices.
    pub(super) async fn sweep(&mut self, netlink: &Netlink, tunnels: &[u32]) {
        if !std::mem::take(&mut self.due) {
            return;
        }
        if let Err(error) = self.try_sweep(netlink, tunnels).await {
            tracing::warn!(%error, "objects of a former pod network may be left; tried again");
        }
    }

    async fn try_sweep(&mut self, netlink: &Netlink, tunnels: &[u32]) -> Result<(), NetlinkError> {
        let mut found = self.find(netlink, tunnels).await?;
        let claimed = match networks_of_others(self.record.own()) {
            Ok(claimed) => claimed,
            Err(error) => {
                tracing::debug!(%error, "other agents are not known, so nothing is removed");
                return Ok(());
            }
        };
        self.record.add_others(&claimed);
        if found.routes.is_empty() && found.nexthops.is_empty() {
            return Ok(());
        }
        let others = [
            claimed,
            self.record.others(),
            addresses_of_others(netlink, tunnels, self.marks).await?,
        ]
        .concat();
        found.leave(others);
        self.remove(netlink, found).await
    }

    /// All objects of our protocol outside our networks.
    async fn find(&self, netlink: &Netlink, tunnels: &[u32]) -> Result<Found, NetlinkError> {
        let is_outside =
            |network: IpNet| !self.record.own().iter().any(|own| overlap(*own, network));
        let mut found = Found::default();
        for family in Family::BOTH {
            let routes = netlink.routes(family).await?;
            let is_left = |(key, route): &(RouteKey, Route)| {
                is_marked(key, route, tunnels) && is_outside(key.dst)
            };
            found.routes.extend(routes.into_iter().filter(is_left));
        }
        let nexthops = netlink.nexthops().await?.unwrap_or_default();
        found
            .nexthops
            .extend(nexthops.into_iter().filter_map(|(id, nexthop)| {
                let address = address_of(id);
                let is_left = is_marked_nexthop(&nexthop, tunnels) && is_outside(address);
                is_left.then_some((id, address))
            }));
        Ok(found)
    }

    async fn remove(&mut self, netlink: &Netlink, found: Found) -> Result<(), NetlinkError> {
        for (key, route) in found.routes {
            if route.kind == RouteType::Unreachable {
                self.former.insert(key.dst);
            }
            unless_gone(netlink.del_route(&key, &route).await)?;
            tracing::info!(route = %key, "removed a route of a former pod network");
        }
        for (id, _) in found.nexthops {
            unless_gone(netlink.del_nexthop(id).await)?;
            tracing::info!(object = %id, "removed a nexthop object of a former pod network");
        }
        Ok(())
    }
}

impl Found {
    /// Leaves what is in networks of others: those that are known, and those whose unreachable
    /// route has an address in common with them.
    fn leave(&mut self, mut others: Vec<IpNet>) {
        let is_others =
            |others: &[IpNet], network: IpNet| others.iter().any(|other| overlap(*other, network));
        let whole = self
            .routes
            .iter()
            .filter(|(_, route)| route.kind == RouteType::Unreachable);
        let whole: Vec<IpNet> = whole
            .map(|(key, _)| key.dst)
            .filter(|network| is_others(&others, *network))
            .collect();
        others.extend(whole);
        self.routes.retain(|(key, _)| !is_others(&others, key.dst));
        self.nexthops
            .retain(|(_, address)| !is_others(&others, *address));
    }
}

/// Returns true for a route that only flannel makes, other than one into our own tunnel devices.
fn is_marked(key: &RouteKey, route: &Route, tunnels: &[u32]) -> bool {
    if key.table != MAIN_TABLE || route.protocol != protocol::FLANNEL {
        return false;
    }
    match route.kind {
        RouteType::Unreachable | RouteType::BlackHole => key.metric == METRIC,
        RouteType::Unicast => {
            let is_direct = route.gateway.is_some()
                && route.scope == RouteScope::Universe
                && !route.is_multipath();
            is_direct && !route.oif.is_some_and(|oif| tunnels.contains(&oif))
        }
        _ => false,
    }
}

fn is_marked_nexthop(nexthop: &Nexthop, tunnels: &[u32]) -> bool {
    let on_tunnel = nexthop.oif.is_some_and(|oif| tunnels.contains(&oif));
    nexthop.protocol == protocol::FLANNEL && !nexthop.special && !on_tunnel
}

/// The address that the number of an object is.
fn address_of(id: NexthopId) -> IpNet {
    Ipv4Net::from(std::net::Ipv4Addr::from(id.0)).into()
}

/// The addresses of tunnel devices with flannel's names that are not ours.
async fn addresses_of_others(
    netlink: &Netlink,
    tunnels: &[u32],
    marks: Marks,
) -> Result<Vec<IpNet>, NetlinkError> {
    let links = netlink.links().await?;
    let is_others = |index: u32| {
        !tunnels.contains(&index)
            && links
                .iter()
                .any(|link| link.index == index && (marks.is_tunnel)(link))
    };
    let addresses = netlink.addresses().await?;
    let of_others = addresses
        .iter()
        .map(|address| address.key)
        .filter(|key| is_others(key.ifindex));
    Ok(of_others.map(|key| key.addr.into()).collect())
}

fn unless_gone(removed: Result<(), NetlinkError>) -> Result<(), NetlinkError> {
    match removed {
        Err(error) if !error.is_gone() => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    fn unreachable(network: &str) -> (RouteKey, Route) {
        let route = Route {
            gateway: None,
            kind: RouteType::Unreachable,
            ..direct("10.0.0.1")
        };
        (
            RouteKey {
                metric: METRIC,
                ..RouteKey::main(net(network))
            },
            route,
        )
    }

    fn direct(gateway: &str) -> Route {
        Route::via(
            gateway.parse().expect("an address"),
            Some(2),
            protocol::FLANNEL,
        )
    }

    #[test]
    fn only_routes_that_flannel_alone_makes_are_marked() {
        let (key, route) = unreachable("10.9.0.0/16");
        assert!(is_marked(&key, &route, &[7]));
        assert!(
            !is_marked(&RouteKey { metric: 0, ..key }, &route, &[7]),
            "another metric"
        );
        assert!(
            !is_marked(&RouteKey { table: 100, ..key }, &route, &[7]),
            "another table"
        );
        assert!(
            !is_marked(
                &key,
                &Route {
                    protocol: protocol::BOOT,
                    ..route
                },
                &[7]
            ),
            "an administrator's"
        );
        let to_peer = RouteKey::main(net("10.9.2.0/24"));
        assert!(is_marked(&to_peer, &direct("192.168.1.2"), &[7]));
        assert!(
            !is_marked(&to_peer, &direct("192.168.1.2"), &[2]),
            "into our tunnel"
        );
        assert!(!is_marked(
            &to_peer,
            &Route {
                protocol: protocol::BOOT,
                ..direct("192.168.1.2")
            },
            &[7]
        ));
    }

    #[test]
    fn what_is_in_a_network_of_another_agent_stays() {
        let found = || Found {
            routes: vec![
                unreachable("10.55.0.0/16"),
                (RouteKey::main(net("10.55.3.0/24")), direct("192.168.1.3")),
                unreachable("10.9.0.0/16"),
                (RouteKey::main(net("10.9.2.0/24")), direct("192.168.1.2")),
            ],
            nexthops: vec![
                (NexthopId(0x0a37_0300), net("10.55.3.0/32")),
                (NexthopId(0x0a09_0200), net("10.9.2.0/32")),
            ],
        };
        // By its claim, and by the address of its tunnel device.
        for other in ["10.55.0.0/16", "10.55.28.0/32"] {
            let mut found = found();
            found.leave(vec![net(other)]);
            let left: Vec<IpNet> = found.routes.iter().map(|(key, _)| key.dst).collect();
            assert_eq!(left, [net("10.9.0.0/16"), net("10.9.2.0/24")], "{other}");
            assert_eq!(found.nexthops.len(), 1, "{other}");
        }
        let mut alone = found();
        alone.leave(Vec::new());
        assert_eq!((alone.routes.len(), alone.nexthops.len()), (4, 2));
    }

    #[test]
    fn the_number_of_an_object_is_an_address() {
        assert_eq!(address_of(NexthopId(0x0af4_0100)), net("10.244.1.0/32"));
    }
}
