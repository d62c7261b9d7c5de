//! The ipip backend: one device, and per peer a route through it to the peer itself; or, with
//! DirectRouting and a peer on our own segment, only a plain route. It supports only IPv4.
//!
//! The device has no peers: a packet goes to the gateway of its route, in an IPv4 header of 20
//! bytes. Routes equal stock flannel's except for their protocol, 191: their gateways are the
//! peers' own addresses, so nothing else distinguishes them from an administrator's.

mod device;

use std::net::IpAddr;

use flannel_backend_api::{
    Backend, CarriedExit, CarriedWay, Desired, EchoAddress, Node, PeerValue, PeerWay, ProgramSet,
    TunnelDevice, TunnelUnderlay, Way, direct_route, network_config, routed_entry,
    underlay::Underlay,
};
use flannel_common::abi::{entry_state::EntryState, node::FamilyConfig};
use flannel_host::family::Family;
use flannel_netlink::{AddressKey, IpipSpec, Route, RouteKey, protocol};
use flannel_store::{Peer, config::IpipConfig};

use self::device::IpipDevice;

/// The way through the ipip device.
pub const WAY: CarriedWay = CarriedWay {
    name: "ipip",
    exit: CarriedExit::TunnelDevice,
    echo: EchoAddress::End,
};

/// The bytes of the outer IPv4 header.
const OVERHEAD: u32 = 20;
/// The device.
pub const DEVICE: &str = "flannel.ipip";

/// The backend, with the settings of the network configuration.
#[derive(Clone, Copy, Debug)]
pub struct Ipip(pub IpipConfig);

impl Ipip {
    fn spec(self, lower: &TunnelUnderlay) -> Option<IpipSpec> {
        let IpAddr::V4(local) = lower.source else {
            return None;
        };
        Some(IpipSpec {
            name: DEVICE.to_owned(),
            mtu: self.mtu(Family::V4, lower.mtu),
            local,
        })
    }
}

impl Backend for Ipip {
    fn mtu(&self, _family: Family, external_mtu: u32) -> u32 {
        external_mtu.saturating_sub(OVERHEAD)
    }

    fn device(&self, lower: &TunnelUnderlay) -> Option<Box<dyn TunnelDevice>> {
        Some(Box::new(IpipDevice(self.spec(lower)?)))
    }

    fn way(&self, _node: &Node, underlay: &Underlay, peer: &Peer) -> Way {
        let neighbour = underlay
            .neighbour_device(peer.public_ip)
            .filter(|_| self.0.direct_routing);
        neighbour.map_or(Way::Carried(&WAY), Way::Direct)
    }

    fn desired(&self, node: &Node, peers: &[PeerWay]) -> Desired {
        let mut desired = Desired::default();
        let Some((tunnel, _)) = node.tunnel else {
            return desired;
        };
        let (addr, prefix_len) = (node.subnet.network(), node.network.family().bits());
        desired.addresses.insert(AddressKey {
            ifindex: tunnel,
            addr,
            prefix_len,
        });
        for PeerWay { peer, way } in peers {
            let (route, entry) = match way {
                Way::Direct(device) => (
                    direct_route(peer, *device),
                    routed_entry(node, peer, *device),
                ),
                _ => (tunnel_route(peer, tunnel), tunnel_entry(node, peer, tunnel)),
            };
            desired.routes.extend([route]);
            desired.peers.extend(entry);
        }
        desired
    }

    fn node_config(&self, node: &Node) -> Option<FamilyConfig> {
        network_config(node)
    }

    fn programs(&self) -> Result<ProgramSet, &'static str> {
        Ok(ProgramSet::L3Tunnel {
            and_link: self.0.direct_routing,
        })
    }
}

/// The route through the device, on which the peer itself is the gateway.
fn tunnel_route(peer: &Peer, tunnel: u32) -> (RouteKey, Route) {
    (
        RouteKey::main(peer.subnet),
        Route::onlink(peer.public_ip, tunnel, protocol::FLANNEL),
    )
}

