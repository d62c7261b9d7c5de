//! Decides if a path is plain. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use flannel_common::abi::maps::PEERS_MAX;
use flannel_netlink::{Dependence, Link, RouteAnswer, RouteType, TunnelFlow, XfrmPolicy};
use thiserror::Error;

use crate::offload::OffloadSetting;

/// The facts that are the same for all peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderlayFacts {
    /// Our outer source address.
    pub source: IpAddr,
    /// The tunnel's UDP port.
    pub port: u16,
    /// A routing rule that matches on more than a route lookup passes to it.
    pub rule: Option<Dependence>,
    /// IPsec policies for packets that leave.
    pub policies: Vec<XfrmPolicy>,
    /// The IPsec default for packets that no policy covers is to block them.
    pub policy_default_blocks: bool,
}

/// The devices routes lead by, by interface index; one that is not there was asked for in vain.
pub type RouteDevices = BTreeMap<u32, Result<Link, NotPlain>>;

/// A device by which outer packets to a peer may leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// Interface index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Largest outer IP packet in bytes: the device's MTU, or the route's where that is smaller.
    pub mtu: u32,
}

/// A plain path: nothing on it looks at more than the programs know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The devices packets may leave by; at least one. Peers whose packets leave by the same share
    /// them.
    pub uplinks: Arc<[Uplink]>,
    /// A gateway, or the peer itself. `None` if each packet needs a lookup in the kernel's FIB:
    /// with several next hops, or with a gateway whose address is of the other family.
    pub next_hop: Option<IpAddr>,
}

impl Path {
    /// Largest outer IP packet in bytes that may leave by any of its devices.
    pub fn mtu(&self) -> u32 {
        self.uplinks
            .iter()
            .map(|uplink| uplink.mtu)
            .min()
            .unwrap_or_default()
    }
}

/// The reason why a path is not plain. The kernel carries such a peer's packets, in every mode.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotPlain {
    /// Not asked yet.
    #[error("the route is not known yet")]
    Unknown,
    /// The rules or policies that may apply cannot be read.
    #[error("what applies to the path cannot be read: {error}")]
    Unreadable {
        /// The error.
        error: String,
    },
    /// The kernel finds none.
    #[error("no route: {error}")]
    NoRoute {
        /// The kernel's error.
        error: String,
    },
    /// A route that leads nowhere, or back to us.
    #[error("the route is of type {0:?}")]
    NotUnicast(RouteType),
    /// The device of the route is gone.
    #[error("the route leaves by interface {0}, which is gone")]
    NoDevice(u32),
    /// The device of the route is down.
    #[error("{0} is down")]
    DeviceDown(String),
    /// The route leaves by something else than an Ethernet device.
    #[error("{name} is no Ethernet device (ARPHRD {arphrd})")]
    NotEthernet {
        /// Its name.
        name: String,
        /// Its hardware type.
        arphrd: u16,
    },
    /// The route leads into a tunnel of this port, perhaps our own.
    #[error("the route leads back into a tunnel, {0}")]
    ThroughTunnel(String),
    /// The route encapsulates by itself.
    #[error("the route has an encapsulation of its own")]
    LightweightTunnel,
    /// The kernel does not show the next hops.
    #[error(
        "the kernel names nexthop object {0} and not where it leads (net.ipv4.nexthop_compat_mode \
         is 0)"
    )]
    HiddenNexthop(u32),
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
        /// The number of subnets.
        subnets: u64,
    },
    /// The programs send UDP over IPv6 without a checksum, which the peer has to allow.
    #[error("the node does not announce that it takes UDP over IPv6 without a checksum")]
    WantsChecksum,
    /// A device on the way drops UDP over IPv6 without a checksum.
    #[error(
        "packets without an outer UDP checksum, as the BPF programs send them over IPv6, are lost \
         on the way to it, and \
         others arrive: a firewall between the nodes may drop them. Let it accept them, and \
         restart the agent"
    )]
    LosesUnsummed,
    /// The tunnel device has to change packets that the programs would send past it.
    #[error("{0}")]
    Offload(OffloadSetting),
    /// IPsec blocks what no policy covers.
    #[error("the IPsec default policy blocks outgoing packets")]
    IpsecDefault,
}

