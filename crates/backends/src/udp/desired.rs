//! The udp backend: one route for the whole pod network into a TUN device, whose process sends each
//! packet to the node that has its destination, as a UDP datagram.

use std::net::IpAddr;

use flannel_backend_api::{
    Backend, CarriedExit, CarriedWay, Desired, EchoAddress, Node, PeerWay, ProgramSet,
    TunnelDevice, TunnelPeer, TunnelUnderlay, Way, network_config, routed_entry,
    underlay::Underlay,
};
use flannel_common::abi::node::FamilyConfig;
use flannel_host::family::Family;
use flannel_netlink::{AddressKey, Route, RouteKey, protocol};
use flannel_store::{Peer, config::UdpConfig};

use super::device::UdpSpec;

/// The way by the process.
pub const WAY: CarriedWay = CarriedWay {
    name: "udp",
    exit: CarriedExit::TunnelDevice,
    echo: EchoAddress::Subnet,
};

/// The device.
pub const DEVICE: &str = "flannel0";
/// Headers of IPv4 and UDP.
const OVERHEAD: u32 = 28;

/// The backend, with the settings of the network configuration.
#[derive(Clone, Copy, Debug)]
pub struct Udp(pub UdpConfig);

impl Udp {
    fn spec(self, lower: &TunnelUnderlay) -> Option<UdpSpec> {
        // The configuration is refused with IPv6.
        let IpAddr::V4(source) = lower.source else {
            return None;
        };
        Some(UdpSpec {
            name: DEVICE.to_owned(),
            source,
            port: self.0.port,
            mtu: self.mtu(Family::V4, lower.mtu),
        })
    }
}

impl Backend for Udp {
    fn mtu(&self, _family: Family, external_mtu: u32) -> u32 {
        self.0
            .mtu
            .map_or(external_mtu, u32::from)
            .saturating_sub(OVERHEAD)
    }

    fn device(&self, lower: &TunnelUnderlay) -> Option<Box<dyn TunnelDevice>> {
        Some(Box::new(self.spec(lower)?))
    }

    fn way(&self, _node: &Node, _underlay: &Underlay, _peer: &Peer) -> Way {
        Way::Carried(&WAY)
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
        let route = Route::on_device(node.network.family(), tunnel, protocol::BOOT);
        desired
            .routes
            .insert(RouteKey::main(node.network.prefix), route);
        for PeerWay { peer, .. } in peers {
            if peer.subnet.addr().is_ipv4() && peer.public_ip.is_ipv4() {
                let endpoint = (peer.public_ip, self.0.port).into();
                desired.tunnel_peers.insert(
                    peer.subnet,
                    TunnelPeer {
                        endpoint,
                        key: None,
                    },
                );
                desired.peers.extend(routed_entry(node, peer, tunnel));
            }
        }
        desired
    }

    fn routes_whole_network(&self) -> bool {
        true
    }

    fn node_config(&self, node: &Node) -> Option<FamilyConfig> {
        network_config(node)
    }

    fn programs(&self) -> Result<ProgramSet, &'static str> {
        Ok(ProgramSet::L3Tunnel { and_link: false })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use flannel_common::{abi::entry_state::EntryState, packet::addr::Mac};

    use ipnet::IpNet;

    use super::*;
    use flannel_backend_api::{PeerValue, PodNetwork};

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    #[test]
    fn pods_get_what_the_datagram_leaves() {
        let lower = |source: &str| TunnelUnderlay {
            external: 2,
            mtu: 1500,
            source: source.parse().expect("an address"),
            mac: Mac::default(),
        };
        let spec = |mtu| Udp(UdpConfig { port: 8285, mtu }).spec(&lower("192.0.2.1"));
        let expected = |mtu| {
            let source = Ipv4Addr::new(192, 0, 2, 1);
            Some(UdpSpec {
                name: "flannel0".to_owned(),
                source,
                port: 8285,
                mtu,
            })
        };
        assert_eq!(
            (spec(None), spec(Some(1400))),
            (expected(1472), expected(1372))
        );
        assert_eq!(
            Udp(UdpConfig {
                port: 8285,
                mtu: None
            })
            .spec(&lower("2001:db8::1")),
            None
        );
    }

    #[test]
    fn peers_are_rows_of_the_process_behind_one_route() {
        let backend = Udp(UdpConfig {
            port: 8285,
            mtu: None,
        });
        let node = Node {
            network: PodNetwork {
                prefix: net("10.244.0.0/16"),
                subnet_len: 24,
            },
            subnet: net("10.244.1.0/24"),
            source: "192.0.2.1".parse().expect("an address"),
            external: 2,
            tunnel: Some((7, Mac::default())),
            port_range: (32768, 60999),
        };
        let peer = Peer {
            subnet: net("10.244.9.0/24"),
            public_ip: "192.0.2.9".parse().expect("an address"),
            end: None,
            key: "10.244.9.0-24".into(),
        };
        let way = backend.way(&node, &Underlay::new(None), &peer);
        let address = AddressKey {
            ifindex: 7,
            addr: node.subnet.network(),
            prefix_len: 32,
        };
        let route = (
            RouteKey::main(net("10.244.0.0/16")),
            Route::on_device(Family::V4, 7, protocol::BOOT),
        );
        let value = PeerValue {
            flags: EntryState::DIRECT,
            vtep: peer.public_ip.into(),
            oif: 7,
            ..PeerValue::default()
        };
        let behind = TunnelPeer {
            endpoint: "192.0.2.9:8285".parse().expect("an endpoint"),
            key: None,
        };
        let expected = Desired {
            addresses: [address].into(),
            routes: [route].into(),
            peers: [(9, value)].into(),
            tunnel_peers: [(net("10.244.9.0/24"), behind)].into(),
            ..Desired::default()
        };
        assert_eq!(backend.desired(&node, &[PeerWay { peer, way }]), expected);
        assert_eq!(
            backend.desired(
                &Node {
                    tunnel: None,
                    ..node
                },
                &[]
            ),
            Desired::default()
        );
    }
}
