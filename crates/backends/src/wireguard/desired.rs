//! The wireguard backend: per peer an entry in a WireGuard device, and one route for the whole pod
//! network into it.
//!
//! The one route keeps packets to a subnet without a peer from leaving by the default route, where
//! nothing encrypts them: the device drops them.
//!
//! In the mode `separate` each family has its own device. In the other modes there is one device,
//! and both families' subnets of a node are behind one peer.

use flannel_backend_api::{
    Backend, CarriedExit, CarriedWay, Desired, EchoAddress, Node, OwnEnd, PeerWay, ProgramSet,
    TunnelDevice, TunnelPeer, TunnelUnderlay, Way, network_config, routed_entry,
    underlay::Underlay,
};
use flannel_common::abi::node::FamilyConfig;
use flannel_host::family::Family;
use flannel_netlink::{AddressKey, Route, RouteKey, protocol};
use flannel_store::{
    Peer, RawJson, TunnelEnd, WireguardData, WireguardEnd,
    config::{WireguardConfig, WireguardMode},
};

use super::device::WireguardSpec;

/// The way through the WireGuard device.
pub const WAY: CarriedWay = CarriedWay {
    name: "wireguard",
    exit: CarriedExit::TunnelDevice,
    echo: EchoAddress::End,
};

/// The bytes that encryption takes from the MTU: an outer IP header, UDP, and what WireGuard adds.
/// For IPv6, which takes 20 bytes more than IPv4, so that both families have one MTU.
const OVERHEAD: u32 = 80;
/// The devices of IPv4 and of IPv6.
pub const DEVICES: [&str; 2] = ["flannel-wg", "flannel-wg-v6"];

/// The backend, with the settings of the network configuration.
#[derive(Clone, Copy, Debug)]
pub struct Wireguard(pub WireguardConfig);

impl Wireguard {
    /// The device that carries this family, and its port.
    fn end(&self, family: Family) -> (&'static str, u16) {
        match (self.0.mode, family) {
            (WireguardMode::Separate, Family::V6) => (DEVICES[1], self.0.port_v6),
            _ => (DEVICES[0], self.0.port),
        }
    }

    fn spec(&self, lower: &TunnelUnderlay) -> WireguardSpec {
        let family = Family::of(lower.source);
        let (name, port) = self.end(family);
        WireguardSpec {
            name: name.to_owned(),
            port,
            mtu: self.mtu(family, lower.mtu),
            preshared_key: self.0.preshared_key,
            keepalive: self.0.keepalive,
        }
    }
}

impl Backend for Wireguard {
    fn mtu(&self, _family: Family, external_mtu: u32) -> u32 {
        self.0
            .mtu
            .map_or(external_mtu, u32::from)
            .saturating_sub(OVERHEAD)
    }

    fn device(&self, lower: &TunnelUnderlay) -> Option<Box<dyn TunnelDevice>> {
        Some(Box::new(self.spec(lower)))
    }

    fn has_keys(&self) -> bool {
        true
    }

