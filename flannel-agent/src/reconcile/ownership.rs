//! The rules by which a new process recognises our kernel objects. Pure; the table is in
//! ARCHITECTURE.md.
//!
//! No other object is ever changed or removed, regardless of its creator.

use std::collections::BTreeMap;

use flannel_host::family::Family;
use flannel_netlink::{
    AddressKey, FdbKey, MAIN_TABLE, NeighbourKey, Route, RouteKey, RouteScope, RouteType, TunnelPolicy,
    TunnelPolicyKey, protocol,
};
use ipnet::IpNet;

use super::unreachable;
use crate::backend::ipsec;

/// By what our objects of one family are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ownership {
    /// Interface index of the tunnel device, if there is one.
    pub(super) tunnel: Option<u32>,
    /// The flannel network.
    pub(super) network: IpNet,
}

impl Ownership {
    /// The family.
    pub(super) fn family(&self) -> Family {
        Family::of(self.network.addr())
    }

    /// Addresses of the tunnel device, inside the network: there may be others, which an operator
    /// added.
    pub(super) fn address(&self, key: &AddressKey) -> bool {
        let whole = key.prefix_len == self.family().bits();
        self.tunnel == Some(key.ifindex) && whole && self.network.contains(&key.addr)
    }

    /// Permanent neighbours on the tunnel device.
    pub(super) fn neighbour(&self, key: &NeighbourKey) -> bool {
        self.tunnel == Some(key.ifindex) && Family::of(key.addr) == self.family()
    }

    /// Permanent FDB entries on the tunnel device.
    pub(super) fn fdb(&self, key: &FdbKey) -> bool {
        self.tunnel == Some(key.ifindex)
    }

    /// Policies of IPsec tunnels with flannel's number, between parts of the network.
    pub(super) fn policy(&self, key: &TunnelPolicyKey, policy: &TunnelPolicy) -> bool {
        ipsec::is_ours(key, policy, self.network)
    }

    /// Routes into the tunnel device with a gateway inside the network; direct routes, and routes
    /// through the ipip device, which have a peer's own address as gateway: those of our protocol,
    /// and those stock flannel left, which equal what a lease asks for. The route for
    /// the whole network into the tunnel device, where one is wanted. And the unreachable route for
    /// the network.
    pub(super) fn route(&self, key: &RouteKey, route: &Route, desired: &BTreeMap<RouteKey, Route>) -> bool {
        if key.table != MAIN_TABLE || !self.inside(key.dst) {
            return false;
        }
        if unreachable::is_ours(key, route, &[self.network]) {
            return true;
        }
        if key.dst == self.network && route.gateway.is_none() && desired.contains_key(key) {
            return route.oif.is_some() && route.oif == self.tunnel;
        }
        let Some(gateway) = route.gateway else { return false };
        let into_tunnel = route.oif.is_some() && route.oif == self.tunnel;
        if into_tunnel && (!route.onlink || self.network.contains(&gateway)) {
            return route.onlink;
        }
        let direct = route.scope == RouteScope::Universe && !route.multipath;
        let left_by_stock = || desired.get(key).is_some_and(|wanted| wanted.gateway == Some(gateway));
        direct && (route.protocol == protocol::FLANNEL || (route.protocol == protocol::BOOT && left_by_stock()))
    }

    /// The device of a route into a tunnel that may be one of another backend, which this node had
    /// before. A peer's is more specific than a route for the whole network, and would win.
    pub(super) fn possible_leftover(&self, key: &RouteKey, route: &Route) -> Option<u32> {
        let into_tunnel = match route.gateway {
            Some(gateway) => route.onlink && self.network.contains(&gateway),
            None => key.dst == self.network && route.kind == RouteType::Unicast,
        };
        let elsewhere = route.oif.filter(|oif| Some(*oif) != self.tunnel);
        elsewhere.filter(|_| into_tunnel && key.table == MAIN_TABLE && self.inside(key.dst))
    }

