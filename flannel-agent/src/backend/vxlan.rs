//! The vxlan backend: per peer a neighbour, an FDB entry, a peer map entry and a route into the tunnel device; or,
//! with DirectRouting and a peer on our own segment, a plain route alone.
//!
//! The kernel objects equal stock flannel's in destination, gateway, device and flags. Tunnel routes carry stock's
//! protocol too; direct ones carry [`protocol::FLANNEL`], because nothing else tells them from an administrator's.

use std::{collections::BTreeSet, net::Ipv4Addr};

use flannel_common::{
    addr::{Addr, Mac},
    node::{self, NodeConfig},
    peer::{PeerEntry, VtepEntry, Word, subnet_index_v4},
};
use ipnet::{IpNet, Ipv4Net};

use crate::{
    backend::{Desired, PeerValue},
    config::{FamilyConfig, VxlanConfig},
    netlink::{AddressKey, FdbKey, NeighbourKey, Route, RouteKey, protocol},
    subnet::{Peer, Vtep},
    underlay::{NotPlain, Path, Underlay},
};

/// What encapsulation over IPv4 takes from the MTU.
const OVERHEAD: u32 = 50;
const _: () = assert!(OVERHEAD as usize == flannel_common::packet::OVERHEAD_V4);

/// The device's MTU under an external interface of this MTU.
pub fn device_mtu(config: &VxlanConfig, external_mtu: u32) -> u32 {
    config.mtu.map_or(external_mtu, u32::from).saturating_sub(OVERHEAD)
}

/// The tunnel device's name.
pub fn device_name(config: &VxlanConfig) -> String {
    format!("flannel.{}", config.vni)
}

/// The node, as far as its peers' entries depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// The backend's settings.
    pub config: &'a VxlanConfig,
    /// The pod network.
    pub family: &'a FamilyConfig<Ipv4Net>,
    /// Our own subnet.
    pub subnet: Ipv4Net,
    /// Our outer source address.
    pub vtep: Ipv4Addr,
    /// Interface index of the tunnel device.
    pub tunnel: u32,
    /// Its Ethernet address.
    pub mac: Mac,
    /// Interface index of the external interface.
    pub external: u32,
    /// `net.ipv4.ip_local_port_range`.
    pub port_range: (u16, u16),
}

/// How packets reach one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// By a route to the peer itself, on this interface.
    Direct(u32),
    /// Through the tunnel; by the programs if the path is plain.
    Tunnel(Result<Path, NotPlain>),
}

/// A peer and how packets reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerWay {
    /// The peer.
    pub peer: Peer,
    /// How.
    pub way: Way,
}

/// The way to a peer.
pub fn way(config: &VxlanConfig, underlay: &Underlay, peer: &Peer) -> Way {
    match underlay.neighbour_device(peer.public_ip).filter(|_| config.direct_routing) {
        Some(device) => Way::Direct(device),
        None => Way::Tunnel(underlay.path(peer.public_ip)),
    }
}

/// Everything the peers need, each by its way.
pub fn desired(node: &Node<'_>, peers: &[PeerWay]) -> Desired {
    let mut desired = Desired {
        addresses: BTreeSet::from([AddressKey {
            ifindex: node.tunnel,
            addr: node.subnet.network().into(),
            prefix_len: 32,
        }]),
        ..Desired::default()
    };
    let family = family_config(node);
    for PeerWay { peer, way } in peers {
        add_kernel_path(&mut desired, node, peer, way);
        add_map_entries(&mut desired, &family, peer, way);
    }
    desired
}

fn add_kernel_path(desired: &mut Desired, node: &Node<'_>, peer: &Peer, way: &Way) {
    let key = RouteKey::main(peer.subnet);
    if let Way::Direct(device) = way {
        desired.routes.insert(key, Route::via(peer.public_ip, Some(*device), protocol::FLANNEL));
        return;
    }
    let Some(Vtep { mac, .. }) = peer.vtep else { return };
    let gateway = peer.subnet.network();
    desired.neighbours.insert(NeighbourKey { ifindex: node.tunnel, addr: gateway }, mac);
    desired.fdb.insert(FdbKey { ifindex: node.tunnel, mac }, peer.public_ip);
    desired.routes.insert(key, Route::onlink(gateway, node.tunnel, protocol::BOOT));
}

