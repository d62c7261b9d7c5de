//! The rules by which a new process recognises our kernel objects. Pure; the table is in
//! ARCHITECTURE.md.
//!
//! No other object is ever changed or removed, regardless of its creator.

use std::{collections::BTreeMap, net::IpAddr};

use flannel_backend_api::Marks;
use flannel_host::{family::Family, networks::overlap};
use flannel_netlink::{
    AddressKey, FdbKey, MAIN_TABLE, NeighbourKey, Route, RouteKey, RouteScope, RouteType,
    TunnelPolicy, TunnelPolicyKey, protocol,
};
use ipnet::IpNet;

use super::unreachable;

/// By what our objects of one family are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ownership {
    /// Interface index of the tunnel device, if there is one.
    pub(super) tunnel: Option<u32>,
    /// The flannel network.
    pub(super) network: IpNet,
    /// True if the tunnel device has a route for the whole network, without a gateway.
    pub(super) whole_network: bool,
    /// By what objects of other backends are known.
    pub(super) marks: Marks,
}

impl Ownership {
    /// The family.
    pub(super) fn family(&self) -> Family {
        Family::of(self.network.addr())
    }

    /// Single addresses of the tunnel device, also those of a former network. Whole subnets on it
    /// are those of others, such as of a DHCP client, and link-local addresses the kernel's.
    pub(super) fn address(&self, key: &AddressKey) -> bool {
        let single =
            key.prefix_len == self.family().bits() && Family::of(key.addr) == self.family();
        let local = matches!(key.addr, IpAddr::V6(addr) if addr.is_unicast_link_local());
        self.tunnel == Some(key.ifindex) && single && !local
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
        (self.marks.is_policy)(key, policy, self.network)
    }

    /// Routes into the tunnel device that only flannel makes, also those of a former network.
    /// Inside the network direct routes: those of our protocol, and those stock flannel left,
    /// which equal what a lease asks for. And the unreachable route for the network.
    pub(super) fn route(
        &self,
        key: &RouteKey,
        route: &Route,
        desired: &BTreeMap<RouteKey, Route>,
    ) -> bool {
        if key.table != MAIN_TABLE || key.family() != self.family() {
            return false;
        }
        if self.is_into_tunnel(route) && (route.onlink || self.is_former_network(key, route)) {
            return true;
        }
        if !self.inside(key.dst) {
            return false;
        }
        if unreachable::is_ours(key, route, &[self.network]) {
            return true;
        }
        if key.dst == self.network && route.gateway.is_none() && desired.contains_key(key) {
            return route.oif.is_some() && route.oif == self.tunnel;
        }
        let Some(gateway) = route.gateway else {
            return false;
        };
        if self.is_into_tunnel(route) {
            return false;
        }
        let direct = route.scope == RouteScope::Universe && !route.is_multipath();
        let left_by_stock = || {
            desired
                .get(key)
                .is_some_and(|wanted| wanted.gateway == Some(gateway))
        };
        direct
            && (route.protocol == protocol::FLANNEL
                || (route.protocol == protocol::BOOT && left_by_stock()))
    }

    const fn is_into_tunnel(&self, route: &Route) -> bool {
        matches!((route.oif, self.tunnel), (Some(oif), Some(tunnel)) if oif == tunnel)
    }

    /// Returns true for a route of another whole network into a tunnel device that has such routes.
    fn is_former_network(&self, key: &RouteKey, route: &Route) -> bool {
        let is_written = matches!(route.protocol, protocol::BOOT | protocol::FLANNEL);
        let is_whole = route.gateway.is_none() && route.kind == RouteType::Unicast && is_written;
        self.whole_network && is_whole && !overlap(key.dst, self.network)
    }