    fn published(&self, family: Family, end: Option<OwnEnd>) -> Option<RawJson> {
        let Some(OwnEnd::Key(public_key)) = end else {
            return None;
        };
        let (_, port) = self.end(family);
        Some(
            WireguardData {
                public_key,
                port: Some(port),
            }
            .to_json(),
        )
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
            if let Some(TunnelEnd::Wireguard(end)) = &peer.end {
                desired.tunnel_peers.insert(peer.subnet, behind(**end));
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

/// The peer behind the device.
const fn behind(end: WireguardEnd) -> TunnelPeer {
    TunnelPeer {
        endpoint: end.endpoint,
        key: Some(end.key),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use flannel_common::{abi::entry_state::EntryState, packet::addr::Mac};
    use flannel_host::wireguard_key::PublicKey;
    use flannel_store::config::{BackendConfig, NetworkConfig};
    use ipnet::IpNet;

    use super::*;
    use flannel_backend_api::{PeerValue, PodNetwork};

    fn backend(settings: &str) -> Wireguard {
        let text =
            format!(r#"{{"Network":"10.244.0.0/16","Backend":{{"Type":"wireguard"{settings}}}}}"#);
        let config = NetworkConfig::parse(&text).expect("a configuration");
        let BackendConfig::Wireguard(config) = config.backend else {
            panic!("another backend")
        };
        Wireguard(config)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    fn device(backend: &Wireguard, source: &str) -> (String, u16, u32) {
        let lower = TunnelUnderlay {
            external: 2,
            mtu: 1500,
            source: ip(source),
            mac: Mac::default(),
        };
        let spec = backend.spec(&lower);
        (spec.name, spec.port, spec.mtu)
    }

    #[test]
    fn the_mode_says_which_device_carries_a_family_and_which_port_is_published() {
        let key = PublicKey([1; 32]);
        let separate = backend("");
        assert_eq!(
            device(&separate, "192.0.2.1"),
            ("flannel-wg".to_owned(), 51820, 1420)
        );
        assert_eq!(
            device(&separate, "2001:db8::1"),
            ("flannel-wg-v6".to_owned(), 51821, 1420)
        );
        let auto = backend(r#","Mode":"auto","MTU":1400"#);
        for source in ["192.0.2.1", "2001:db8::1"] {
            assert_eq!(
                device(&auto, source),
                ("flannel-wg".to_owned(), 51820, 1320)
            );
        }
        let published = |backend: &Wireguard, family| {
            backend
                .published(family, Some(OwnEnd::Key(key)))
                .expect("data")
                .text()
                .to_owned()
        };
        let data = |port: u16| format!(r#"{{"PublicKey":"{key}","Port":{port}}}"#);
        assert_eq!(
            Family::BOTH.map(|family| published(&separate, family)),
            [data(51820), data(51821)]
        );
        assert_eq!(
            Family::BOTH.map(|family| published(&auto, family)),
            [data(51820), data(51820)]
        );
    }

    #[test]
    fn peers_are_entries_of_the_device_behind_one_route() {
        let node = Node {
            network: PodNetwork {
                prefix: net("10.244.0.0/16"),
                subnet_len: 24,
            },
            subnet: net("10.244.1.0/24"),
            source: ip("192.0.2.1"),
            external: 2,
            tunnel: Some((7, Mac::default())),
            port_range: (32768, 60999),
        };
        let end = WireguardEnd {
            key: PublicKey([9; 32]),
            endpoint: "192.0.2.9:51820".parse().expect("an endpoint"),
        };
        let peer = Peer {
            subnet: net("10.244.9.0/24"),
            public_ip: ip("192.0.2.9"),
            end: Some(TunnelEnd::Wireguard(end.into())),
            key: "10.244.9.0-24".into(),
        };
        let way = backend("").way(&node, &Underlay::new(None), &peer);
        let desired = backend("").desired(&node, &[PeerWay { peer, way }]);
        let address = AddressKey {
            ifindex: 7,
            addr: ip("10.244.1.0"),
            prefix_len: 32,
        };
        let route = (
            RouteKey::main(net("10.244.0.0/16")),
            Route::on_device(Family::V4, 7, protocol::BOOT),
        );
        let value = PeerValue {
            flags: EntryState::DIRECT,
            vtep: ip("192.0.2.9").into(),
            oif: 7,
            ..PeerValue::default()
        };
        let expected = Desired {
            addresses: [address].into(),
            routes: [route].into(),
            tunnel_peers: [(net("10.244.9.0/24"), behind(end))].into(),
            peers: [(9, value)].into(),
            ..Desired::default()
        };
        assert_eq!(desired, expected);
        let config = backend("").node_config(&node).expect("a peer map");
        assert_eq!(
            (
                config.tunnel_ifindex,
                config.underlay_ifindex,
                config.has_tunnel()
            ),
            (7, 2, false)
        );
    }
}