    /// Returns true if a destination lies in the network, so that a route to it may be one of ours.
    pub(super) fn inside(&self, destination: IpNet) -> bool {
        self.network.contains(&destination)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use ipnet::{Ipv4Net, Ipv6Net};

    use super::*;

    const OURS: Ownership =
        Ownership { tunnel: Some(7), network: IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 244, 0, 0), 16)) };
    const OURS6: Ownership = Ownership {
        tunnel: Some(8),
        network: IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0x10, 0x244, 0, 0, 0, 0, 0), 48)),
    };

    fn key(dst: &str) -> RouteKey {
        RouteKey::main(dst.parse().expect("a prefix"))
    }

    fn owns(dst: &str, route: &Route, desired: &[(RouteKey, Route)]) -> bool {
        OURS.route(&key(dst), route, &desired.iter().cloned().collect())
    }

    #[test]
    fn tunnel_routes_are_ours_whatever_their_protocol() {
        let gateway = "10.244.2.0".parse().expect("an address");
        for protocol in [protocol::BOOT, protocol::FLANNEL, 4] {
            assert!(owns("10.244.2.0/24", &Route::onlink(gateway, 7, protocol), &[]));
        }
        assert!(!owns("10.244.2.0/24", &Route::via(gateway, Some(7), protocol::BOOT), &[]), "not onlink");
        assert!(!owns("10.9.0.0/16", &Route::onlink(gateway, 7, protocol::BOOT), &[]), "outside the network");
        let foreign = "192.168.9.1".parse().expect("an address");
        assert!(!owns("10.244.2.0/24", &Route::onlink(foreign, 7, protocol::BOOT), &[]), "gateway outside");
    }

    #[test]
    fn direct_routes_are_ours_by_protocol_or_by_lease() {
        let peer = "192.168.1.2".parse().expect("an address");
        let ours = Route::via(peer, Some(2), protocol::FLANNEL);
        let stocks = Route::via(peer, Some(2), protocol::BOOT);
        assert!(owns("10.244.2.0/24", &ours, &[]));
        assert!(!owns("10.244.2.0/24", &stocks, &[]), "an administrator's, as far as we can tell");
        assert!(owns("10.244.2.0/24", &stocks, &[(key("10.244.2.0/24"), ours.clone())]));
        let other = Route::via("192.168.1.9".parse().expect("an address"), Some(2), protocol::BOOT);
        assert!(!owns("10.244.2.0/24", &other, &[(key("10.244.2.0/24"), ours)]));
    }

    #[test]
    fn routes_through_an_ipip_device_are_ours_by_protocol_or_by_lease() {
        let peer = "192.168.1.2".parse().expect("an address");
        let [ours, stocks] = [protocol::FLANNEL, protocol::BOOT].map(|protocol| Route::onlink(peer, 7, protocol));
        assert!(owns("10.244.2.0/24", &ours, &[]));
        assert!(!owns("10.244.2.0/24", &stocks, &[]), "an administrator's, as far as we can tell");
        assert!(owns("10.244.2.0/24", &stocks, &[(key("10.244.2.0/24"), ours)]));
    }

    #[test]
    fn the_pods_own_route_is_not_ours() {
        let bridge = Route {
            gateway: None,
            scope: RouteScope::Link,
            ..Route::via("10.244.1.1".parse().expect("an address"), Some(9), 2)
        };
        assert!(!owns("10.244.1.0/24", &bridge, &[]));
    }

    #[test]
    fn of_unreachable_routes_that_of_our_protocol_for_the_whole_network_is_ours() {
        let unreachable = |protocol| Route {
            gateway: None,
            kind: RouteType::Unreachable,
            ..Route::via("10.244.1.1".parse().expect("an address"), None, protocol)
        };
        assert!(owns("10.244.0.0/16", &unreachable(protocol::FLANNEL), &[]));
        assert!(!owns("10.244.0.0/16", &unreachable(protocol::BOOT), &[]), "an administrator's");
        assert!(!owns("10.244.2.0/24", &unreachable(protocol::FLANNEL), &[]), "a part of the network");
    }

    #[test]
    fn each_family_knows_its_own() {
        let address = |ifindex, addr: &str, prefix_len| AddressKey {
            ifindex,
            addr: addr.parse().expect("an address"),
            prefix_len,
        };
        assert!(OURS6.address(&address(8, "fd00:10:244:1::", 128)));
        assert!(!OURS6.address(&address(8, "fe80::1", 64)), "the kernel's own");
        assert!(!OURS6.address(&address(8, "10.244.1.0", 32)));
        let route = |dst: &str, gateway: &str| {
            let gateway = gateway.parse().expect("an address");
            OURS6.route(&key(dst), &Route::onlink(gateway, 8, protocol::BOOT), &BTreeMap::new())
        };
        assert!(route("fd00:10:244:2::/64", "fd00:10:244:2::"));
        assert!(!route("fd00:10:244:2::/64", "fe80::2"), "gateway outside");
        assert!(!route("10.244.2.0/24", "10.244.2.0"));
    }

    #[test]
    fn without_a_tunnel_only_direct_routes_are_ours() {
        let none = Ownership { tunnel: None, ..OURS };
        let gateway = "10.244.2.0".parse().expect("an address");
        let owns = |route: Route| none.route(&key("10.244.2.0/24"), &route, &BTreeMap::new());
        assert!(!owns(Route::onlink(gateway, 7, protocol::BOOT)));
        assert!(!owns(Route::via(gateway, None, protocol::BOOT)));
        assert!(owns(Route::via("192.168.1.2".parse().expect("an address"), Some(2), protocol::FLANNEL)));
    }

    #[test]
    fn routes_into_another_tunnel_may_be_left_by_another_backend() {
        let gateway = "10.244.2.0".parse().expect("an address");
        let network = Route::on_device(Family::V4, 9, protocol::BOOT);
        let peer = |oif| Route::onlink(gateway, oif, protocol::BOOT);
        let of = |dst: &str, route: &Route| OURS.possible_leftover(&key(dst), route);
        assert_eq!(of("10.244.2.0/24", &peer(9)), Some(9));
        assert_eq!(of("10.244.0.0/16", &network), Some(9));
        assert_eq!(of("10.244.2.0/24", &peer(7)), None, "our own tunnel");
        assert_eq!(of("10.245.2.0/24", &peer(9)), None, "outside the network");
        assert_eq!(of("10.244.2.0/24", &network), None, "the bridge's own route");
    }

    #[test]
    fn only_the_tunnel_devices_entries_are_ours() {
        let address = |ifindex, addr: &str, prefix_len| AddressKey {
            ifindex,
            addr: addr.parse().expect("an address"),
            prefix_len,
        };
        assert!(OURS.address(&address(7, "10.244.1.0", 32)));
        assert!(!OURS.address(&address(2, "10.244.1.0", 32)));
        assert!(!OURS.address(&address(7, "192.168.1.1", 32)));
        assert!(!OURS.address(&address(7, "fe80::1", 64)));
    }
}
