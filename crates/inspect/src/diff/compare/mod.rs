//! The comparison. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use flannel_backend_api::{CarryingDevice, MissingPart};
use flannel_backends::policy_keys;
use flannel_common::{
    abi::{entry_state::EntryState, node::NodeConfig},
    packet::addr::Mac,
};
use flannel_datapath::maps::{
    ecmp_paths::{PinnedEcmpPaths, ethertype},
    peers::{PinnedPeer, family_config, subnet_index},
};
use flannel_host::family::Family;
use flannel_netlink::{FdbKey, NeighbourKey, Route, RouteKey, TunnelPolicyKey};
use flannel_status::Status;
use ipnet::IpNet;
use serde::Serialize;

/// A table whose entries are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ComparedTable {
    /// A BPF map.
    Map,
    /// The routes.
    Route,
    /// The neighbours of a tunnel device.
    Neighbour,
    /// The forwarding database of a tunnel device.
    Fdb,
    /// The IPsec policies.
    Policy,
    /// The peers or the process behind a tunnel device.
    Device,
}

impl ComparedTable {
    /// The name in every output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Route => "route",
            Self::Neighbour => "neighbour",
            Self::Fdb => "fdb",
            Self::Policy => "policy",
            Self::Device => "device",
        }
    }
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Difference {
    /// The table.
    pub place: ComparedTable,
    /// The object that differs, such as `peer 10.244.9.0/24`.
    pub object: String,
    /// The state found; absent if the object is missing.
    pub found: Option<String>,
    /// The state expected; absent if the object should not be there.
    pub wanted: Option<String>,
}

/// The way by which packets should reach a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedWay {
    Direct,
    /// By a device or by routes without an entry for this peer.
    Routed,
    Plain,
    Kernel,
}

/// A peer as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) subnet: IpNet,
    pub(super) vtep: IpAddr,
    pub(super) mac: Mac,
    pub(super) way: ExpectedWay,
}

/// The kernel's routes, neighbours and FDB entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Kernel {
    pub(super) routes: Vec<(RouteKey, Route)>,
    pub(super) neighbours: Vec<(NeighbourKey, Mac)>,
    pub(super) fdb: Vec<(FdbKey, IpAddr)>,
}

impl Expected {
    fn text(&self) -> String {
        let way = match self.way {
            ExpectedWay::Direct => "direct",
            ExpectedWay::Routed => "routed",
            ExpectedWay::Plain => "plain",
            ExpectedWay::Kernel => "kernel",
        };
        format!("{} {} {way}", self.vtep, self.mac)
    }
}

/// Compares two tables of the same objects, and returns where they differ.
fn tables<K: Ord + Copy>(
    place: ComparedTable,
    found: &BTreeMap<K, String>,
    wanted: &BTreeMap<K, String>,
    name: impl Fn(&K) -> String,
) -> Vec<Difference> {
    let keys: BTreeSet<K> = found.keys().chain(wanted.keys()).copied().collect();
    let differing = keys
        .into_iter()
        .filter(|key| found.get(key) != wanted.get(key));
    let difference = |key| Difference {
        place,
        object: name(&key),
        found: found.get(&key).cloned(),
        wanted: wanted.get(&key).cloned(),
    };
    differing.map(difference).collect()
}

/// The maps against the leases. A lease of another size than the network's subnets has no place in
/// the map.
pub(super) fn leases_and_maps(
    leased: &[Expected],
    pinned: &[PinnedPeer],
    config: &NodeConfig,
) -> Vec<Difference> {
    let has_place = |peer: &&Expected| {
        let family = Family::of(peer.vtep);
        let shift = family_config(config, family).subnet_shift;
        let is_whole = u32::from(family.bits() - peer.subnet.prefix_len()) == shift;
        is_whole && subnet_index(config, peer.subnet.addr()).is_some()
    };
    let by_subnet = |peer: &Expected| (peer.subnet, peer.text());
    let found = pinned.iter().map(|peer| by_subnet(&of_map(peer))).collect();
    let wanted = leased.iter().filter(has_place).map(by_subnet).collect();
    tables(ComparedTable::Map, &found, &wanted, |subnet| {
        format!("peer {subnet}")
    })
}

