//! The vxlan backend: per peer a neighbour, an FDB entry, a peer map entry and a route into the tunnel device; or,
//! with DirectRouting and a peer on our own segment, a plain route alone.
//!
//! Each family has a tunnel of its own: IPv4 pods over IPv4, IPv6 pods over IPv6, with one VNI and one port.
//!
//! The kernel objects equal stock flannel's in destination, gateway, device and flags. Tunnel routes carry stock's
//! protocol too; direct ones carry 191, because nothing else tells them from an administrator's.

use flannel_common::{
    addr::Addr,
    node,
    packet::{OVERHEAD_V4, OVERHEAD_V6},
    peer::{PeerEntry, VtepEntry, Word},
};

use super::{Backend, Desired, Lower, Node, PeerValue, PeerWay, Way, direct_route};
use crate::{
    config::VxlanConfig,
    family::Family,
    netlink::{AddressKey, FdbKey, NeighbourKey, Route, RouteKey, VxlanSpec, protocol},
    subnet::{Peer, RawJson, Vtep, VxlanData},
    underlay::{NotPlain, Underlay},
};

/// What encapsulation takes from the MTU: an outer IP header, UDP, VXLAN, and the inner Ethernet header.
const OVERHEAD: (u32, u32) = (50, 70);
const _: () = assert!(OVERHEAD.0 as usize == OVERHEAD_V4 && OVERHEAD.1 as usize == OVERHEAD_V6);

/// The backend, with the settings of the network configuration.
#[derive(Clone, Copy, Debug)]
pub struct Vxlan(pub VxlanConfig);

/// The tunnel device's name.
pub fn device_name(family: Family, vni: u32) -> String {
    match family {
        Family::V4 => format!("flannel.{vni}"),
        Family::V6 => format!("flannel-v6.{vni}"),
    }
}

impl Backend for Vxlan {
    fn mtu(&self, family: Family, external_mtu: u32) -> u32 {
        let overhead = match family {
            Family::V4 => OVERHEAD.0,
            Family::V6 => OVERHEAD.1,
        };
        self.0.mtu.map_or(external_mtu, u32::from).saturating_sub(overhead)
    }

    fn port(&self) -> Option<u16> {
        Some(self.0.port)
    }

    fn device(&self, lower: &Lower) -> Option<VxlanSpec> {
        let family = Family::of(lower.source);
        Some(VxlanSpec {
            name: device_name(family, self.0.vni),
            vni: self.0.vni,
            port: self.0.port,
            mtu: self.mtu(family, lower.mtu),
            mac: lower.mac,
            lower: lower.external,
            local: lower.source,
            learning: self.0.learning,
            gbp: self.0.gbp,
            udp_zero_csum6_rx: family == Family::V6,
        })
    }

    fn published(&self, vtep: Option<Vtep>) -> Option<RawJson> {
        vtep.map(|Vtep { mac, zero_checksum_v6 }| {
            VxlanData { vni: Some(self.0.vni), vtep_mac: mac, zero_checksum_v6 }.to_json()
        })
    }

    fn way(&self, node: &Node, underlay: &Underlay, peer: &Peer) -> Way {
        if let Some(device) = underlay.neighbour_device(peer.public_ip).filter(|_| self.0.direct_routing) {
            return Way::Direct(device);
        }
        Way::Tunnel(underlay.path(peer.public_ip).and_then(|path| match peer.vtep {
            _ if !node.network.has_peer_map() => Err(NotPlain::NoPeerMap { subnets: node.network.subnet_count() }),
            // The programs cannot compute the checksum of what the kernel will cut into segments.
            Some(vtep) if peer.public_ip.is_ipv6() && !vtep.zero_checksum_v6 => Err(NotPlain::WantsChecksum),
            _ => Ok(path),
        }))
    }

    fn desired(&self, node: &Node, peers: &[PeerWay]) -> Desired {
        let mut desired = Desired::default();
        let Some((tunnel, _)) = node.tunnel else { return desired };
        let (addr, prefix_len) = (node.subnet.network(), node.network.family().bits());
        desired.addresses.insert(AddressKey { ifindex: tunnel, addr, prefix_len });
        for PeerWay { peer, way } in peers {
            add_kernel_path(&mut desired, tunnel, peer, way);
            add_map_entries(&mut desired, node, peer, way);
        }
        desired
    }