    /// Returns true if a route with this key may be our route: inside the network, or into the
    /// tunnel device.
    pub(super) fn may_be_route(&self, key: &RouteKey, route: Option<&Route>) -> bool {
        let into_tunnel = route.is_some_and(|route| self.is_into_tunnel(route) && route.onlink);
        key.table == MAIN_TABLE
            && key.family() == self.family()
            && (self.inside(key.dst) || into_tunnel)
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

    /// Returns true if a destination lies in the network, so that a route to it may be our route.
    pub(super) fn inside(&self, destination: IpNet) -> bool {
        self.network.contains(&destination)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use ipnet::{Ipv4Net, Ipv6Net};

    use super::*;

    const OURS: Ownership = Ownership {
        tunnel: Some(7),
        network: IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 244, 0, 0), 16)),
        whole_network: false,
        marks: flannel_backends::MARKS,
    };
    const OURS6: Ownership = Ownership {
        tunnel: Some(8),
        network: IpNet::V6(Ipv6Net::new_assert(
            Ipv6Addr::new(0xfd00, 0x10, 0x244, 0, 0, 0, 0, 0),
            48,
        )),
        whole_network: false,
        marks: flannel_backends::MARKS,
    };

    fn key(dst: &str) -> RouteKey {
        RouteKey::main(dst.parse().expect("a prefix"))
    }

    fn owns(dst: &str, route: &Route, desired: &[(RouteKey, Route)]) -> bool {
        OURS.route(&key(dst), route, &desired.iter().cloned().collect())
    }

    #[test]
    fn tunnel_routes_are_ours_whatever_their_protocol_and_network() {
        let gateway = "10.244.2.0".parse().expect("an address");
        for protocol in [protocol::BOOT, protocol::FLANNEL, 4] {
            assert!(owns(
                "10.244.2.0/24",
                &Route::onlink(gateway, 7, protocol),
                &[]
            ));
        }
        assert!(
            !owns(
                "10.244.2.0/24",
                &Route::via(gateway, Some(7), protocol::BOOT),
                &[]
            ),
            "not onlink"
        );
        let former = "10.9.2.0".parse().expect("an address");
        assert!(
            owns(
                "10.9.2.0/24",
                &Route::onlink(former, 7, protocol::BOOT),
                &[]
            ),
            "of a former network"
        );
        assert!(
            !owns(
                "10.9.2.0/24",
                &Route::onlink(former, 8, protocol::BOOT),
                &[]
            ),
            "into another device"
        );
        assert!(
            !owns(
                "0.0.0.0/0",
                &Route::via(former, Some(7), protocol::BOOT),
                &[]
            ),
            "of a DHCP client"
        );
    }

    #[test]
    fn the_route_of_a_former_network_into_a_device_for_whole_networks_is_ours() {
        let ours = Ownership {
            whole_network: true,
            ..OURS
        };
        let owns = |ours: &Ownership, dst: &str, protocol| {
            ours.route(
                &key(dst),
                &Route::on_device(Family::V4, 7, protocol),
                &BTreeMap::new(),
            )
        };
        assert!(owns(&ours, "10.9.0.0/16", protocol::BOOT));
        assert!(!owns(&ours, "10.9.0.0/16", 2), "the kernel's own");
        assert!(
            !owns(&OURS, "169.254.0.0/16", protocol::BOOT),
            "a device with routes to peers"
        );
    }

    #[test]
    fn direct_routes_are_ours_by_protocol_or_by_lease() {
        let peer = "192.168.1.2".parse().expect("an address");
        let ours = Route::via(peer, Some(2), protocol::FLANNEL);
        let stocks = Route::via(peer, Some(2), protocol::BOOT);
        assert!(owns("10.244.2.0/24", &ours, &[]));
        assert!(
            !owns("10.244.2.0/24", &stocks, &[]),
            "an administrator's, as far as we can tell"
        );
        assert!(owns(
            "10.244.2.0/24",
            &stocks,
            &[(key("10.244.2.0/24"), ours.clone())]
        ));
        let other = Route::via(
            "192.168.1.9".parse().expect("an address"),
            Some(2),
            protocol::BOOT,
        );
        assert!(!owns(
            "10.244.2.0/24",
            &other,
            &[(key("10.244.2.0/24"), ours)]
        ));
    }

    #[test]
    fn routes_through_an_ipip_device_are_ours() {
        let peer = "192.168.1.2".parse().expect("an address");
        for protocol in [protocol::FLANNEL, protocol::BOOT] {
            let route = Route::onlink(peer, 7, protocol);
            assert!(owns("10.244.2.0/24", &route, &[]) && owns("10.9.2.0/24", &route, &[]));
        }
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
        assert!(
            !owns("10.244.0.0/16", &unreachable(protocol::BOOT), &[]),
            "an administrator's"
        );
        assert!(
            !owns("10.244.2.0/24", &unreachable(protocol::FLANNEL), &[]),
            "a part of the network"
        );
    }

    #[test]
    fn each_family_knows_its_own() {
        let address = |ifindex, addr: &str, prefix_len| AddressKey {
            ifindex,
            addr: addr.parse().expect("an address"),
            prefix_len,
        };
        assert!(OURS6.address(&address(8, "fd00:10:244:1::", 128)));
        assert!(
            !OURS6.address(&address(8, "fe80::1", 64)),
            "the kernel's own"
        );
        assert!(
            !OURS6.address(&address(8, "fe80::1", 128)),
            "a link-local one"
        );
        assert!(!OURS6.address(&address(8, "10.244.1.0", 32)));
        let route = |dst: &str, gateway: &str| {
            let gateway = gateway.parse().expect("an address");
            OURS6.route(
                &key(dst),
                &Route::onlink(gateway, 8, protocol::BOOT),
                &BTreeMap::new(),
            )
        };
        assert!(route("fd00:10:244:2::/64", "fd00:10:244:2::"));
        assert!(route("fd00:9:2::/64", "fd00:9:2::"), "of a former network");
        assert!(!route("10.244.2.0/24", "10.244.2.0"));
    }

    #[test]
    fn without_a_tunnel_only_direct_routes_are_ours() {
        let none = Ownership {
            tunnel: None,
            ..OURS
        };
        let gateway = "10.244.2.0".parse().expect("an address");
        let owns = |route: Route| none.route(&key("10.244.2.0/24"), &route, &BTreeMap::new());
        assert!(!owns(Route::onlink(gateway, 7, protocol::BOOT)));
        assert!(!owns(Route::via(gateway, None, protocol::BOOT)));
        assert!(owns(Route::via(
            "192.168.1.2".parse().expect("an address"),
            Some(2),
            protocol::FLANNEL
        )));
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
        assert_eq!(
            of("10.244.2.0/24", &network),
            None,
            "the bridge's own route"
        );
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
        assert!(
            OURS.address(&address(7, "10.9.1.0", 32)),
            "of a former network"
        );
        assert!(
            !OURS.address(&address(7, "192.168.1.1", 24)),
            "of a DHCP client"
        );
        assert!(!OURS.address(&address(7, "fe80::1", 64)));
    }
}
