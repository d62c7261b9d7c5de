//! The kernel state a backend wants, as data. Pure: nothing here reads or writes the kernel.
//!
//! A backend turns the accepted leases of one address family, and what is known of the node and its
//! underlay, into [`Desired`]. The reconciler compares that with the actual state and applies the
//! difference, so a backend needs neither state nor an order. Only [`of`] depends on the kind of
//! backend.

pub mod host_gw;
pub mod ipip;
pub mod ipsec;
mod network;
pub mod udp;
mod unmanaged;
pub mod vxlan;
pub mod wireguard;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use flannel_common::{
    addr::{Addr, Mac},
    ecmp::EcmpPathKey,
    entry_state::EntryState,
    guard::DeviceKey,
    node,
    peer::{PeerEntry, VtepEntry},
    program::Program,
};
use flannel_datapath::ecmp_paths::ethertype;
use flannel_host::{
    family::Family,
    wireguard_key::{PublicKey, SecretKey},
};
use flannel_netlink::{
    AddressKey, FdbKey, IpipSpec, Link, NeighbourKey, Route, RouteKey, TunnelPolicy, TunnelPolicyKey, VxlanSpec,
    protocol,
};
use flannel_store::{Peer, RawJson, Vtep, WireguardEnd, config::BackendConfig};
use ipnet::{IpNet, Ipv4Net};

use self::{host_gw::HostGw, ipip::Ipip, ipsec::Ipsec, udp::Udp, vxlan::Vxlan, wireguard::Wireguard};
pub use self::{network::PodNetwork, unmanaged::Unmanaged};
use flannel_iface::End;

use crate::underlay::{NotPlain, Path, Underlay};

/// A way of carrying packets between nodes. Every method speaks of one address family.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Returns the MTU of pods, in bytes, for an external interface with an MTU of `external_mtu`
    /// bytes.
    fn mtu(&self, family: Family, external_mtu: u32) -> u32;

    /// Checks that the backend can serve from this end of the external interface.
    fn accept(&self, _end: &End) -> Result<(), BackendError> {
        Ok(())
    }

    /// The UDP port of its tunnel, if it has one.
    fn port(&self) -> Option<u16> {
        None
    }

    /// The device of its tunnel, if it has one.
    fn device(&self, _lower: &TunnelUnderlay) -> Option<TunnelSpec> {
        None
    }

    /// Returns the data that a node with this end of the tunnel publishes in its lease in addition
    /// to its address of this family, if any.
    fn published(&self, _family: Family, _end: Option<OwnEnd>) -> Option<RawJson> {
        None
    }

    /// The way to a peer.
    fn way(&self, node: &Node, underlay: &Underlay, peer: &Peer) -> Way;

    /// Everything the node and its peers need, each peer by its way.
    fn desired(&self, node: &Node, peers: &[PeerWay]) -> Desired;

    /// Returns the node's configuration for the programs; `None` where they have nothing to do.
    fn node_config(&self, _node: &Node) -> Option<node::FamilyConfig> {
        None
    }

    /// Returns true if its routes carry the packets between pods of different nodes, and no other
    /// routes do.
    fn carries_packets(&self) -> bool {
        true
    }

    /// Returns true if one of its routes is for the whole pod network, so that no packet for it
    /// leaves by the default route.
    fn routes_whole_network(&self) -> bool {
        false
    }

    /// Returns true if IPsec policies of the kernel encrypt the packets to peers.
    fn encrypts_by_policies(&self) -> bool {
        false
    }

    /// Returns true if this kind of backend has work for programs. Settings may still prevent it:
    /// then [`Self::programs`] has the reason.
    fn has_work_for_programs(&self) -> bool {
        true
    }

    /// Returns the traffic that the programs serve, or the reason there is none.
    fn programs(&self) -> Result<ProgramSet, &'static str>;
}

/// The traffic that the programs serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramSet {
    /// The tunnel of this VNI, and in mode `fast` peers on our own link too.
    Tunnel(u32),
    /// Direct peers by the external interface, without a tunnel. Only in mode `fast`.
    Link,
    /// Direct peers by a tunnel device without Ethernet. Only in mode `fast`.
    L3Tunnel {
        /// True if peers may be reached by the external interface too.
        and_link: bool,
    },
}

