//! How a fresh process knows which kernel objects are ours. Pure; the table is in ARCHITECTURE.md.
//!
//! Nothing else is ever changed or removed, whoever made it.

use std::collections::BTreeMap;

use ipnet::{IpNet, Ipv4Net};

use crate::netlink::{AddressKey, FdbKey, MAIN_TABLE, NeighbourKey, Route, RouteKey, RouteScope, protocol};

/// By what our objects are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ownership {
    /// Interface index of the tunnel device.
    pub(super) tunnel: u32,
    /// The flannel network.
    pub(super) network: Ipv4Net,
}

impl Ownership {
    /// Addresses of the tunnel device, inside the network: there may be others, which an operator added.
    pub(super) fn address(&self, key: &AddressKey) -> bool {
        key.ifindex == self.tunnel && key.prefix_len == 32 && self.network.contains(&to_v4(key.addr))
    }

    /// Permanent neighbours on the tunnel device.
    pub(super) fn neighbour(&self, key: &NeighbourKey) -> bool {
        key.ifindex == self.tunnel && key.addr.is_ipv4()
    }

    /// Permanent FDB entries on the tunnel device.
    pub(super) fn fdb(&self, key: &FdbKey) -> bool {
        key.ifindex == self.tunnel
    }

    /// Routes into the tunnel device with a gateway inside the network, and direct routes: those of our protocol, and
    /// those stock flannel left, which equal what a lease asks for.
    pub(super) fn route(&self, key: &RouteKey, route: &Route, desired: &BTreeMap<RouteKey, Route>) -> bool {
        if key.table != MAIN_TABLE || !self.inside(key.dst) {
            return false;
        }
        let Some(gateway) = route.gateway else { return false };
        if route.oif == Some(self.tunnel) {
            return route.onlink && self.network.contains(&to_v4(gateway));
        }
        let direct = route.scope == RouteScope::Universe && !route.multipath;
        let left_by_stock = || desired.get(key).is_some_and(|wanted| wanted.gateway == Some(gateway));
        direct && (route.protocol == protocol::FLANNEL || (route.protocol == protocol::BOOT && left_by_stock()))
    }

    /// Whether a destination lies in the network, so that a route to it may be one of ours.
    pub(super) fn inside(&self, destination: IpNet) -> bool {
        match destination {
            IpNet::V4(destination) => self.network.contains(&destination),
            IpNet::V6(_) => false,
        }
    }
}

/// IPv6 addresses are in no IPv4 network; the unspecified address stands for them.
fn to_v4(addr: std::net::IpAddr) -> std::net::Ipv4Addr {
    match addr {
        std::net::IpAddr::V4(addr) => addr,
        std::net::IpAddr::V6(_) => std::net::Ipv4Addr::UNSPECIFIED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Ownership = Ownership { tunnel: 7, network: Ipv4Net::new_assert(NETWORK, 16) };
    const NETWORK: std::net::Ipv4Addr = std::net::Ipv4Addr::new(10, 244, 0, 0);

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
    fn the_pods_own_route_is_not_ours() {
        let bridge = Route { gateway: None, scope: RouteScope::Link, ..Route::via(NETWORK.into(), Some(9), 2) };
        assert!(!owns("10.244.1.0/24", &bridge, &[]));
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
