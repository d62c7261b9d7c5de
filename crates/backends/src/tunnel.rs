//! The tunnel devices of backends, as data.

use std::net::{IpAddr, Ipv4Addr};

use flannel_common::addr::Mac;
use flannel_host::wireguard_key::{PublicKey, SecretKey};
use flannel_netlink::{IpipSpec, VxlanSpec};
use flannel_store::Vtep;

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

impl OwnEnd {
    /// Returns its Ethernet address; zero where it has none.
    pub fn mac(self) -> Mac {
        match self {
            Self::Vxlan(vtep) => vtep.mac,
            Self::Wireguard(_) => Mac::default(),
        }
    }

    /// Returns the same end of a node whose packets have another source than its public address, or
    /// not.
    #[must_use]
    pub fn from_other_source(self, other_source: bool) -> Self {
        match self {
            Self::Vxlan(vtep) => Self::Vxlan(Vtep {
                other_source,
                ..vtep
            }),
            Self::Wireguard(_) => self,
        }
    }
}

impl From<Vtep> for OwnEnd {
    fn from(vtep: Vtep) -> Self {
        Self::Vxlan(vtep)
    }
}

impl From<PublicKey> for OwnEnd {
    fn from(key: PublicKey) -> Self {
        Self::Wireguard(key)
    }
}

impl TunnelSpec {
    /// Returns the UDP port at which the device, or its process, receives.
    pub const fn port(&self) -> Option<u16> {
        match self {
            Self::Vxlan(spec) => Some(spec.port),
            Self::Wireguard(spec) => Some(spec.port),
            Self::Udp(spec) => Some(spec.port),
            Self::Ipip(_) => None,
        }
    }

    /// Returns the VNI of a device that has one.
    pub const fn vni(&self) -> Option<u32> {
        match self {
            Self::Vxlan(spec) => Some(spec.vni),
            Self::Wireguard(_) | Self::Udp(_) | Self::Ipip(_) => None,
        }
    }

    /// Returns true for a device that a process has open while all is well.
    pub const fn is_of_process(&self) -> bool {
        matches!(self, Self::Udp(_))
    }

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
