//! The udp backend: one route for the whole pod network into a TUN device, whose process sends each
//! packet to the node that has its destination, as a UDP datagram.

use std::net::IpAddr;

use flannel_common::node::FamilyConfig;
use flannel_host::family::Family;
use flannel_netlink::{AddressKey, Route, RouteKey, protocol};
use flannel_store::{Peer, config::UdpConfig};
use ipnet::IpNet;

use crate::{
    Backend, CarriedExit, CarriedWay, Desired, EchoAddress, Node, PeerWay, ProgramSet, TunnelSpec,
    TunnelUnderlay, UdpSpec, Way,
    desired::{network_config, routed_entry},
    underlay::Underlay,
};

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

impl Backend for Udp {
    fn mtu(&self, _family: Family, external_mtu: u32) -> u32 {
        self.0
            .mtu
            .map_or(external_mtu, u32::from)
            .saturating_sub(OVERHEAD)
    }

    fn device(&self, lower: &TunnelUnderlay) -> Option<TunnelSpec> {
        // The configuration is refused with IPv6.
        let IpAddr::V4(source) = lower.source else {
            return None;
        };
        let mtu = self.mtu(Family::V4, lower.mtu);
        Some(TunnelSpec::Udp(UdpSpec {
            name: DEVICE.to_owned(),
            source,
            port: self.0.port,
            mtu,
        }))
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
            if let (IpNet::V4(subnet), IpAddr::V4(public)) = (peer.subnet, peer.public_ip) {
                desired.udp.insert(subnet, public);
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

    use flannel_common::{addr::Mac, entry_state::EntryState};

    use super::*;
    use crate::{PeerValue, PodNetwork};

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
        let spec = |mtu| Udp(UdpConfig { port: 8285, mtu }).device(&lower("192.0.2.1"));
        let expected = |mtu| {
            let source = Ipv4Addr::new(192, 0, 2, 1);
            Some(TunnelSpec::Udp(UdpSpec {
                name: "flannel0".to_owned(),
                source,
                port: 8285,
                mtu,
            }))
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
            .device(&lower("2001:db8::1")),
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
        let expected = Desired {
            addresses: [address].into(),
            routes: [route].into(),
            peers: [(9, value)].into(),
            udp: [(
                "10.244.9.0/24".parse().expect("a subnet"),
                Ipv4Addr::new(192, 0, 2, 9),
            )]
            .into(),
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