impl ProgramSet {
    /// Returns true if the programs encapsulate, and check what they decapsulate.
    pub const fn has_tunnel(self) -> bool {
        matches!(self, Self::Tunnel(_))
    }

    /// Returns true if in mode `fast` there are programs on the external interface.
    pub const fn is_on_external(self) -> bool {
        match self {
            Self::Tunnel(_) | Self::Link => true,
            Self::L3Tunnel { and_link } => and_link,
        }
    }

    /// Returns the programs that serve it, whatever the mode.
    pub const fn programs(self) -> &'static [Program] {
        use Program::{FromL3Tunnel, FromPod, FromTunnel, FromUnderlay, ToL3Tunnel, ToPod, ToTunnel, ToUnderlay};
        match self {
            Self::Tunnel(_) => &[FromPod, ToPod, FromUnderlay, ToUnderlay, FromTunnel, ToTunnel],
            Self::Link => &[FromPod, ToPod, FromUnderlay, ToUnderlay],
            Self::L3Tunnel { and_link: true } => &[FromPod, ToPod, FromUnderlay, ToUnderlay, FromL3Tunnel, ToL3Tunnel],
            Self::L3Tunnel { and_link: false } => &[FromPod, ToPod, FromL3Tunnel, ToL3Tunnel],
        }
    }

    /// Returns the tag that distinguishes tc filters of this agent from those of another agent on
    /// the same device: the VNI, or zero.
    pub const fn filter_tag(self) -> u32 {
        match self {
            Self::Tunnel(vni) => vni,
            Self::Link | Self::L3Tunnel { .. } => 0,
        }
    }
}

/// The backend of a network configuration.
pub fn of(config: &BackendConfig) -> Arc<dyn Backend> {
    match config {
        BackendConfig::Vxlan(config) => Arc::new(Vxlan(*config)),
        BackendConfig::HostGw => Arc::new(HostGw),
        BackendConfig::Wireguard(config) => Arc::new(Wireguard(*config)),
        BackendConfig::Ipsec(config) => Arc::new(Ipsec { udp_encap: config.udp_encap }),
        BackendConfig::Udp(config) => Arc::new(Udp(*config)),
        BackendConfig::Ipip(config) => Arc::new(Ipip(*config)),
        BackendConfig::Extension(_) => Arc::new(Unmanaged::extension(None)),
        BackendConfig::AwsVpc(_) | BackendConfig::Gce | BackendConfig::TencentVpc(_) | BackendConfig::AliVpc(_) => {
            Arc::new(Unmanaged::cloud())
        }
        BackendConfig::Alloc => Arc::new(Unmanaged::alloc()),
    }
}

/// Returns true for a device that some backend makes: a vxlan device whose name is made from its
/// own VNI, as flannel names them, a WireGuard or ipip device with flannel's name, or the TUN
/// device of the backend udp. A process behind such a device ends with it.
pub fn is_tunnel(link: &Link) -> bool {
    let of_vni = |vni| Family::BOTH.iter().any(|family| link.name == vxlan::device_name(*family, vni));
    let is_tun = link.kind.as_deref() == Some("tun");
    let encrypts = is_tun || link.kind.as_deref() == Some("wireguard");
    link.vxlan.as_ref().is_some_and(|vxlan| of_vni(vxlan.vni))
        || (encrypts && wireguard::DEVICES.contains(&link.name.as_str()))
        || (is_tun && link.name == udp::DEVICE)
        || (link.kind.as_deref() == Some(IpipSpec::KIND) && link.name == ipip::DEVICE)
}

/// The tunnel device that a backend wants, by its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunnelSpec {
    /// A vxlan device.
    Vxlan(VxlanSpec),
    /// A WireGuard device.
    Wireguard(WireguardSpec),
    /// The TUN device of the backend udp.
    Udp(UdpSpec),
    /// An ipip device.
    Ipip(IpipSpec),
}

