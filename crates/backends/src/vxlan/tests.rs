//! The backend's data for both families.

use std::{collections::BTreeSet, net::IpAddr};

use flannel_backend_api::{PodNetwork, underlay::Uplink};
use flannel_common::packet::addr::Mac;
use flannel_netlink::RouteScope;
use flannel_store::config::TxChecksumOffload;

use super::*;

const TUNNEL: u32 = 7;
const EXTERNAL: u32 = 2;
const MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);

/// The values that differ between the families.
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
    Vxlan(VxlanConfig {
        vni: 1,
        port: 8472,
        mtu: None,
        gbp: false,
        learning: false,
        direct_routing: true,
        tx_checksum_offload: TxChecksumOffload::Auto,
    })
}

fn desired_for(names: &Names, subnet: &str, way: &Way) -> Desired {
    desired_for_all(names, &[(subnet, false)], way)
}

/// One node's leases, and whether a NAT stands before it.
fn desired_for_all(names: &Names, subnets: &[(&str, bool)], way: &Way) -> Desired {
    let node = Node {
        network: PodNetwork {
            prefix: names.network.parse().expect("a network"),
            subnet_len: names.subnet_len,
        },
        subnet: names.own.parse().expect("a subnet"),
        source: ip(names.source),
        external: EXTERNAL,
        tunnel: Some((TUNNEL, Mac([2, 0, 0, 0, 0, 1]))),
        port_range: (32768, 60999),
    };
    let peer = |(subnet, other_source): &(&str, bool)| Peer {
        subnet: subnet.parse().expect("a subnet"),
        public_ip: ip(names.public),
        end: Some(flannel_store::TunnelEnd::Vxlan(Vtep {
            mac: MAC,
            zero_checksum_v6: true,
            other_source: *other_source,
        })),
        key: subnet.replace('/', "-").into(),
    };
    let ways: Vec<_> = subnets
        .iter()
        .map(|lease| PeerWay {
            peer: peer(lease),
            way: way.clone(),
        })
        .collect();
    backend().desired(&node, &ways)
}

fn plain(names: &Names) -> Way {
    Way::Tunnel(Ok(Path {
        uplinks: [uplink(EXTERNAL, 1500)].into(),
        next_hop: Some(ip(names.next_hop)),
    }))
}

fn uplink(index: u32, mtu: u32) -> Uplink {
    Uplink {
        index,
        name: format!("eth{index}"),
        mtu,
    }
}

#[test]
fn the_node_has_its_subnets_base_address() {
    for (names, base, prefix_len) in [(&V4, "10.244.1.0", 32), (&V6, "fd00:10:244:1::", 128)] {
        let key = AddressKey {
            ifindex: TUNNEL,
            addr: ip(base),
            prefix_len,
        };
        assert_eq!(
            desired_for(names, names.peer, &plain(names)).addresses,
            BTreeSet::from([key])
        );
    }
}

#[test]
fn a_tunnel_peer_has_all_four_entries_in_stocks_shape() {
    for names in [&V4, &V6] {
        let desired = desired_for(names, names.peer, &plain(names));
        let (base, public) = (ip(names.base), ip(names.public));
        assert_eq!(
            desired.neighbours.get(&NeighbourKey {
                ifindex: TUNNEL,
                addr: base
            }),
            Some(&MAC)
        );
        assert_eq!(
            desired.fdb.get(&FdbKey {
                ifindex: TUNNEL,
                mac: MAC
            }),
            Some(&public)
        );
        let route = desired
            .routes
            .get(&RouteKey::main(names.peer.parse().expect("a subnet")))
            .expect("a route");
        assert_eq!(
            (route.gateway, route.oif, route.onlink),
            (Some(base), Some(TUNNEL), true)
        );
        assert_eq!(
            (route.protocol, route.scope),
            (protocol::BOOT, RouteScope::Universe)
        );
        let value = desired.peers.get(&9).expect("an entry");
        assert_eq!(
            (value.flags, value.oif, value.mtu),
            (EntryState::PLAIN, EXTERNAL, 1500)
        );
        assert_eq!(value.next_hop, Addr::from(ip(names.next_hop)));
        assert_eq!(
            desired
                .vteps
                .get(&Addr::from(public))
                .map(|vtep| vtep.index),
            Some(9)
        );
    }
}

#[test]
fn a_direct_peer_has_a_route_alone_and_is_never_encapsulated() {
    for names in [&V4, &V6] {
        let desired = desired_for(names, names.peer, &Way::Direct(EXTERNAL));
        assert!(desired.neighbours.is_empty() && desired.fdb.is_empty());
        let route = desired.routes.values().next().expect("a route");
        assert_eq!(
            (route.gateway, route.oif),
            (Some(ip(names.public)), Some(EXTERNAL))
        );
        assert_eq!((route.protocol, route.onlink), (protocol::FLANNEL, false));
        assert_eq!(
            desired.peers.get(&9).map(|value| value.flags),
            Some(EntryState::DIRECT)
        );
    }
}

