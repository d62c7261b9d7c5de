//! A node, and the ways to its peers. Pure.

use std::net::IpAddr;

use flannel_common::packet::addr::Mac;
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
    /// As the backend carries them, which the programs do not.
    Carried(&'static CarriedWay),
    /// Not at all: the peer is not on our own link, and the backend has no tunnel.
    NotOnLink,
}

/// The way of a backend that carries packets itself: by a device, a process, or routes of others.
#[derive(Debug, PartialEq, Eq)]
pub struct CarriedWay {
    /// Its name, in every output.
    pub name: &'static str,
    /// The place at which packets leave the kernel's routes.
    pub exit: CarriedExit,
    /// The addresses of a peer to which echo requests go.
    pub echo: EchoAddress,
}

/// The place at which packets that a backend carries leave the kernel's routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarriedExit {
    /// The tunnel device.
    TunnelDevice,
    /// The external interface.
    ExternalInterface,
    /// Policies in front of the external interface. The programs have no entry for such a peer.
    Policies,
}

/// The addresses of a peer to which echo requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EchoAddress {
    /// That of its tunnel device if it has one, else its public address.
    End,
    /// The first address of its subnet, which its tunnel device has.
    Subnet,
    /// The one of its subnet that its host has as the gateway of pods, and its public address.
    GatewayAndHost,
}

impl Way {
    /// The names of the ways that are not a backend's own.
    pub const COMMON: [&str; 4] = ["direct", "tunnel", "kernel", "none"];

    /// The name, in every output.
    pub const fn name(&self) -> &'static str {
        let [direct, tunnel, kernel, none] = Self::COMMON;
        match self {
            Self::Direct(_) => direct,
            Self::Tunnel(Ok(_)) => tunnel,
            Self::Tunnel(Err(_)) => kernel,
            Self::Carried(way) => way.name,
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