    fn node_config(&self, node: &Node) -> Option<node::FamilyConfig> {
        let (tunnel_ifindex, vtep_mac) = node.tunnel.filter(|_| node.network.has_peer_map())?;
        Some(node::FamilyConfig {
            network: node.network.prefix.network().into(),
            vtep: node.source.into(),
            vtep_mac,
            port: self.0.port.to_be_bytes(),
            vni: self.0.vni,
            subnet_shift: node.network.host_bits(),
            subnet_count: u32::try_from(node.network.subnet_count()).unwrap_or(u32::MAX),
            tunnel_ifindex,
            underlay_ifindex: node.external,
            source_port_min: node.port_range.0,
            source_port_max: node.port_range.1,
        })
    }

    fn programs(&self) -> Result<u32, &'static str> {
        if self.0.gbp {
            Err("Backend.GBP is on, and the programs do not write group policy ids")
        } else {
            Ok(self.0.vni)
        }
    }
}

fn add_kernel_path(desired: &mut Desired, tunnel: u32, peer: &Peer, way: &Way) {
    if let Way::Direct(device) = way {
        desired.routes.extend([direct_route(peer, *device)]);
        return;
    }
    let Some(Vtep { mac, .. }) = peer.vtep else { return };
    let gateway = peer.subnet.network();
    desired.neighbours.insert(NeighbourKey { ifindex: tunnel, addr: gateway }, mac);
    desired.fdb.insert(FdbKey { ifindex: tunnel, mac }, peer.public_ip);
    desired.routes.insert(RouteKey::main(peer.subnet), Route::onlink(gateway, tunnel, protocol::BOOT));
}