fn add_map_entries(desired: &mut Desired, family: &node::FamilyConfig, peer: &Peer, way: &Way) {
    let (Some(index), Some(Vtep { mac, .. })) = (index_of(family, peer.subnet), peer.vtep) else { return };
    let vtep = Addr::from(peer.public_ip);
    let entry = PeerEntry { vtep, mac, ..PeerEntry::default() };
    let value = match way {
        Way::Direct(device) => {
            PeerValue { flags: Word::DIRECT, entry: PeerEntry { next_hop: vtep, oif: *device, ..entry } }
        }
        Way::Tunnel(Ok(path)) => PeerValue {
            flags: Word::PLAIN,
            entry: PeerEntry { next_hop: path.next_hop.into(), oif: path.oif, mtu: path.mtu, ..entry },
        },
        Way::Tunnel(Err(_)) => PeerValue { flags: 0, entry },
    };
    desired.peers.insert(index, value);
    desired.vteps.insert(vtep, VtepEntry { index, reserved: 0 });
}

/// The subnet number of a lease; none for one of another size than the network's, which the kernel path serves alone.
pub fn index_of(family: &node::FamilyConfig, subnet: IpNet) -> Option<u32> {
    match subnet {
        IpNet::V4(subnet) if 32 - u32::from(subnet.prefix_len()) == family.subnet_shift => {
            subnet_index_v4(family, subnet.network().octets())
        }
        _ => None,
    }
}

/// How many subnets the network holds.
pub fn subnet_count(family: &FamilyConfig<Ipv4Net>) -> u64 {
    1_u64 << (family.subnet_len - family.network.prefix_len())
}

/// What the programs know of this node.
pub fn node_config(node: &Node<'_>) -> NodeConfig {
    NodeConfig { v4: family_config(node), ..NodeConfig::default() }
}

