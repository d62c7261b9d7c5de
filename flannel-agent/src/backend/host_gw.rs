//! The host-gw backend: per peer a route to the peer itself, on the external interface. No device, no tunnel: packets
//! cross the link as they are, so a peer has to be on it.
//!
//! Routes equal stock flannel's but for their protocol, 191: nothing else tells them from an administrator's.

use super::{Backend, Desired, Node, PeerWay, Unfit, Way, direct_route};
use crate::{family::Family, iface::End, subnet::Peer, underlay::Underlay};

/// The backend.
#[derive(Clone, Copy, Debug)]
pub struct HostGw;

impl Backend for HostGw {
    fn mtu(&self, _family: Family, external_mtu: u32) -> u32 {
        external_mtu
    }

    fn accept(&self, end: &End) -> Result<(), Unfit> {
        let End { addr, public, .. } = *end;
        if public == addr { Ok(()) } else { Err(Unfit::BehindNat { public, addr }) }
    }

    fn way(&self, node: &Node, underlay: &Underlay, peer: &Peer) -> Way {
        let device = underlay.neighbour_device(peer.public_ip).filter(|device| *device == node.external);
        device.map_or(Way::NotOnLink, Way::Direct)
    }

    fn desired(&self, _node: &Node, peers: &[PeerWay]) -> Desired {
        let routes = peers.iter().filter_map(|PeerWay { peer, way }| match way {
            Way::Direct(device) => Some(direct_route(peer, *device)),
            Way::Tunnel(_) | Way::NotOnLink => None,
        });
        Desired { routes: routes.collect(), ..Desired::default() }
    }

    fn programs(&self) -> Result<u32, &'static str> {
        Err("the backend host-gw has no tunnel: its packets take the kernel's routes in every mode")
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::{
        backend::PodNetwork,
        netlink::{Route, RouteKey, protocol},
    };

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn end(addr: &str, public: &str) -> End {
        End { addr: ip(addr), public: ip(public), source: ip(addr) }
    }

    #[test]
    fn a_peer_on_the_link_has_a_route_and_another_has_nothing() {
        let node = Node {
            network: PodNetwork { prefix: "fd00:10:244::/48".parse().expect("a network"), subnet_len: 64 },
            subnet: "fd00:10:244:1::/64".parse().expect("a subnet"),
            source: ip("2001:db8::1"),
            external: 2,
            tunnel: None,
            port_range: (32768, 60999),
        };
        let way = |subnet: &str, way| {
            let peer = Peer {
                subnet: subnet.parse().expect("a subnet"),
                public_ip: ip("2001:db8::9"),
                vtep: None,
                key: subnet.to_owned(),
            };
            PeerWay { peer, way }
        };
        let ways = [way("fd00:10:244:9::/64", Way::Direct(2)), way("fd00:10:244:a::/64", Way::NotOnLink)];
        let desired = HostGw.desired(&node, &ways);
        let key = RouteKey::main("fd00:10:244:9::/64".parse().expect("a subnet"));
        let routes = [(key, Route::via(ip("2001:db8::9"), Some(2), protocol::FLANNEL))];
        assert_eq!(desired, Desired { routes: routes.into(), ..Desired::default() });
    }

    #[test]
    fn a_nat_in_front_of_the_node_is_refused() {
        assert_eq!(HostGw.accept(&end("10.0.0.1", "10.0.0.1")), Ok(()));
        for (addr, public) in [("10.0.0.1", "203.0.113.7"), ("fd00::1", "2001:db8::7")] {
            let refused = Unfit::BehindNat { public: ip(public), addr: ip(addr) };
            assert_eq!(HostGw.accept(&end(addr, public)), Err(refused));
        }
    }
}
