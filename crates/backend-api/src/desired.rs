//! The kernel state that a backend wants, as data. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use flannel_common::{
    abi::{
        ecmp::EcmpPathKey,
        entry_state::EntryState,
        guard::DeviceKey,
        node,
        peer::{PeerEntry, VtepEntry},
    },
    packet::addr::{Addr, Mac},
};
use flannel_datapath::maps::ecmp_paths::ethertype;
use flannel_host::{family::Family, wireguard_key::PublicKey};
use flannel_netlink::{
    AddressKey, FdbKey, NeighbourKey, Route, RouteKey, TunnelPolicy, TunnelPolicyKey, protocol,
};
use flannel_store::Peer;
use ipnet::IpNet;

use crate::Node;

/// Everything that should exist besides the tunnel device itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// Addresses of the tunnel device.
    pub addresses: BTreeSet<AddressKey>,
    /// Permanent neighbours on it.
    pub neighbours: BTreeMap<NeighbourKey, Mac>,
    /// Permanent FDB entries on it.
    pub fdb: BTreeMap<FdbKey, IpAddr>,
    /// Entries of the family's peer map by subnet number.
    pub peers: BTreeMap<u32, PeerValue>,
    /// Entries of the `ECMP_PATHS` map: what each takes, in bytes.
    pub ecmp_paths: BTreeMap<EcmpPathKey, u32>,
    /// Entries of the `VTEPS` map.
    pub vteps: BTreeMap<Addr, VtepEntry>,
    /// The `NAT_VTEPS` map: devices of peers whose packets may carry another source than their
    /// address.
    pub elsewhere: BTreeSet<DeviceKey>,
    /// The peers behind a tunnel device that is more than a link, by the subnet of each.
    pub tunnel_peers: BTreeMap<IpNet, TunnelPeer>,
    /// Policies that demand IPsec tunnels to the peers.
    pub policies: BTreeMap<TunnelPolicyKey, TunnelPolicy>,
    /// Routes to the peers' subnets.
    pub routes: BTreeMap<RouteKey, Route>,
}

/// A peer behind a tunnel device, which does not only follow routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelPeer {
    /// The address and UDP port at which it receives.
    pub endpoint: SocketAddr,
    /// Its public key, where nodes know each other by keys.
    pub key: Option<PublicKey>,
}

/// A peer map entry without what its writer adds: the generation, and what the programs saw. The
/// fields are those of [`PeerEntry`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerValue {
    /// Flags in addition to `VALID`.
    pub flags: u32,
    /// Outer destination.
    pub vtep: Addr,
    /// Next hop towards it.
    pub next_hop: Addr,
    /// Inner destination address.
    pub mac: Mac,
    /// Interface index.
    pub oif: u32,
    /// Bytes.
    pub mtu: u32,
}

impl PeerValue {
    /// The value of an entry that was read.
    pub fn of(entry: &PeerEntry) -> Self {
        let PeerEntry {
            word,
            vtep,
            next_hop,
            mac,
            oif,
            mtu,
            ..
        } = *entry;
        Self {
            flags: word.flags() & !EntryState::VALID,
            vtep,
            next_hop,
            mac,
            oif,
            mtu,
        }
    }

    /// The body of the entry to write; its word is zero.
    pub fn body(&self) -> PeerEntry {
        let Self {
            vtep,
            next_hop,
            mac,
            oif,
            mtu,
            ..
        } = *self;
        PeerEntry {
            vtep,
            next_hop,
            mac,
            oif,
            mtu,
            ..PeerEntry::default()
        }
    }
}

/// The route to a peer on our own link, by the device that leads there.
pub fn direct_route(peer: &Peer, device: u32) -> (RouteKey, Route) {
    (
        RouteKey::main(peer.subnet),
        Route::via(peer.public_ip, Some(device), protocol::FLANNEL),
    )
}

/// The entry of a peer on our own link, reached by this device.
pub fn direct_entry(vtep: Addr, mac: Mac, device: u32) -> PeerValue {
    PeerValue {
        flags: EntryState::DIRECT,
        vtep,
        mac,
        next_hop: vtep,
        oif: device,
        mtu: 0,
    }
}

/// The entry, by subnet number, of a peer to which routes lead by this device. Its next hop is not
/// known to us.
pub fn routed_entry(node: &Node, peer: &Peer, device: u32) -> Option<(u32, PeerValue)> {
    let vtep = peer.public_ip.into();
    let value = PeerValue {
        flags: EntryState::DIRECT,
        vtep,
        oif: device,
        ..PeerValue::default()
    };
    Some((node.network.index_of(peer.subnet)?, value))
}

/// Returns the node's configuration for the programs, without the tunnel that they serve; `None` if
/// its network has no peer map.
pub fn network_config(node: &Node) -> Option<node::FamilyConfig> {
    let network = node.network;
    network.has_peer_map().then(|| node::FamilyConfig {
        network: network.prefix.network().into(),
        vtep: node.source.into(),
        subnet_shift: network.host_bits(),
        subnet_count: u32::try_from(network.subnet_count()).unwrap_or(u32::MAX),
        underlay_ifindex: node.external,
        tunnel_ifindex: node.tunnel.map_or(0, |(index, _)| index),
        ..node::FamilyConfig::default()
    })
}

/// A peer's tunnel device of one family, as the guard knows it.
pub const fn device_key(mac: Mac, family: Family) -> DeviceKey {
    DeviceKey {
        mac,
        family: ethertype(family),
    }
}