/// A lease of another size than the network's subnets has no number; the kernel path alone serves it.
fn add_map_entries(desired: &mut Desired, node: &Node, peer: &Peer, way: &Way) {
    let (Some(index), Some(Vtep { mac, .. })) = (node.network.index_of(peer.subnet), peer.vtep) else { return };
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
        Way::Tunnel(Err(_)) | Way::NotOnLink => PeerValue { flags: 0, entry },
    };
    desired.peers.insert(index, value);
    desired.vteps.insert(vtep, VtepEntry { index, reserved: 0 });
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, net::IpAddr};

    use flannel_common::addr::Mac;

    use super::*;
    use crate::{backend::PodNetwork, netlink::RouteScope, underlay::Path};

    const TUNNEL: u32 = 7;
    const EXTERNAL: u32 = 2;
    const MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);

    /// What differs between the families.
    struct Names {
        network: &'static str,
        subnet_len: u8,
        own: &'static str,
        source: &'static str,
        peer: &'static str,
        base: &'static str,
        public: &'static str,
        next_hop: &'static str,
    }

    const V4: Names = Names {
        network: "10.244.0.0/16",
        subnet_len: 24,
        own: "10.244.1.0/24",
        source: "192.168.1.1",
        peer: "10.244.9.0/24",
        base: "10.244.9.0",
        public: "192.168.1.9",
        next_hop: "192.168.1.254",
    };
    const V6: Names = Names {
        network: "fd00:10:244::/48",
        subnet_len: 64,
        own: "fd00:10:244:1::/64",
        source: "2001:db8::1",
        peer: "fd00:10:244:9::/64",
        base: "fd00:10:244:9::",
        public: "2001:db8:1::9",
        next_hop: "fe80::1",
    };

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn backend() -> Vxlan {
        Vxlan(VxlanConfig { vni: 1, port: 8472, mtu: None, gbp: false, learning: false, direct_routing: true })
    }

    fn desired_for(names: &Names, subnet: &str, way: Way) -> Desired {
        let node = Node {
            network: PodNetwork { prefix: names.network.parse().expect("a network"), subnet_len: names.subnet_len },
            subnet: names.own.parse().expect("a subnet"),
            source: ip(names.source),
            external: EXTERNAL,
            tunnel: Some((TUNNEL, Mac([2, 0, 0, 0, 0, 1]))),
            port_range: (32768, 60999),
        };
        let peer = Peer {
            subnet: subnet.parse().expect("a subnet"),
            public_ip: ip(names.public),
            vtep: Some(Vtep { mac: MAC, zero_checksum_v6: true }),
            key: subnet.replace('/', "-"),
        };
        backend().desired(&node, &[PeerWay { peer, way }])
    }

    fn plain(names: &Names) -> Way {
        Way::Tunnel(Ok(Path { oif: EXTERNAL, next_hop: ip(names.next_hop), mtu: 1500 }))
    }

    #[test]
    fn the_node_has_its_subnets_base_address() {
        for (names, base, prefix_len) in [(&V4, "10.244.1.0", 32), (&V6, "fd00:10:244:1::", 128)] {
            let key = AddressKey { ifindex: TUNNEL, addr: ip(base), prefix_len };
            assert_eq!(desired_for(names, names.peer, plain(names)).addresses, BTreeSet::from([key]));
        }
    }

    #[test]
    fn a_tunnel_peer_has_all_four_entries_in_stocks_shape() {
        for names in [&V4, &V6] {
            let desired = desired_for(names, names.peer, plain(names));
            let (base, public) = (ip(names.base), ip(names.public));
            assert_eq!(desired.neighbours.get(&NeighbourKey { ifindex: TUNNEL, addr: base }), Some(&MAC));
            assert_eq!(desired.fdb.get(&FdbKey { ifindex: TUNNEL, mac: MAC }), Some(&public));
            let route = desired.routes.get(&RouteKey::main(names.peer.parse().expect("a subnet"))).expect("a route");
            assert_eq!((route.gateway, route.oif, route.onlink), (Some(base), Some(TUNNEL), true));
            assert_eq!((route.protocol, route.scope), (protocol::BOOT, RouteScope::Universe));
            let value = desired.peers.get(&9).expect("an entry");
            assert_eq!((value.flags, value.entry.oif, value.entry.mtu), (Word::PLAIN, EXTERNAL, 1500));
            assert_eq!(value.entry.next_hop, Addr::from(ip(names.next_hop)));
            assert_eq!(desired.vteps.get(&Addr::from(public)).map(|vtep| vtep.index), Some(9));
        }
    }

    #[test]
    fn a_direct_peer_has_a_route_alone_and_is_never_encapsulated() {
        for names in [&V4, &V6] {
            let desired = desired_for(names, names.peer, Way::Direct(EXTERNAL));
            assert!(desired.neighbours.is_empty() && desired.fdb.is_empty());
            let route = desired.routes.values().next().expect("a route");
            assert_eq!((route.gateway, route.oif), (Some(ip(names.public)), Some(EXTERNAL)));
            assert_eq!((route.protocol, route.onlink), (protocol::FLANNEL, false));
            assert_eq!(desired.peers.get(&9).map(|value| value.flags), Some(Word::DIRECT));
        }
    }

    #[test]
    fn a_path_that_is_not_plain_leaves_the_kernel_path() {
        let desired = desired_for(&V4, V4.peer, Way::Tunnel(Err(NotPlain::Multipath)));
        assert_eq!((desired.neighbours.len(), desired.fdb.len(), desired.routes.len()), (1, 1, 1));
        assert_eq!(desired.peers.get(&9).map(|value| value.flags), Some(0));
    }

    #[test]
    fn a_lease_of_another_size_is_the_kernels_alone() {
        for subnet in ["10.244.8.0/23", "10.244.9.0/25"] {
            let desired = desired_for(&V4, subnet, plain(&V4));
            assert_eq!(desired.routes.len(), 1, "{subnet}");
            assert!(desired.peers.is_empty() && desired.vteps.is_empty(), "{subnet}");
        }
    }

    #[test]
    fn the_mtu_is_the_smaller_budget_less_the_tunnels_headers() {
        let narrow = Vxlan(VxlanConfig { mtu: Some(1400), ..backend().0 });
        for (family, wide_mtu, narrow_mtu) in [(Family::V4, 1450, 1350), (Family::V6, 1430, 1330)] {
            assert_eq!((backend().mtu(family, 1500), narrow.mtu(family, 1500)), (wide_mtu, narrow_mtu));
        }
    }

    #[test]
    fn only_the_ipv6_device_takes_packets_without_a_checksum() {
        for (names, name, takes) in [(&V4, "flannel.1", false), (&V6, "flannel-v6.1", true)] {
            let lower = Lower { external: EXTERNAL, mtu: 1500, source: ip(names.source), mac: MAC };
            let spec = backend().device(&lower).expect("a device");
            assert_eq!((spec.name.as_str(), spec.udp_zero_csum6_rx), (name, takes));
        }
    }
}