/// Compares the map of VTEPs with that of peers. Without a tunnel no peer is a VTEP.
pub(super) fn vteps(
    pinned: &[PinnedPeer],
    vteps: &BTreeMap<IpAddr, u32>,
    config: &NodeConfig,
) -> Vec<Difference> {
    let is_vtep = |peer: &&PinnedPeer| has_tunnel(config, peer.entry.vtep.into());
    let pinned: Vec<&PinnedPeer> = pinned.iter().filter(is_vtep).collect();
    // Several subnets may be behind one VTEP: any of them will do.
    let mut behind: BTreeMap<IpAddr, Vec<u32>> = BTreeMap::new();
    for peer in &pinned {
        behind
            .entry(peer.entry.vtep.into())
            .or_default()
            .push(peer.index);
    }
    let stale = vteps
        .iter()
        .filter(|(vtep, index)| !behind.get(vtep).is_some_and(|known| known.contains(index)));
    let stale = stale.map(|(vtep, index)| Difference {
        place: ComparedTable::Map,
        object: format!("VTEP {vtep}"),
        found: Some(format!("subnet number {index}")),
        wanted: behind
            .get(vtep)
            .map(|known| format!("subnet number {}", known[0])),
    });
    let lacking = pinned
        .iter()
        .filter(|peer| !vteps.contains_key(&peer.entry.vtep.into()));
    let lacking = lacking.map(|peer| Difference {
        place: ComparedTable::Map,
        object: format!("VTEP {}", peer.entry.vtep),
        found: None,
        wanted: Some(format!("subnet number {}", peer.index)),
    });
    stale.chain(lacking).collect()
}

/// Compares the map of ECMP paths with that of peers: a peer with several next hops has at least
/// one ECMP path, any other peer has none.
pub(super) fn ecmp_paths(pinned: &[PinnedPeer], ecmp_paths: &PinnedEcmpPaths) -> Vec<Difference> {
    let family = |peer: &PinnedPeer| Family::of(IpAddr::from(peer.entry.vtep));
    let has_ecmp_paths = |peer: &&PinnedPeer| peer.entry.word.has(EntryState::ECMP);
    let lacking = pinned
        .iter()
        .filter(has_ecmp_paths)
        .filter(|peer| ecmp_paths.of(family(peer), peer.index).next().is_none());
    let lacking = lacking.map(|peer| Difference {
        place: ComparedTable::Map,
        object: format!("ECMP paths of peer {}", peer.subnet),
        found: None,
        wanted: Some("a device at least".to_owned()),
    });
    let having: BTreeSet<_> = pinned
        .iter()
        .filter(has_ecmp_paths)
        .map(|peer| (ethertype(family(peer)), peer.index))
        .collect();
    let stale = ecmp_paths
        .keys()
        .filter(|key| !having.contains(&(key.family, key.index)));
    let stale = stale.map(|key| Difference {
        place: ComparedTable::Map,
        object: format!("ECMP path of subnet number {}", key.index),
        found: Some(format!("device {}", key.device)),
        wanted: None,
    });
    lacking.chain(stale).collect()
}

/// The kernel against the peers.
pub(super) fn kernel(
    expected: &[Expected],
    kernel: &Kernel,
    config: &NodeConfig,
) -> Vec<Difference> {
    let tunnel = |address: IpAddr| family_config(config, Family::of(address)).tunnel_ifindex;
    let expected: Vec<&Expected> = expected
        .iter()
        .filter(|peer| peer.way != ExpectedWay::Routed)
        .collect();
    let through = || {
        expected
            .iter()
            .filter(|peer| peer.way != ExpectedWay::Direct)
    };
    let mut differences = routes(&expected, &kernel.routes, config);

    let wanted = through()
        .map(|peer| {
            (
                (tunnel(peer.vtep), peer.subnet.addr()),
                peer.mac.to_string(),
            )
        })
        .collect();
    let found = kernel
        .neighbours
        .iter()
        .map(|(key, mac)| ((key.ifindex, key.addr), mac.to_string()))
        .collect();
    differences.extend(tables(
        ComparedTable::Neighbour,
        &found,
        &wanted,
        |(_, address)| address.to_string(),
    ));

    let wanted = through()
        .map(|peer| ((tunnel(peer.vtep), peer.mac.0), peer.vtep.to_string()))
        .collect();
    let found = kernel
        .fdb
        .iter()
        .map(|(key, vtep)| ((key.ifindex, key.mac.0), vtep.to_string()))
        .collect();
    differences.extend(tables(ComparedTable::Fdb, &found, &wanted, |(_, mac)| {
        Mac(*mac).to_string()
    }));
    differences
}

/// Compares what is behind a tunnel device with the peers of a family that it reaches: a WireGuard
/// device has a peer for each, and a TUN device a process for all.
pub(super) fn behind(
    expected: &[Expected],
    family: Family,
    device: &dyn CarryingDevice,
) -> Vec<Difference> {
    let is_carried = |peer: &&Expected| {
        peer.way == ExpectedWay::Routed && Family::of(peer.subnet.addr()) == family
    };
    let routed = expected.iter().filter(is_carried);
    let missing = routed.filter_map(|peer| device.missing(peer.subnet));
    let difference = |missing: MissingPart| Difference {
        place: ComparedTable::Device,
        object: missing.object,
        found: missing.found,
        wanted: Some(missing.wanted.to_owned()),
    };
    let mut differences: Vec<Difference> = missing.map(difference).collect();
    // A device without a process is one difference for all peers.
    differences.dedup();
    differences
}

