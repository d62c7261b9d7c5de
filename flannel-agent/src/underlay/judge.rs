//! Whether a path is plain. Pure.

use std::net::IpAddr;

use flannel_common::maps::PEERS_MAX;
use thiserror::Error;

use crate::netlink::{Dependence, Link, RouteAnswer, RouteType, TunnelFlow, XfrmPolicy};

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
    /// The programs have no map of a network this large.
    #[error("its network has {subnets} subnets; the peer map holds {PEERS_MAX} at most")]
    NoPeerMap {
        /// How many.
        subnets: u64,
    },
    /// The programs send UDP over IPv6 without a checksum, which the peer has to allow.
    #[error("the node does not announce that it takes UDP over IPv6 without a checksum")]
    WantsChecksum,
    /// IPsec blocks what no policy covers.
    #[error("the IPsec default policy blocks outgoing packets")]
    IpsecDefault,
}

/// The path a route lookup gives for `peer`, if it is plain.
pub fn judge(facts: &Facts, peer: IpAddr, answer: &RouteAnswer) -> Result<Path, NotPlain> {
    let device = facts.device.as_ref().ok_or(NotPlain::NoDevice)?;
    if device.arphrd != Link::ETHER {
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
        Some(gateway) if answer.gateway_of_other_family(peer) => Err(NotPlain::GatewayFamily(gateway)),
        Some(gateway) => Ok(gateway),
    }
}

/// The device of a peer on our own segment: one route, without a gateway, as stock flannel decides it.
pub(super) fn neighbour_device(answer: &RouteAnswer) -> Option<u32> {
    let direct = answer.kind == RouteType::Unicast && answer.gateway.is_none() && !answer.multipath && !answer.lwtunnel;
    answer.oif.filter(|_| direct)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{PortMask, RuleSelector, XfrmAction, XfrmSelector};

    const PEER: &str = "192.168.2.9";

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn device() -> Link {
        Link::ethernet(2, "eth0", 1500)
    }

    fn facts() -> Facts {
        Facts {
            source: ip("192.168.1.1"),
            port: 8472,
            device: Some(device()),
            rule: None,
            policies: Vec::new(),
            policy_default_blocks: false,
        }
    }

    fn via_gateway() -> RouteAnswer {
        RouteAnswer {
            kind: RouteType::Unicast,
            oif: Some(2),
            gateway: Some(ip("192.168.1.254")),
            mtu: None,
            multipath: false,
            nexthop: None,
            lwtunnel: false,
            src: None,
        }
    }

    fn verdict(facts: &Facts, answer: &RouteAnswer) -> Result<Path, NotPlain> {
        judge(facts, ip(PEER), answer)
    }

    #[test]
    fn the_next_hop_is_the_gateway_or_the_peer() {
        let path = Path { oif: 2, next_hop: ip("192.168.1.254"), mtu: 1500 };
        assert_eq!(verdict(&facts(), &via_gateway()), Ok(path));
        let attached = RouteAnswer { gateway: None, ..via_gateway() };
        assert_eq!(verdict(&facts(), &attached), Ok(Path { next_hop: ip(PEER), ..path }));
    }

    #[test]
    fn the_smaller_mtu_counts() {
        let mtu = |mtu| verdict(&facts(), &RouteAnswer { mtu, ..via_gateway() }).map(|path| path.mtu);
        assert_eq!(mtu(Some(1300)), Ok(1300));
        assert_eq!(mtu(Some(9000)), Ok(1500));
        assert_eq!(mtu(None), Ok(1500));
    }

    #[test]
    fn routes_that_lead_elsewhere_are_not_plain() {
        let refused = |answer: RouteAnswer| verdict(&facts(), &answer).expect_err("not plain");
        let other = NotPlain::OtherDevice { oif: 9, name: "eth0".to_owned() };
        assert_eq!(refused(RouteAnswer { oif: Some(9), ..via_gateway() }), other);
        assert_eq!(refused(RouteAnswer { multipath: true, oif: None, ..via_gateway() }), NotPlain::Multipath);
        assert_eq!(refused(RouteAnswer { lwtunnel: true, ..via_gateway() }), NotPlain::LightweightTunnel);
        let v6 = ip("fe80::1");
        assert_eq!(refused(RouteAnswer { gateway: Some(v6), ..via_gateway() }), NotPlain::GatewayFamily(v6));
        for kind in [RouteType::Local, RouteType::Unreachable, RouteType::BlackHole] {
            assert_eq!(refused(RouteAnswer { kind, ..via_gateway() }), NotPlain::NotUnicast(kind));
        }
    }

    #[test]
    fn the_device_has_to_be_there_up_and_ethernet() {
        let with = |device| verdict(&Facts { device, ..facts() }, &via_gateway()).expect_err("not plain");
        assert_eq!(with(None), NotPlain::NoDevice);
        assert_eq!(with(Some(Link { up: false, ..device() })), NotPlain::DeviceDown("eth0".to_owned()));
        let wireguard = Link { arphrd: 65534, ..device() };
        assert_eq!(with(Some(wireguard)), NotPlain::NotEthernet { name: "eth0".to_owned(), arphrd: 65534 });
    }

    #[test]
    fn rules_on_more_than_a_lookup_tells_are_not_plain() {
        let rule = Dependence { priority: 100, on: RuleSelector::FwMark };
        let facts = Facts { rule: Some(rule), ..facts() };
        assert_eq!(verdict(&facts, &via_gateway()), Err(NotPlain::Rule(rule)));
    }

    #[test]
    fn ipsec_policies_count_where_they_cover_the_tunnel() {
        let policy = |dst: &str| XfrmPolicy {
            selector: XfrmSelector {
                prefixes: Some(("0.0.0.0/0".parse().expect("a prefix"), dst.parse().expect("a prefix"))),
                proto: 0,
                sport: PortMask::default(),
                dport: PortMask::default(),
                ifindex: 0,
            },
            action: XfrmAction::Block,
            has_templates: false,
            priority: 0,
            index: 7,
            if_id: 0,
        };
        let with = |policy| verdict(&Facts { policies: vec![policy], ..facts() }, &via_gateway());
        assert_eq!(with(policy("192.168.2.0/24")), Err(NotPlain::Ipsec { index: 7 }));
        assert!(with(policy("192.168.3.0/24")).is_ok());
        let blocked = Facts { policy_default_blocks: true, ..facts() };
        assert_eq!(verdict(&blocked, &via_gateway()), Err(NotPlain::IpsecDefault));
    }

    #[test]
    fn a_neighbour_is_reached_by_one_route_without_a_gateway() {
        let attached = RouteAnswer { gateway: None, ..via_gateway() };
        assert_eq!(neighbour_device(&attached), Some(2));
        assert_eq!(neighbour_device(&via_gateway()), None);
        assert_eq!(neighbour_device(&RouteAnswer { multipath: true, oif: None, ..attached.clone() }), None);
        assert_eq!(neighbour_device(&RouteAnswer { kind: RouteType::Local, ..attached }), None);
    }
}
