//! The unreachable route for the whole pod network. Packets that no more specific route matches end
//! on this node, and do not leave unencapsulated by the default route.
//!
//! It has the largest metric, so any other route to the same prefix comes first. Where another
//! program has such a route, or hosts of the underlay may have addresses in the pod network, none
//! is made. Pure.

use std::{collections::BTreeMap, net::IpAddr};

use flannel_netlink::{MAIN_TABLE, Route, RouteKey, RouteScope, RouteType, protocol};
use ipnet::IpNet;

/// The largest there is; `ip route` prints it as 4294967295.
pub(super) const METRIC: u32 = u32::MAX;

/// The reason for which the route is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotMade {
    /// The operator does not want it.
    #[error("--unreachable-route=false")]
    Disabled,
    /// Routes of the backend do not carry the packets.
    #[error("the backend carries no packets")]
    NoCarrier,
    /// The tunnel device has a route for the whole network.
    #[error("the tunnel device takes all packets for it, and drops those for no peer")]
    IntoTunnel,
    /// The underlay may be in the pod network.
    #[error("the address {0} of this node is in it, so the default route may lead to hosts in it")]
    HasOwnAddress(IpAddr),
    /// The store may be reached by the default route.
    #[error("the address {0} of the store is in it, and the default route may lead there")]
    HasStore(IpAddr),
    /// The number is a route protocol, as in `/etc/iproute2/rt_protos`.
    #[error("another program has a route to it (protocol {0})")]
    Foreign(u8),
}

/// The key of the route for a pod network.
pub(super) const fn key(network: IpNet) -> RouteKey {
    RouteKey {
        dst: network,
        table: MAIN_TABLE,
        metric: METRIC,
    }
}

/// The route.
const ROUTE: Route = Route {
    gateway: None,
    oif: None,
    onlink: false,
    protocol: protocol::FLANNEL,
    scope: RouteScope::Universe,
    kind: RouteType::Unreachable,
    src: None,
    hops: Vec::new(),
    nexthop: None,
};

/// True if this is the unreachable route of an agent for one of these networks.
pub(super) fn is_ours(key: &RouteKey, route: &Route, networks: &[IpNet]) -> bool {
    route.kind == RouteType::Unreachable
        && route.protocol == protocol::FLANNEL
        && networks.contains(&key.dst)
}

/// Decides about the route of one pod network.
#[derive(Debug)]
pub(super) struct UnreachableRoute {
    pub(super) network: IpNet,
    /// The decision at the start, from the configuration only.
    asked: Result<(), NotMade>,
    /// Routes of other programs to the same prefix, and their protocol.
    foreign: BTreeMap<RouteKey, u8>,
}

impl UnreachableRoute {
    /// No route of other programs is known yet.
    pub(super) const fn new(network: IpNet, asked: Result<(), NotMade>) -> Self {
        Self {
            network,
            asked,
            foreign: BTreeMap::new(),
        }
    }

