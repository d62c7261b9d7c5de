//! The host-gw backend: per peer a route to the peer itself, on the external interface. No device,
//! no tunnel: packets cross the link as they are, so a peer has to be on it.
//!
//! Routes equal stock flannel's except for their protocol, 191, which is all that distinguishes
//! them from an administrator's. The programs know the peers that are on the link, for mode `fast`;
//! there is nothing else for them to do.

use flannel_backend_api::{
    Backend, BackendError, Desired, Node, PeerWay, ProgramSet, Way, direct_entry, direct_route,
    network_config, require_own_address, underlay::Underlay,
};
use flannel_common::{abi::node::FamilyConfig, packet::addr::Mac};
use flannel_host::family::Family;
use flannel_iface::End;
use flannel_store::Peer;

/// The backend.
#[derive(Clone, Copy, Debug)]
pub struct HostGw;

impl Backend for HostGw {
    fn mtu(&self, _family: Family, external_mtu: u32) -> u32 {
        external_mtu
    }

    fn accept(&self, end: &End) -> Result<(), BackendError> {
        require_own_address("host-gw", end)
    }

    fn way(&self, node: &Node, underlay: &Underlay, peer: &Peer) -> Way {
        let device = underlay
            .neighbour_device(peer.public_ip)
            .filter(|device| *device == node.external);
        device.map_or(Way::NotOnLink, Way::Direct)
    }

    fn desired(&self, node: &Node, peers: &[PeerWay]) -> Desired {
        let mut desired = Desired::default();
        for PeerWay { peer, way } in peers {
            let Way::Direct(device) = *way else { continue };
            desired.routes.extend([direct_route(peer, device)]);
            let entry = direct_entry(peer.public_ip.into(), Mac::default(), device);
            desired.peers.extend(
                node.network
                    .index_of(peer.subnet)
                    .map(|index| (index, entry)),
            );
        }
        desired
    }

    fn node_config(&self, node: &Node) -> Option<FamilyConfig> {
        network_config(node)
    }

    fn programs(&self) -> Result<ProgramSet, &'static str> {
        Ok(ProgramSet::Link)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use flannel_common::{abi::entry_state::EntryState, packet::addr::Addr};

    use super::*;
    use flannel_backend_api::{PeerValue, PodNetwork};
    use flannel_netlink::{Route, RouteKey, protocol};

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn end(addr: &str, public: &str) -> End {
        End {
            addr: ip(addr),
            public: ip(public),
            source: ip(addr),
        }
    }

    /// A node of this network, and what it wants for these peers.
    fn desired(network: &str, subnet_len: u8, peers: &[(&str, Way)]) -> (Node, Desired) {
        let node = Node {
            network: PodNetwork {
                prefix: network.parse().expect("a network"),
                subnet_len,
            },
            subnet: "fd00:10:244:1::/64".parse().expect("a subnet"),
            source: ip("2001:db8::1"),
            external: 2,
            tunnel: None,
            port_range: (32768, 60999),
        };
        let way = |(subnet, way): &(&str, Way)| {
            let peer = Peer {
                subnet: subnet.parse().expect("a subnet"),
                public_ip: ip("2001:db8::9"),
                end: None,
                key: (*subnet).into(),
            };
            PeerWay {
                peer,
                way: way.clone(),
            }
        };
        let ways: Vec<_> = peers.iter().map(way).collect();
        let desired = HostGw.desired(&node, &ways);
        (node, desired)
    }

    #[test]
    fn a_peer_on_the_link_has_a_route_and_an_entry_and_another_has_nothing() {
        let peers = [
            ("fd00:10:244:9::/64", Way::Direct(2)),
            ("fd00:10:244:a::/64", Way::NotOnLink),
        ];
        let (_, desired) = desired("fd00:10:244::/48", 64, &peers);
        let key = RouteKey::main("fd00:10:244:9::/64".parse().expect("a subnet"));
        let routes = [(
            key,
            Route::via(ip("2001:db8::9"), Some(2), protocol::FLANNEL),
        )];
        let peer = Addr::from(ip("2001:db8::9"));
        let value = PeerValue {
            flags: EntryState::DIRECT,
            vtep: peer,
            next_hop: peer,
            oif: 2,
            ..PeerValue::default()
        };
        let peers = [(9, value)];
        assert_eq!(
            desired,
            Desired {
                routes: routes.into(),
                peers: peers.into(),
                ..Desired::default()
            }
        );
    }

    /// No packet is a tunnel's then, and no tunnel packet a stranger's.
    #[test]
    fn the_programs_know_a_network_without_a_tunnel() {
        let (node, _) = desired("fd00:10:244::/48", 64, &[]);
        let config = HostGw.node_config(&node).expect("a configuration");
        assert!(!config.has_tunnel());
        assert_eq!((config.tunnel_ifindex, config.underlay_ifindex), (0, 2));
        assert_eq!((config.subnet_shift, config.subnet_count), (64, 1 << 16));
        assert_eq!(
            (config.network, config.vtep),
            (ip("fd00:10:244::").into(), ip("2001:db8::1").into())
        );
    }

    #[test]
    fn peers_without_a_number_have_routes_alone() {
        for (network, subnet_len, subnet) in [
            ("fd00:10:244::/48", 64, "fd00:10:244:8::/63"),
            ("fd00:10::/32", 64, "fd00:10:244:9::/64"),
        ] {
            let (node, desired) = desired(network, subnet_len, &[(subnet, Way::Direct(2))]);
            assert_eq!(
                (desired.routes.len(), desired.peers.len()),
                (1, 0),
                "{subnet}"
            );
            assert_eq!(
                HostGw.node_config(&node).is_some(),
                node.network.has_peer_map(),
                "{network}"
            );
        }
    }

    #[test]
    fn a_nat_in_front_of_the_node_is_refused() {
        assert_eq!(HostGw.accept(&end("10.0.0.1", "10.0.0.1")), Ok(()));
        for (addr, public) in [("10.0.0.1", "203.0.113.7"), ("fd00::1", "2001:db8::7")] {
            let refused = BackendError::BehindNat {
                backend: "host-gw",
                public: ip(public),
                addr: ip(addr),
            };
            assert_eq!(HostGw.accept(&end(addr, public)), Err(refused));
        }
    }
}