/// The entry of a peer behind the device. The device takes the peer from the route of a packet. A
/// replayed packet has no route and carries the peer in its tunnel key.
fn tunnel_entry(node: &Node, peer: &Peer, tunnel: u32) -> Option<(u32, PeerValue)> {
    let (index, value) = routed_entry(node, peer, tunnel)?;
    Some((
        index,
        PeerValue {
            flags: value.flags | EntryState::KEYED,
            ..value
        },
    ))
}

#[cfg(test)]
mod tests {
    use flannel_common::packet::addr::Mac;

    use super::*;
    use flannel_backend_api::PodNetwork;

    const BACKEND: Ipip = Ipip(IpipConfig {
        direct_routing: true,
    });

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn node(tunnel: Option<u32>) -> Node {
        Node {
            network: PodNetwork {
                prefix: "10.244.0.0/16".parse().expect("a network"),
                subnet_len: 24,
            },
            subnet: "10.244.1.0/24".parse().expect("a subnet"),
            source: ip("192.0.2.1"),
            external: 2,
            tunnel: tunnel.map(|index| (index, Mac::default())),
            port_range: (32768, 60999),
        }
    }

    fn peer(subnet: &str, public_ip: &str, way: Way) -> PeerWay {
        let peer = Peer {
            subnet: subnet.parse().expect("a subnet"),
            public_ip: ip(public_ip),
            end: None,
            key: subnet.replace('/', "-").into(),
        };
        PeerWay { peer, way }
    }

    #[test]
    fn the_device_takes_an_ipv4_header_from_the_mtu() {
        let lower = |source| TunnelUnderlay {
            external: 2,
            mtu: 1500,
            source,
            mac: Mac::default(),
        };
        let spec = IpipSpec {
            name: DEVICE.to_owned(),
            mtu: 1480,
            local: [192, 0, 2, 1].into(),
        };
        assert_eq!(BACKEND.spec(&lower(ip("192.0.2.1"))), Some(spec));
        assert_eq!(BACKEND.spec(&lower(ip("2001:db8::1"))), None);
        assert_eq!(
            (BACKEND.port(), BACKEND.published(Family::V4, None)),
            (None, None)
        );
    }

    #[test]
    fn a_peer_is_the_gateway_of_its_route_through_the_device_or_to_a_neighbour() {
        let peers = [
            peer("10.244.9.0/24", "192.0.2.9", Way::Carried(&WAY)),
            peer("10.244.8.0/24", "198.51.100.8", Way::Direct(2)),
        ];
        let route =
            |subnet: &str, route| (RouteKey::main(subnet.parse().expect("a subnet")), route);
        let through = route(
            "10.244.9.0/24",
            Route::onlink(ip("192.0.2.9"), 7, protocol::FLANNEL),
        );
        let beside = route(
            "10.244.8.0/24",
            Route::via(ip("198.51.100.8"), Some(2), protocol::FLANNEL),
        );
        let address = AddressKey {
            ifindex: 7,
            addr: ip("10.244.1.0"),
            prefix_len: 32,
        };
        let entry = |vtep: &str, oif, more| PeerValue {
            flags: EntryState::DIRECT | more,
            vtep: ip(vtep).into(),
            oif,
            ..PeerValue::default()
        };
        let expected = Desired {
            addresses: [address].into(),
            routes: [through, beside].into(),
            peers: [
                (9, entry("192.0.2.9", 7, EntryState::KEYED)),
                (8, entry("198.51.100.8", 2, 0)),
            ]
            .into(),
            ..Desired::default()
        };
        assert_eq!(BACKEND.desired(&node(Some(7)), &peers), expected);
        assert_eq!(BACKEND.desired(&node(None), &peers), Desired::default());
    }

    #[test]
    fn only_with_direct_routing_is_a_neighbour_routed_to() {
        let peer = peer("10.244.9.0/24", "192.0.2.9", Way::Carried(&WAY)).peer;
        let underlay = Underlay::new(None);
        for direct_routing in [false, true] {
            let way = Ipip(IpipConfig { direct_routing }).way(&node(Some(7)), &underlay, &peer);
            assert_eq!(way, Way::Carried(&WAY), "of which nothing is known");
        }
    }
}