/// The path a route lookup gives for `peer`, if it is plain. Of several next hops those are left
/// out that are not fit for the programs; packets for which the kernel chooses one of these are its
/// own.
pub fn judge(
    facts: &UnderlayFacts,
    devices: &RouteDevices,
    peer: IpAddr,
    answer: &RouteAnswer,
) -> Result<Path, NotPlain> {
    if let Some(dependence) = facts.rule {
        return Err(NotPlain::Rule(dependence));
    }
    let devices_led_by = by_devices(answer);
    covered_by_ipsec(facts, peer, |device| !devices_led_by.contains(&device))?;
    if answer.kind != RouteType::Unicast {
        return Err(NotPlain::NotUnicast(answer.kind));
    }
    if answer.lwtunnel {
        return Err(NotPlain::LightweightTunnel);
    }
    let mut uplinks = Vec::new();
    let mut unfit = None;
    for index in devices_led_by {
        let covered = covered_by_ipsec(facts, peer, |device| device == index);
        match covered.and_then(|()| uplink(facts, devices, index, answer.mtu)) {
            Ok(uplink) => uplinks.push(uplink),
            Err(why) => unfit = unfit.or(Some(why)),
        }
    }
    if uplinks.is_empty() {
        let hidden = answer
            .nexthop
            .map_or(NotPlain::Unknown, NotPlain::HiddenNexthop);
        return Err(unfit.unwrap_or(hidden));
    }
    let next_hop = (!answer.is_multipath() && !answer.gateway_of_other_family(peer))
        .then(|| answer.gateway.unwrap_or(peer));
    Ok(Path {
        uplinks: uplinks.into(),
        next_hop,
    })
}

/// The devices by which a route leads, each once.
pub fn by_devices(answer: &RouteAnswer) -> BTreeSet<u32> {
    answer
        .hops
        .iter()
        .map(|hop| hop.oif)
        .chain(answer.oif)
        .collect()
}

fn uplink(
    facts: &UnderlayFacts,
    devices: &RouteDevices,
    index: u32,
    route_mtu: Option<u32>,
) -> Result<Uplink, NotPlain> {
    let device = devices
        .get(&index)
        .ok_or(NotPlain::Unknown)?
        .as_ref()
        .map_err(Clone::clone)?;
    if device.arphrd != Link::ETHER {
        return Err(NotPlain::NotEthernet {
            name: device.name.clone(),
            arphrd: device.arphrd,
        });
    }
    if !device.up {
        return Err(NotPlain::DeviceDown(device.name.clone()));
    }
    if device
        .vxlan
        .as_ref()
        .is_some_and(|tunnel| tunnel.port == facts.port)
    {
        return Err(NotPlain::ThroughTunnel(device.name.clone()));
    }
    let mtu = route_mtu.map_or(device.mtu, |mtu| mtu.min(device.mtu));
    Ok(Uplink {
        index,
        name: device.name.clone(),
        mtu,
    })
}

/// Of policies for the devices asked about; 0 is any device.
fn covered_by_ipsec(
    facts: &UnderlayFacts,
    peer: IpAddr,
    is_for: impl Fn(u32) -> bool,
) -> Result<(), NotPlain> {
    let flow = TunnelFlow {
        src: facts.source,
        dst: peer,
        dport: facts.port,
    };
    match facts
        .policies
        .iter()
        .find(|policy| is_for(policy.selector.ifindex) && policy.covers(&flow))
    {
        Some(policy) => Err(NotPlain::Ipsec {
            index: policy.index,
        }),
        None if facts.policy_default_blocks => Err(NotPlain::IpsecDefault),
        None => Ok(()),
    }
}