#[test]
fn a_path_that_is_not_plain_leaves_the_kernel_path() {
    let desired = desired_for(&V4, V4.peer, &Way::Tunnel(Err(NotPlain::WantsChecksum)));
    assert_eq!(
        (
            desired.neighbours.len(),
            desired.fdb.len(),
            desired.routes.len()
        ),
        (1, 1, 1)
    );
    assert_eq!(desired.peers.get(&9).map(|value| value.flags), Some(0));
}

#[test]
fn a_lease_of_another_size_is_the_kernels_alone() {
    for subnet in ["10.244.8.0/23", "10.244.9.0/25"] {
        let desired = desired_for(&V4, subnet, &plain(&V4));
        assert_eq!(desired.routes.len(), 1, "{subnet}");
        assert!(desired.peers.is_empty(), "{subnet}");
    }
}

#[test]
fn every_peers_packets_are_accepted_whatever_leads_to_it() {
    let from = Addr::from(ip(V4.public));
    let index = |desired: &Desired| desired.vteps.get(&from).map(|vtep| vtep.index);
    for way in [
        plain(&V4),
        Way::Direct(EXTERNAL),
        Way::Tunnel(Err(NotPlain::WantsChecksum)),
        Way::NotOnLink,
    ] {
        assert_eq!(index(&desired_for(&V4, V4.peer, &way)), Some(9), "{way:?}");
        assert_eq!(
            index(&desired_for(&V4, "10.244.10.0/23", &way)),
            Some(VtepEntry::UNNUMBERED),
            "{way:?}"
        );
    }
    for leases in [
        [(V4.peer, false), ("10.244.10.0/23", false)],
        [("10.244.10.0/23", false), (V4.peer, false)],
    ] {
        let desired = desired_for_all(&V4, &leases, &plain(&V4));
        assert_eq!(
            (index(&desired), desired.peers.len()),
            (Some(VtepEntry::UNNUMBERED), 1),
            "{leases:?}"
        );
    }
}

#[test]
fn a_peer_behind_a_nat_is_known_by_its_device() {
    for (names, family) in [(&V4, Family::V4), (&V6, Family::V6)] {
        let devices = |other_source| {
            desired_for_all(names, &[(names.peer, other_source)], &plain(names))
                .elsewhere
                .into_iter()
                .collect::<Vec<_>>()
        };
        assert_eq!(devices(false), []);
        assert_eq!(devices(true), [device_key(MAC, family)]);
    }
}

#[test]
fn the_mtu_is_the_smaller_budget_less_the_tunnels_headers() {
    let narrow = Vxlan(VxlanConfig {
        mtu: Some(1400),
        ..backend().0
    });
    for (family, wide_mtu, narrow_mtu) in [(Family::V4, 1450, 1350), (Family::V6, 1430, 1330)] {
        assert_eq!(
            (backend().mtu(family, 1500), narrow.mtu(family, 1500)),
            (wide_mtu, narrow_mtu)
        );
    }
}

#[test]
fn only_the_ipv6_device_takes_packets_without_a_checksum() {
    for (names, name, takes) in [(&V4, "flannel.1", false), (&V6, "flannel-v6.1", true)] {
        let lower = TunnelUnderlay {
            external: EXTERNAL,
            mtu: 1500,
            source: ip(names.source),
            mac: MAC,
        };
        let spec = backend().spec(&lower);
        assert_eq!((spec.name.as_str(), spec.udp_zero_csum6_rx), (name, takes));
    }
}

#[test]
fn a_peer_behind_several_next_hops_has_ecmp_paths_instead_of_one() {
    for names in [&V4, &V6] {
        let path = Path {
            uplinks: [uplink(EXTERNAL, 1500), uplink(9, 1400)].into(),
            next_hop: None,
        };
        let desired = desired_for(names, names.peer, &Way::Tunnel(Ok(path)));
        let (index, value) = desired.peers.iter().next().expect("a peer");
        assert_eq!(value.flags, EntryState::PLAIN | EntryState::ECMP);
        assert_eq!(
            (value.oif, value.next_hop, value.mtu),
            (0, Addr::NONE, 1400)
        );
        let key = |device| EcmpPathKey::new(ethertype(Family::of(ip(names.base))), *index, device);
        assert_eq!(
            desired.ecmp_paths,
            [(key(EXTERNAL), 1500), (key(9), 1400)].into()
        );
        assert!(
            desired_for(names, names.peer, &plain(names))
                .ecmp_paths
                .is_empty()
        );
    }
}