/// The TUN device that the backend udp wants, and the end of its process on the underlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpSpec {
    /// Its name.
    pub name: String,
    /// The address at which the process receives.
    pub source: Ipv4Addr,
    /// The UDP port of all nodes.
    pub port: u16,
    /// Its MTU in bytes.
    pub mtu: u32,
}

/// The WireGuard device that a backend wants. The key is the node's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireguardSpec {
    /// Its name.
    pub name: String,
    /// Its UDP port.
    pub port: u16,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// The secret that all nodes share.
    pub preshared_key: Option<SecretKey>,
    /// Seconds between two packets that keep an idle tunnel open.
    pub keepalive: Option<u16>,
}

/// Our end of the tunnel, by the kind of tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnEnd {
    /// The vxlan device.
    Vxlan(Vtep),
    /// The public key of the WireGuard device.
    Wireguard(PublicKey),
}

impl TunnelSpec {
    /// Returns the device's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Vxlan(spec) => &spec.name,
            Self::Wireguard(spec) => &spec.name,
            Self::Udp(spec) => &spec.name,
            Self::Ipip(spec) => &spec.name,
        }
    }
}

/// The underlay of a tunnel device, and the device's own address.
#[derive(Clone, Copy, Debug)]
pub struct TunnelUnderlay {
    /// Interface index of the external interface.
    pub external: u32,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// Source address of outer packets; its family is the tunnel's.
    pub source: IpAddr,
    /// The tunnel device's Ethernet address; zero where it has none.
    pub mac: Mac,
}

/// The parts of one family of the node on which its peers' entries depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The pod network.
    pub network: PodNetwork,
    /// Our own subnet.
    pub subnet: IpNet,
    /// Source address of outer packets.
    pub source: IpAddr,
    /// Interface index of the external interface.
    pub external: u32,
    /// The tunnel device: its interface index and Ethernet address, which is zero where it has
    /// none.
    pub tunnel: Option<(u32, Mac)>,
    /// `net.ipv4.ip_local_port_range`, which is both families'.
    pub port_range: (u16, u16),
}

/// The way packets reach one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// By a route to the peer itself, on this interface.
    Direct(u32),
    /// Through the tunnel; by the programs if the path is plain.
    Tunnel(Result<Path, NotPlain>),
    /// Through the WireGuard device.
    Wireguard,
    /// Through the IPsec tunnel to it.
    Ipsec,
    /// By the process of the backend udp.
    Udp,
    /// Through the ipip device.
    Ipip,
    /// As the commands of the backend extension lead them.
    Extension,
    /// As the cloud routes them.
    Cloud,
    /// Not at all: the peer is not on our own link, and the backend has no tunnel.
    NotOnLink,
}

impl Way {
    /// The names of all ways, in every output.
    pub const NAMES: [&str; 10] =
        ["direct", "tunnel", "kernel", "wireguard", "ipsec", "ipip", "udp", "extension", "cloud", "none"];

    /// The name of this one.
    pub const fn name(&self) -> &'static str {
        let [direct, tunnel, kernel, wireguard, ipsec, ipip, udp, extension, cloud, none] = Self::NAMES;
        match self {
            Self::Direct(_) => direct,
            Self::Tunnel(Ok(_)) => tunnel,
            Self::Tunnel(Err(_)) => kernel,
            Self::Wireguard => wireguard,
            Self::Ipsec => ipsec,
            Self::Udp => udp,
            Self::Ipip => ipip,
            Self::Extension => extension,
            Self::Cloud => cloud,
            Self::NotOnLink => none,
        }
    }
}

/// A peer and how packets reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerWay {
    /// The peer.
    pub peer: Peer,
    /// The way to it.
    pub way: Way,
}

/// The route to a peer on our own link, by the device that leads there.
fn direct_route(peer: &Peer, device: u32) -> (RouteKey, Route) {
    (RouteKey::main(peer.subnet), Route::via(peer.public_ip, Some(device), protocol::FLANNEL))
}

