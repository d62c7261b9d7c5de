//! Whether a path is plain. Pure.

use std::net::IpAddr;

use thiserror::Error;

use crate::netlink::{Dependence, Link, RouteAnswer, RouteType, TunnelFlow, XfrmPolicy};

/// `ARPHRD_ETHER` of linux/if_arp.h.
const ARPHRD_ETHER: u16 = 1;

/// What is the same for all peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Our outer source address.
    pub source: IpAddr,
    /// The tunnel's UDP port.
    pub port: u16,
    /// The external interface, if it is still there.
    pub device: Option<Link>,
    /// A routing rule that looks at more than a route lookup tells it.
    pub rule: Option<Dependence>,
    /// IPsec policies for packets that leave.
    pub policies: Vec<XfrmPolicy>,
    /// The IPsec default for packets that no policy covers is to block them.
    pub policy_default_blocks: bool,
}

/// A plain path: by this device to this next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Interface index of the external interface.
    pub oif: u32,
    /// A gateway, or the peer itself.
    pub next_hop: IpAddr,
    /// Largest outer IP packet in bytes: the device's MTU, or the route's where that is smaller.
    pub mtu: u32,
}

/// Why a path is not plain. The kernel carries such a peer's packets, in every mode.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotPlain {
    /// Not asked yet.
    #[error("the route is not known yet")]
    Unknown,
    /// The rules or policies that may apply cannot be read.
    #[error("what applies to the path cannot be read: {error}")]
    Unreadable {
        /// Why.
        error: String,
    },
    /// The kernel finds none.
    #[error("no route: {error}")]
    NoRoute {
        /// What the kernel said.
        error: String,
    },
    /// A route that leads nowhere, or back to us.
    #[error("the route is of type {0:?}")]
    NotUnicast(RouteType),
    /// The external interface is gone.
    #[error("the external interface is gone")]
    NoDevice,
    /// The external interface is down.
    #[error("{0} is down")]
    DeviceDown(String),
    /// The external interface is no Ethernet device.
    #[error("{name} is no Ethernet device (ARPHRD {arphrd})")]
    NotEthernet {
        /// Its name.
        name: String,
        /// Its hardware type.
        arphrd: u16,
    },
    /// The route leaves elsewhere.
    #[error("the route leaves by interface {oif}, not by {name}")]
    OtherDevice {
        /// The route's interface index.
        oif: u32,
        /// The external interface.
        name: String,
    },
    /// The route has several next hops.
    #[error("the route has several next hops")]
    Multipath,
    /// The route encapsulates by itself.
    #[error("the route has an encapsulation of its own")]
    LightweightTunnel,
    /// The gateway's address is of the other family.
    #[error("the gateway {0} is of the other address family")]
    GatewayFamily(IpAddr),
    /// A routing rule looks at more.
    #[error("{0}")]
    Rule(Dependence),
    /// An IPsec policy covers the tunnel.
    #[error("IPsec policy {index} covers the tunnel")]
    Ipsec {
        /// The kernel's number of it.
        index: u32,
    },
    /// IPsec blocks what no policy covers.
    #[error("the IPsec default policy blocks outgoing packets")]
    IpsecDefault,
}

/// The path a route lookup gives for `peer`, if it is plain.
pub fn judge(facts: &Facts, peer: IpAddr, answer: &RouteAnswer) -> Result<Path, NotPlain> {
    let device = facts.device.as_ref().ok_or(NotPlain::NoDevice)?;
    if device.arphrd != ARPHRD_ETHER {
        return Err(NotPlain::NotEthernet { name: device.name.clone(), arphrd: device.arphrd });
    }
    if !device.up {
        return Err(NotPlain::DeviceDown(device.name.clone()));
    }
    if let Some(dependence) = facts.rule {
        return Err(NotPlain::Rule(dependence));
    }
    covered_by_ipsec(facts, peer)?;
    let next_hop = next_hop(peer, answer)?;
    match answer.oif {
        Some(oif) if oif == device.index => {
            let mtu = answer.mtu.map_or(device.mtu, |mtu| mtu.min(device.mtu));
            Ok(Path { oif, next_hop, mtu })
        }
        oif => Err(NotPlain::OtherDevice { oif: oif.unwrap_or_default(), name: device.name.clone() }),
    }
}

fn covered_by_ipsec(facts: &Facts, peer: IpAddr) -> Result<(), NotPlain> {
    let flow = TunnelFlow { src: facts.source, dst: peer, dport: facts.port };
    match facts.policies.iter().find(|policy| policy.covers(&flow)) {
        Some(policy) => Err(NotPlain::Ipsec { index: policy.index }),
        None if facts.policy_default_blocks => Err(NotPlain::IpsecDefault),
        None => Ok(()),
    }
}

fn next_hop(peer: IpAddr, answer: &RouteAnswer) -> Result<IpAddr, NotPlain> {
    if answer.kind != RouteType::Unicast {
        return Err(NotPlain::NotUnicast(answer.kind));
    }
    if answer.multipath {
        return Err(NotPlain::Multipath);
    }
    if answer.lwtunnel {
        return Err(NotPlain::LightweightTunnel);
    }
    match answer.gateway {
        None => Ok(peer),
        Some(gateway) if gateway.is_ipv4() == peer.is_ipv4() => Ok(gateway),
        Some(gateway) => Err(NotPlain::GatewayFamily(gateway)),
    }
}

/// The device of a peer on our own segment: one route, without a gateway, as stock flannel decides it.
pub(super) fn neighbour_device(answer: &RouteAnswer) -> Option<u32> {
    let direct = answer.kind == RouteType::Unicast && answer.gateway.is_none() && !answer.multipath && !answer.lwtunnel;
    answer.oif.filter(|_| direct)
}