/// The device of a peer on our own segment: one route, without a gateway, as stock flannel decides
/// it.
pub(super) fn neighbour_device(answer: &RouteAnswer) -> Option<u32> {
    let direct = answer.kind == RouteType::Unicast
        && answer.gateway.is_none()
        && !answer.is_multipath()
        && !answer.lwtunnel;
    answer.oif.filter(|_| direct)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flannel_netlink::{PortMask, RouteHop, RuleSelector, VxlanInfo, XfrmAction, XfrmSelector};

    const PEER: &str = "192.168.2.9";

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn eth0() -> Link {
        Link::ethernet(2, "eth0", 1500)
    }

    fn devices() -> RouteDevices {
        having([eth0(), Link::ethernet(3, "eth1", 9000)])
    }

    fn having(links: impl IntoIterator<Item = Link>) -> RouteDevices {
        links
            .into_iter()
            .map(|link| (link.index, Ok(link)))
            .collect()
    }

    fn facts() -> UnderlayFacts {
        UnderlayFacts {
            source: ip("192.168.1.1"),
            port: 8472,
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
            hops: Vec::new(),
            nexthop: None,
            lwtunnel: false,
            src: None,
        }
    }

    /// A route by these devices.
    fn several(by: &[u32]) -> RouteAnswer {
        let hop = |oif: &u32| RouteHop {
            oif: *oif,
            gateway: Some(ip("192.168.1.254")),
        };
        RouteAnswer {
            oif: None,
            gateway: None,
            hops: by.iter().map(hop).collect(),
            ..via_gateway()
        }
    }

    fn verdict(facts: &UnderlayFacts, answer: &RouteAnswer) -> Result<Path, NotPlain> {
        judge(facts, &devices(), ip(PEER), answer)
    }

    fn uplink(index: u32, name: &str, mtu: u32) -> Uplink {
        Uplink {
            index,
            name: name.to_owned(),
            mtu,
        }
    }

    #[test]
    fn the_next_hop_is_the_gateway_or_the_peer() {
        let path = |next_hop| {
            Ok(Path {
                uplinks: [uplink(2, "eth0", 1500)].into(),
                next_hop,
            })
        };
        assert_eq!(
            verdict(&facts(), &via_gateway()),
            path(Some(ip("192.168.1.254")))
        );
        let attached = RouteAnswer {
            gateway: None,
            ..via_gateway()
        };
        assert_eq!(verdict(&facts(), &attached), path(Some(ip(PEER))));
        let of_other_family = RouteAnswer {
            gateway: Some(ip("fe80::1")),
            ..via_gateway()
        };
        assert_eq!(
            verdict(&facts(), &of_other_family),
            path(None),
            "the kernel is asked"
        );
    }

    #[test]
    fn of_several_next_hops_the_kernel_chooses() {
        let path = |uplinks: &[Uplink]| {
            Ok(Path {
                uplinks: uplinks.into(),
                next_hop: None,
            })
        };
        let (eth0, eth1) = (uplink(2, "eth0", 1500), uplink(3, "eth1", 9000));
        assert_eq!(
            verdict(&facts(), &several(&[2, 3])),
            path(&[eth0.clone(), eth1])
        );
        assert_eq!(
            verdict(&facts(), &several(&[2, 2])),
            path(std::slice::from_ref(&eth0)),
            "two gateways on one segment"
        );
        assert_eq!(
            verdict(&facts(), &several(&[2, 3])).map(|path| path.mtu()),
            Ok(1500)
        );
        let bounded = RouteAnswer {
            mtu: Some(1400),
            ..several(&[2, 3])
        };
        let path = path(&[uplink(2, "eth0", 1400), uplink(3, "eth1", 1400)]);
        assert_eq!(verdict(&facts(), &bounded), path);
    }

    #[test]
    fn next_hops_that_are_not_fit_are_left_out() {
        let down = having([
            eth0(),
            Link {
                up: false,
                ..Link::ethernet(3, "eth1", 1500)
            },
        ]);
        let judged = judge(&facts(), &down, ip(PEER), &several(&[2, 3]));
        assert_eq!(
            judged,
            Ok(Path {
                uplinks: [uplink(2, "eth0", 1500)].into(),
                next_hop: None
            })
        );
        let judged = judge(&facts(), &down, ip(PEER), &several(&[3, 9]));
        assert_eq!(
            judged,
            Err(NotPlain::DeviceDown("eth1".to_owned())),
            "none is left"
        );
    }

    #[test]
    fn the_smaller_mtu_counts() {
        let mtu = |mtu| {
            verdict(
                &facts(),
                &RouteAnswer {
                    mtu,
                    ..via_gateway()
                },
            )
            .map(|path| path.mtu())
        };
        assert_eq!(mtu(Some(1300)), Ok(1300));
        assert_eq!(mtu(Some(9000)), Ok(1500));
        assert_eq!(mtu(None), Ok(1500));
    }

    #[test]
    fn routes_that_lead_elsewhere_are_not_plain() {
        let refused = |answer: RouteAnswer| verdict(&facts(), &answer).expect_err("not plain");
        assert_eq!(
            refused(RouteAnswer {
                lwtunnel: true,
                ..via_gateway()
            }),
            NotPlain::LightweightTunnel
        );
        for kind in [
            RouteType::Local,
            RouteType::Unreachable,
            RouteType::BlackHole,
        ] {
            assert_eq!(
                refused(RouteAnswer {
                    kind,
                    ..via_gateway()
                }),
                NotPlain::NotUnicast(kind)
            );
        }
    }

    #[test]
    fn the_device_has_to_be_there_up_ethernet_and_no_tunnel_of_ours() {
        let with =
            |devices| judge(&facts(), &devices, ip(PEER), &via_gateway()).expect_err("not plain");
        assert_eq!(
            with(RouteDevices::from([(2, Err(NotPlain::NoDevice(2)))])),
            NotPlain::NoDevice(2)
        );
        assert_eq!(
            with(having([Link {
                up: false,
                ..eth0()
            }])),
            NotPlain::DeviceDown("eth0".to_owned())
        );
        let wireguard = Link {
            arphrd: 65534,
            ..eth0()
        };
        assert_eq!(
            with(having([wireguard])),
            NotPlain::NotEthernet {
                name: "eth0".to_owned(),
                arphrd: 65534
            }
        );
        let vxlan = Some(VxlanInfo {
            port: 8472,
            ..VxlanInfo::default()
        });
        let tunnel = NotPlain::ThroughTunnel("eth0".to_owned());
        assert_eq!(with(having([Link { vxlan, ..eth0() }])), tunnel);
    }

    #[test]
    fn rules_on_more_than_a_lookup_takes_are_not_plain() {
        let rule = Dependence {
            priority: 100,
            on: RuleSelector::FwMark,
        };
        let facts = UnderlayFacts {
            rule: Some(rule),
            ..facts()
        };
        assert_eq!(verdict(&facts, &via_gateway()), Err(NotPlain::Rule(rule)));
    }

    /// A policy for packets to these addresses that leave by this device; 0 is any.
    fn policy(dst: &str, ifindex: u32) -> XfrmPolicy {
        XfrmPolicy {
            selector: XfrmSelector {
                prefixes: Some((
                    "0.0.0.0/0".parse().expect("a prefix"),
                    dst.parse().expect("a prefix"),
                )),
                proto: 0,
                sport: PortMask::default(),
                dport: PortMask::default(),
                ifindex,
            },
            action: XfrmAction::Block,
            has_templates: false,
            priority: 0,
            index: 7,
            if_id: 0,
        }
    }

    #[test]
    fn ipsec_policies_count_where_they_cover_the_tunnel() {
        let with = |policy| {
            verdict(
                &UnderlayFacts {
                    policies: vec![policy],
                    ..facts()
                },
                &via_gateway(),
            )
        };
        assert_eq!(
            with(policy("192.168.2.0/24", 0)),
            Err(NotPlain::Ipsec { index: 7 })
        );
        assert!(with(policy("192.168.3.0/24", 0)).is_ok());
        let blocked = UnderlayFacts {
            policy_default_blocks: true,
            ..facts()
        };
        assert_eq!(
            verdict(&blocked, &via_gateway()),
            Err(NotPlain::IpsecDefault)
        );
    }

    #[test]
    fn an_ipsec_policy_for_one_device_covers_that_uplink_alone() {
        let with = |ifindex, answer| {
            verdict(
                &UnderlayFacts {
                    policies: vec![policy("192.168.2.0/24", ifindex)],
                    ..facts()
                },
                &answer,
            )
        };
        let rest = Ok(Path {
            uplinks: [uplink(2, "eth0", 1500)].into(),
            next_hop: None,
        });
        assert_eq!(with(3, several(&[2, 3])), rest);
        let covered = Err(NotPlain::Ipsec { index: 7 });
        assert_eq!(with(2, via_gateway()), covered, "the only uplink");
        // Such as a VRF, by which the route does not say to lead.
        assert_eq!(
            with(9, several(&[2, 3])),
            covered,
            "a device of another kind"
        );
    }

    #[test]
    fn a_neighbour_is_reached_by_one_route_without_a_gateway() {
        let attached = RouteAnswer {
            gateway: None,
            ..via_gateway()
        };
        assert_eq!(neighbour_device(&attached), Some(2));
        assert_eq!(neighbour_device(&via_gateway()), None);
        assert_eq!(neighbour_device(&several(&[2, 3])), None);
        assert_eq!(
            neighbour_device(&RouteAnswer {
                kind: RouteType::Local,
                ..attached
            }),
            None
        );
    }
}
