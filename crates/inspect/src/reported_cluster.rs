//! The cluster as the agent's status describes it, for a node without pins: networks, devices and
//! peers in the form that the pins have.

use std::{collections::BTreeMap, net::IpAddr};

use flannel_backend_api::CarriedExit;
use flannel_backends::carried_way;
use flannel_common::{
    abi::{
        entry_state::EntryState,
        node::{FamilyConfig, NodeConfig},
        peer::PeerEntry,
    },
    packet::addr::Addr,
};
use flannel_datapath::maps::peers::{PinnedPeer, family_config, subnet_index};
use flannel_host::family::Family;
use flannel_netlink::Link;
use flannel_status::{LeaseStatus, PeerStatus, Status};
use ipnet::IpNet;

/// The cluster as the status describes it.
pub struct ReportedCluster {
    /// The node's own data, without what only programs need.
    pub config: NodeConfig,
    /// The peers that are reached.
    pub peers: Vec<PinnedPeer>,
}

impl ReportedCluster {
    /// Reads the status. `None` while the agent has no lease.
    pub fn of(status: &Status, links: &BTreeMap<u32, Link>) -> Option<Self> {
        let lease = status.lease.as_ref()?;
        let own = subnets(lease);
        let networks = status
            .unreachable_routes
            .iter()
            .filter_map(|route| route.network.parse().ok());
        let networks: Vec<IpNet> = networks.collect();
        let family = |family| {
            let of_family = |prefix: &&IpNet| Family::of(prefix.addr()) == family;
            let ends = own_ends(family, status, links);
            match (networks.iter().find(of_family), own.iter().find(of_family)) {
                (Some(network), Some(subnet)) => in_network(ends, network, subnet),
                _ => ends,
            }
        };
        let config = NodeConfig {
            v4: family(Family::V4),
            v6: family(Family::V6),
            ..NodeConfig::default()
        };
        let peers = status
            .peers
            .iter()
            .filter(|reported| reported.way != "none");
        Some(Self {
            peers: peers
                .filter_map(|reported| peer(reported, &config))
                .collect(),
            config,
        })
    }
}

/// The subnets of a lease.
pub fn subnets(lease: &LeaseStatus) -> Vec<IpNet> {
    std::iter::once(&lease.subnet)
        .chain(&lease.ipv6_subnet)
        .filter_map(|subnet| subnet.parse().ok())
        .collect()
}

/// Our own ends of a family.
fn own_ends(family: Family, status: &Status, links: &BTreeMap<u32, Link>) -> FamilyConfig {
    let device = status
        .devices
        .iter()
        .find(|device| device.family == family.to_string());
    let link = device.and_then(|device| links.get(&device.index));
    let interface = status.interface.as_ref();
    let external =
        interface.and_then(|interface| links.values().find(|link| link.name == interface.name));
    let addresses = interface
        .into_iter()
        .flat_map(|found| [Some(&found.address), found.ipv6_address.as_ref()]);
    let mut addresses = addresses
        .flatten()
        .filter_map(|text| text.parse::<IpAddr>().ok());
    let address = addresses.find(|address| Family::of(*address) == family);
    FamilyConfig {
        vtep: address.map_or(Addr::NONE, Addr::from),
        vtep_mac: device
            .and_then(|device| device.mac.parse().ok())
            .unwrap_or_default(),
        port: link
            .and_then(|link| link.vxlan.as_ref())
            .map_or([0, 0], |vxlan| vxlan.port.to_be_bytes()),
        tunnel_ifindex: device.map_or(0, |device| device.index),
        underlay_ifindex: external.map_or(0, |link| link.index),
        ..FamilyConfig::default()
    }
}

/// The same with a pod network that is cut into subnets as large as ours.
fn in_network(ends: FamilyConfig, network: &IpNet, subnet: &IpNet) -> FamilyConfig {
    let cut = u32::from(subnet.prefix_len().saturating_sub(network.prefix_len()));
    FamilyConfig {
        network: network.network().into(),
        subnet_shift: u32::from(subnet.max_prefix_len() - subnet.prefix_len()),
        subnet_count: 1_u32.checked_shl(cut).unwrap_or(u32::MAX),
        ..ends
    }
}