/// The IPsec policies for peers that are not there, according to the agent's status.
pub(super) fn policies(status: &Status, present: &BTreeSet<TunnelPolicyKey>) -> Vec<Difference> {
    let own = status
        .lease
        .as_ref()
        .and_then(|lease| lease.subnet.parse::<IpNet>().ok());
    let peers = status.peers.iter();
    let pairs = peers.filter_map(|peer| Some((own?, peer.subnet.parse().ok()?, &peer.way)));
    let wanted = pairs.flat_map(|(own, peer, way)| policy_keys(way, own, peer));
    let missing = wanted.filter(|key| !present.contains(key));
    let difference = |key: TunnelPolicyKey| Difference {
        place: ComparedTable::Policy,
        object: key.to_string(),
        found: None,
        wanted: Some("there".to_owned()),
    };
    missing.map(difference).collect()
}

/// Compares the routes to peers' subnets with the expected ones, and finds routes into the tunnel
/// that belong to no peer.
fn routes(
    expected: &[&Expected],
    routes: &[(RouteKey, Route)],
    config: &NodeConfig,
) -> Vec<Difference> {
    let tunnel = |address: IpAddr| family_config(config, Family::of(address)).tunnel_ifindex;
    let subnets: BTreeSet<IpNet> = expected.iter().map(|peer| peer.subnet).collect();
    let networks: Vec<_> = networks(config)
        .into_iter()
        .filter(|(network, _)| has_tunnel(config, network.addr()))
        .collect();
    let into_tunnel = |key: &RouteKey, route: &Route| {
        networks.iter().any(|(network, tunnel)| {
            network.contains(&key.dst) && route.oif == Some(*tunnel) && route.onlink
        })
    };
    let found = routes
        .iter()
        .filter(|(key, route)| {
            into_tunnel(key, route)
                || (subnets.contains(&key.dst) && *key == RouteKey::main(key.dst))
        })
        .map(|(key, found)| (*key, route(found.oif, found.gateway, found.onlink)))
        .collect();
    let by_gateway: BTreeMap<(IpNet, IpAddr), Option<u32>> = routes
        .iter()
        .filter_map(|(key, route)| Some(((key.dst, route.gateway?), route.oif)))
        .collect();
    let wanted = expected.iter().map(|peer| {
        let way = match peer.way {
            // The device is the underlay's business; the gateway is the peer itself.
            ExpectedWay::Direct => route(
                by_gateway.get(&(peer.subnet, peer.vtep)).copied().flatten(),
                Some(peer.vtep),
                false,
            ),
            _ => route(Some(tunnel(peer.vtep)), Some(peer.subnet.addr()), true),
        };
        (RouteKey::main(peer.subnet), way)
    });
    tables(ComparedTable::Route, &found, &wanted.collect(), |key| {
        key.dst.to_string()
    })
}

/// Returns true if the programs serve a tunnel of the family of this address.
fn has_tunnel(config: &NodeConfig, address: IpAddr) -> bool {
    family_config(config, Family::of(address)).has_tunnel()
}

fn route(oif: Option<u32>, gateway: Option<IpAddr>, onlink: bool) -> String {
    let gateway = gateway
        .map(|gateway| format!("via {gateway} "))
        .unwrap_or_default();
    let device = oif.map_or_else(|| "no device".to_owned(), |oif| format!("device {oif}"));
    format!("{gateway}{device}{}", if onlink { " onlink" } else { "" })
}

#[cfg(test)]
mod tests;

/// The networks of the families that are on.
fn networks(config: &NodeConfig) -> Vec<(IpNet, u32)> {
    let network = |family| {
        let config = family_config(config, family);
        let subnets = config
            .subnet_count
            .checked_next_power_of_two()
            .filter(|count| *count != 0)?;
        let length =
            u32::from(family.bits()).checked_sub(config.subnet_shift + subnets.trailing_zeros())?;
        Some((
            IpNet::new(config.network.into(), u8::try_from(length).ok()?).ok()?,
            config.tunnel_ifindex,
        ))
    };
    Family::BOTH
        .into_iter()
        .filter(|family| family_config(config, *family).subnet_count != 0)
        .filter_map(network)
        .collect()
}

pub(super) fn of_map(peer: &PinnedPeer) -> Expected {
    let PinnedPeer { subnet, entry, .. } = peer;
    let way = match entry.word {
        _ if entry.is_routed() => ExpectedWay::Routed,
        word if word.has(EntryState::DIRECT) => ExpectedWay::Direct,
        word if word.has(EntryState::PLAIN) => ExpectedWay::Plain,
        _ => ExpectedWay::Kernel,
    };
    Expected {
        subnet: *subnet,
        vtep: entry.vtep.into(),
        mac: entry.mac,
        way,
    }
}
