//! A node, and the ways to its peers. Pure.

use std::net::IpAddr;

use flannel_common::addr::Mac;
use flannel_store::Peer;
use ipnet::IpNet;

use crate::{
    PodNetwork,
    underlay::{NotPlain, Path},
};

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
    pub const NAMES: [&str; 10] = [
        "direct",
        "tunnel",
        "kernel",
        "wireguard",
        "ipsec",
        "ipip",
        "udp",
        "extension",
        "cloud",
        "none",
    ];

    /// The name of this one.
    pub const fn name(&self) -> &'static str {
        let [
            direct,
            tunnel,
            kernel,
            wireguard,
            ipsec,
            ipip,
            udp,
            extension,
            cloud,
            none,
        ] = Self::NAMES;
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