/// A peer in the form of the maps; `None` for what a later version writes otherwise.
fn peer(reported: &PeerStatus, config: &NodeConfig) -> Option<PinnedPeer> {
    let subnet: IpNet = reported.subnet.parse().ok()?;
    let vtep = Addr::from(reported.public_ip.parse::<IpAddr>().ok()?);
    let index = subnet_index(config, subnet.addr())?;
    let config = family_config(config, Family::of(subnet.addr()));
    let (flags, next_hop, oif) = match &*reported.way {
        "tunnel" => (EntryState::PLAIN, vtep, config.underlay_ifindex),
        "kernel" => (0, vtep, config.underlay_ifindex),
        "direct" => (EntryState::DIRECT, vtep, config.underlay_ifindex),
        other => {
            let exit = carried_way(other).map(|way| way.exit);
            let device = match exit {
                Some(CarriedExit::TunnelDevice) => config.tunnel_ifindex,
                _ => config.underlay_ifindex,
            };
            (EntryState::DIRECT, Addr::NONE, device)
        }
    };
    let word = EntryState::new(EntryState::VALID | flags, 0);
    let mac = reported.vtep_mac.parse().unwrap_or_default();
    Some(PinnedPeer {
        index,
        subnet,
        entry: PeerEntry {
            word,
            vtep,
            next_hop,
            mac,
            oif,
            ..PeerEntry::default()
        },
    })
}

#[cfg(test)]
mod tests {
    use flannel_status::{DeviceStatus, InterfaceStatus, ModeStatus, UnreachableStatus};

    use super::*;

    fn reported(way: &str) -> PeerStatus {
        PeerStatus {
            subnet: "10.244.9.0/24".to_owned(),
            public_ip: "192.168.1.12".to_owned(),
            vtep_mac: "02:00:00:00:00:09".to_owned(),
            way: way.to_owned(),
            ..PeerStatus::default()
        }
    }

    fn status() -> Status {
        let text = "kernel".to_owned();
        let mode = ModeStatus {
            effective: text.clone(),
            wanted: text,
            ..ModeStatus::default()
        };
        let lease = LeaseStatus {
            subnet: "10.244.1.0/24".to_owned(),
            public_ip: "192.168.1.11".to_owned(),
            held: true,
            ..LeaseStatus::default()
        };
        let interface = InterfaceStatus {
            name: "eth0".to_owned(),
            address: "192.168.1.11".to_owned(),
            public_ip: "203.0.113.1".to_owned(),
            ipv6_address: None,
            public_ipv6: None,
        };
        let network = UnreachableStatus {
            network: "10.244.0.0/16".to_owned(),
            in_place: true,
            reason: None,
        };
        let device = DeviceStatus {
            name: "flannel.1".to_owned(),
            index: 3,
            mac: "02:00:00:00:00:01".to_owned(),
            mtu: 1450,
            family: Family::V4.to_string(),
            zero_checksum_v6: false,
            wireguard: None,
        };
        Status {
            lease: Some(lease),
            interface: Some(interface),
            unreachable_routes: vec![network],
            devices: vec![device],
            peers: vec![reported("kernel")],
            ..Status::without_agent("running", mode)
        }
    }

    fn links() -> BTreeMap<u32, Link> {
        [
            Link::ethernet(2, "eth0", 1500),
            Link::ethernet(3, "flannel.1", 1450),
        ]
        .map(|link| (link.index, link))
        .into()
    }

    #[test]
    fn the_pod_network_is_cut_into_subnets_of_our_size() {
        let cluster = ReportedCluster::of(&status(), &links()).expect("a lease");
        let index = |text: &str| subnet_index(&cluster.config, text.parse().expect("an address"));
        assert_eq!(
            (
                index("10.244.9.2"),
                index("10.244.255.1"),
                index("192.0.2.1")
            ),
            (Some(9), Some(255), None)
        );
        assert_eq!(
            cluster
                .peers
                .iter()
                .map(|peer| peer.index)
                .collect::<Vec<_>>(),
            [9]
        );
        assert!(
            ReportedCluster::of(
                &Status {
                    lease: None,
                    ..status()
                },
                &links()
            )
            .is_none()
        );
    }

    #[test]
    fn our_own_ends_are_those_of_the_device_and_the_interface() {
        let config = ReportedCluster::of(&status(), &links())
            .expect("a lease")
            .config
            .v4;
        assert_eq!((config.tunnel_ifindex, config.underlay_ifindex), (3, 2));
        assert_eq!(
            IpAddr::from(config.vtep),
            "192.168.1.11".parse::<IpAddr>().expect("an address")
        );
    }

    #[test]
    fn each_way_to_a_peer_has_its_flags() {
        let cluster = ReportedCluster::of(&status(), &links()).expect("a lease");
        for (way, is_direct, is_routed, oif) in [
            ("tunnel", false, false, 2),
            ("kernel", false, false, 2),
            ("direct", true, false, 2),
            ("wireguard", true, true, 3),
            ("udp", true, true, 3),
            ("cloud", true, true, 2),
        ] {
            let entry = peer(&reported(way), &cluster.config).expect("a peer").entry;
            assert_eq!(
                (
                    entry.word.has(EntryState::DIRECT),
                    entry.is_routed(),
                    entry.oif
                ),
                (is_direct, is_routed, oif)
            );
        }
    }
}