fn family_config(node: &Node<'_>) -> node::FamilyConfig {
    node::FamilyConfig {
        network: node.family.network.network().into(),
        vtep: node.vtep.into(),
        vtep_mac: node.mac,
        port: node.config.port.to_be_bytes(),
        vni: node.config.vni,
        subnet_shift: 32 - u32::from(node.family.subnet_len),
        subnet_count: u32::try_from(subnet_count(node.family)).unwrap_or(u32::MAX),
        tunnel_ifindex: node.tunnel,
        underlay_ifindex: node.external,
        source_port_min: node.port_range.0,
        source_port_max: node.port_range.1,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::netlink::RouteScope;

    const TUNNEL: u32 = 7;
    const EXTERNAL: u32 = 2;
    const MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);

    fn config() -> VxlanConfig {
        VxlanConfig { vni: 1, port: 8472, mtu: None, gbp: false, learning: false, direct_routing: true }
    }

    fn family() -> FamilyConfig<Ipv4Net> {
        FamilyConfig {
            network: "10.244.0.0/16".parse().expect("a network"),
            subnet_len: 24,
            subnet_min: Ipv4Addr::new(10, 244, 1, 0),
            subnet_max: Ipv4Addr::new(10, 244, 255, 0),
        }
    }

    fn desired_for(subnet: &str, way: Way) -> Desired {
        let (config, family) = (config(), family());
        let node = Node {
            config: &config,
            family: &family,
            subnet: "10.244.1.0/24".parse().expect("a subnet"),
            vtep: Ipv4Addr::new(192, 168, 1, 1),
            tunnel: TUNNEL,
            mac: Mac([2, 0, 0, 0, 0, 1]),
            external: EXTERNAL,
            port_range: (32768, 60999),
        };
        let peer = Peer {
            subnet: subnet.parse().expect("a subnet"),
            public_ip: "192.168.1.9".parse().expect("an address"),
            vtep: Some(Vtep { mac: MAC, zero_checksum_v6: false }),
            key: subnet.replace('/', "-"),
        };
        desired(&node, &[PeerWay { peer, way }])
    }

    fn plain() -> Way {
        Way::Tunnel(Ok(Path { oif: EXTERNAL, next_hop: "192.168.1.254".parse().expect("an address"), mtu: 1500 }))
    }

    #[test]
    fn the_node_has_its_subnets_base_address() {
        let key = AddressKey { ifindex: TUNNEL, addr: "10.244.1.0".parse().expect("an address"), prefix_len: 32 };
        assert_eq!(desired_for("10.244.9.0/24", plain()).addresses, BTreeSet::from([key]));
    }

    #[test]
    fn a_tunnel_peer_has_all_four_entries_in_stocks_shape() {
        let desired = desired_for("10.244.9.0/24", plain());
        let base = "10.244.9.0".parse().expect("an address");
        let public: IpAddr = "192.168.1.9".parse().expect("an address");
        assert_eq!(desired.neighbours.get(&NeighbourKey { ifindex: TUNNEL, addr: base }), Some(&MAC));
        assert_eq!(desired.fdb.get(&FdbKey { ifindex: TUNNEL, mac: MAC }), Some(&public));
        let route = desired.routes.get(&RouteKey::main("10.244.9.0/24".parse().expect("a subnet"))).expect("a route");
        assert_eq!((route.gateway, route.oif, route.onlink), (Some(base), Some(TUNNEL), true));
        assert_eq!((route.protocol, route.scope), (protocol::BOOT, RouteScope::Universe));
        let value = desired.peers.get(&9).expect("an entry");
        assert_eq!((value.flags, value.entry.oif, value.entry.mtu), (Word::PLAIN, EXTERNAL, 1500));
        assert_eq!(value.entry.next_hop, Addr::from(Ipv4Addr::new(192, 168, 1, 254)));
        assert_eq!(desired.vteps.get(&Addr::from(public)).map(|vtep| vtep.index), Some(9));
    }

    #[test]
    fn a_direct_peer_has_a_route_alone_and_is_never_encapsulated() {
        let desired = desired_for("10.244.9.0/24", Way::Direct(EXTERNAL));
        assert!(desired.neighbours.is_empty() && desired.fdb.is_empty());
        let route = desired.routes.values().next().expect("a route");
        assert_eq!((route.gateway, route.oif), ("192.168.1.9".parse().ok(), Some(EXTERNAL)));
        assert_eq!((route.protocol, route.onlink), (protocol::FLANNEL, false));
        assert_eq!(desired.peers.get(&9).map(|value| value.flags), Some(Word::DIRECT));
    }

    #[test]
    fn a_path_that_is_not_plain_leaves_the_kernel_path() {
        let desired = desired_for("10.244.9.0/24", Way::Tunnel(Err(NotPlain::Multipath)));
        assert_eq!((desired.neighbours.len(), desired.fdb.len(), desired.routes.len()), (1, 1, 1));
        assert_eq!(desired.peers.get(&9).map(|value| value.flags), Some(0));
    }

    #[test]
    fn a_lease_of_another_size_is_the_kernels_alone() {
        for subnet in ["10.244.8.0/23", "10.244.9.0/25"] {
            let desired = desired_for(subnet, plain());
            assert_eq!(desired.routes.len(), 1, "{subnet}");
            assert!(desired.peers.is_empty() && desired.vteps.is_empty(), "{subnet}");
        }
    }

    #[test]
    fn the_mtu_is_the_smaller_budget_less_fifty() {
        assert_eq!(device_mtu(&config(), 1500), 1450);
        assert_eq!(device_mtu(&VxlanConfig { mtu: Some(1400), ..config() }, 1500), 1350);
    }
}