    /// Replaces the routes of other programs, after reading all routes.
    pub(super) fn set_foreign<'a>(&mut self, routes: impl Iterator<Item = &'a (RouteKey, Route)>) {
        let foreign = routes.filter(|(key, route)| self.is_foreign(key, route));
        self.foreign = foreign.map(|(key, route)| (*key, route.protocol)).collect();
    }

    /// Records an observed route, or `None` for a route that is gone. Returns true if the decision
    /// about our route must be made again.
    pub(super) fn observe(&mut self, key: RouteKey, route: Option<&Route>) -> bool {
        match route.filter(|route| self.is_foreign(&key, route)) {
            Some(route) => self.foreign.insert(key, route.protocol) != Some(route.protocol),
            None => self.foreign.remove(&key).is_some(),
        }
    }

    fn is_foreign(&self, key: &RouteKey, route: &Route) -> bool {
        key.table == MAIN_TABLE && key.dst == self.network && !is_ours(key, route, &[self.network])
    }

    /// The reason for which the route is not made on a node with this address on its external
    /// interface, if there is one.
    pub(super) fn refusal(&self, own: IpAddr) -> Option<NotMade> {
        let foreign = self
            .foreign
            .values()
            .next()
            .map(|protocol| NotMade::Foreign(*protocol));
        let own = self
            .network
            .contains(&own)
            .then_some(NotMade::HasOwnAddress(own));
        self.asked.err().or(own).or(foreign)
    }

    /// The route as it should be.
    pub(super) fn wanted(&self, own: IpAddr) -> Option<Route> {
        self.refusal(own).is_none().then_some(ROUTE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    const OWN: &str = "192.168.1.11";

    fn route_of(network: &str) -> UnreachableRoute {
        UnreachableRoute::new(net(network), Ok(()))
    }

    #[test]
    fn it_is_made_where_nothing_is_in_the_way() {
        assert_eq!(route_of("10.244.0.0/16").wanted(ip(OWN)), Some(ROUTE));
        assert_eq!(
            route_of("fd00:10:244::/48").wanted(ip("2001:db8::1")),
            Some(ROUTE)
        );
    }

    #[test]
    fn it_is_not_made_where_the_underlay_is_in_the_pod_network() {
        let refusal = route_of("192.0.0.0/8").refusal(ip(OWN));
        assert_eq!(refusal, Some(NotMade::HasOwnAddress(ip(OWN))));
        assert_eq!(route_of("192.0.0.0/8").wanted(ip(OWN)), None);
    }

    #[test]
    fn what_the_operator_asks_for_comes_first() {
        let disabled = UnreachableRoute::new(net("192.0.0.0/8"), Err(NotMade::Disabled));
        assert_eq!(disabled.refusal(ip(OWN)), Some(NotMade::Disabled));
    }

    #[test]
    fn a_route_of_another_program_is_respected_while_it_is_there() {
        let network = net("10.244.0.0/16");
        let bird = Route {
            kind: RouteType::BlackHole,
            protocol: 12,
            ..ROUTE
        };
        for (foreign, route) in [
            (RouteKey::main(network), bird.clone()),
            (key(network), bird),
            (
                RouteKey::main(network),
                Route::via(ip("192.168.1.1"), Some(2), protocol::BOOT),
            ),
        ] {
            let mut ours = route_of("10.244.0.0/16");
            assert!(
                ours.observe(foreign, Some(&route)),
                "to be decided about again"
            );
            assert!(!ours.observe(foreign, Some(&route)), "known");
            assert_eq!(
                ours.refusal(ip(OWN)),
                Some(NotMade::Foreign(route.protocol))
            );
            assert!(ours.observe(foreign, None));
            assert_eq!(ours.wanted(ip(OWN)), Some(ROUTE));
            ours.set_foreign([(foreign, route.clone())].iter());
            assert_eq!(
                ours.refusal(ip(OWN)),
                Some(NotMade::Foreign(route.protocol))
            );
        }
    }

    #[test]
    fn our_own_route_and_routes_to_other_prefixes_are_not_in_the_way() {
        let mut ours = route_of("10.244.0.0/16");
        let via = Route::via(ip("192.168.1.1"), Some(2), protocol::BOOT);
        assert!(!ours.observe(key(net("10.244.0.0/16")), Some(&ROUTE)));
        for prefix in ["10.244.0.0/17", "10.244.9.0/24", "10.0.0.0/8", "0.0.0.0/0"] {
            assert!(
                !ours.observe(RouteKey::main(net(prefix)), Some(&via)),
                "{prefix}"
            );
        }
        let elsewhere = RouteKey {
            table: 100,
            ..RouteKey::main(net("10.244.0.0/16"))
        };
        assert!(!ours.observe(elsewhere, Some(&via)), "another table");
        assert_eq!(ours.wanted(ip(OWN)), Some(ROUTE));
    }
}