/// The entry of a peer on our own link, reached by this device.
fn direct_entry(vtep: Addr, mac: Mac, device: u32) -> PeerValue {
    PeerValue { flags: EntryState::DIRECT, vtep, mac, next_hop: vtep, oif: device, mtu: 0 }
}

/// The entry, by subnet number, of a peer to which routes lead by this device. Its next hop is not
/// known to us.
fn routed_entry(node: &Node, peer: &Peer, device: u32) -> Option<(u32, PeerValue)> {
    let vtep = peer.public_ip.into();
    let value = PeerValue { flags: EntryState::DIRECT, vtep, oif: device, ..PeerValue::default() };
    Some((node.network.index_of(peer.subnet)?, value))
}

/// Returns the node's configuration for the programs, without the tunnel that they serve; `None` if
/// its network has no peer map.
fn network_config(node: &Node) -> Option<node::FamilyConfig> {
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
pub(crate) const fn device_key(mac: Mac, family: Family) -> DeviceKey {
    DeviceKey { mac, family: ethertype(family) }
}

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
    /// The WireGuard devices of the peers, by the subnet behind each.
    pub wireguard: BTreeMap<IpNet, WireguardEnd>,
    /// The nodes behind the process of the backend udp, by subnet.
    pub udp: BTreeMap<Ipv4Net, Ipv4Addr>,
    /// Policies that demand IPsec tunnels to the peers.
    pub policies: BTreeMap<TunnelPolicyKey, TunnelPolicy>,
    /// Routes to the peers' subnets.
    pub routes: BTreeMap<RouteKey, Route>,
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
        let PeerEntry { word, vtep, next_hop, mac, oif, mtu, .. } = *entry;
        Self { flags: word.flags() & !EntryState::VALID, vtep, next_hop, mac, oif, mtu }
    }

    /// The body of the entry to write; its word is zero.
    pub fn body(&self) -> PeerEntry {
        let Self { vtep, next_hop, mac, oif, mtu, .. } = *self;
        PeerEntry { vtep, next_hop, mac, oif, mtu, ..PeerEntry::default() }
    }
}

/// Refuses an end behind a NAT, for a backend by which packets go to a node's own address.
fn require_own_address(backend: &'static str, end: &End) -> Result<(), BackendError> {
    let End { addr, public, .. } = *end;
    if public == addr { Ok(()) } else { Err(BackendError::BehindNat { backend, public, addr }) }
}

/// Reasons a backend cannot serve from an external interface. Each needs a change by the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// Packets to a node go to an address it has, not to a NAT's.
    #[error(
        "{backend} needs a node's own address, and {public} is not the address of the external interface, {addr}: use \
         that one as --public-ip (--public-ipv6), or the backend vxlan"
    )]
    BehindNat {
        /// The backend.
        backend: &'static str,
        /// The address published to peers.
        public: IpAddr,
        /// The interface's.
        addr: IpAddr,
    },
    /// IPv6 needs packets of 1280 bytes.
    #[error(
        "an external MTU of {external} bytes leaves {left} for IPv6 pods, and IPv6 needs {}: raise the MTU, or switch \
         EnableIPv6 off",
        IPV6_MIN_MTU
    )]
    TooSmallForIpv6 {
        /// The external interface's, or what the network configuration makes of it.
        external: u32,
        /// The MTU left for pods, in bytes.
        left: u32,
    },
}

/// Below, the kernel switches IPv6 off on a device ([RFC 8200, section
/// 5](https://www.rfc-editor.org/rfc/rfc8200#section-5); `addrconf_notify()` in
/// [net/ipv6/addrconf.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv6/addrconf.c)).
const IPV6_MIN_MTU: u32 = 1280;

/// Returns the MTU of pods of this family, in bytes; an error if IPv6 pods would get less than IPv6
/// needs.
pub fn usable_mtu(backend: &dyn Backend, family: Family, external: u32) -> Result<u32, BackendError> {
    let left = backend.mtu(family, external);
    if family == Family::V6 && left < IPV6_MIN_MTU {
        Err(BackendError::TooSmallForIpv6 { external, left })
    } else {
        Ok(left)
    }
}
