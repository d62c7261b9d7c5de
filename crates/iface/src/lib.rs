//! Choosing the external interface: the one whose addresses peers send to, the same for every
//! family.
//!
//! [`select`] is pure, over [`Host`], one reading of the kernel's state. An interface is chosen
//! only if it serves every family asked for.
//!
//! Order, as in stock flannel: each `--iface` in turn, then each `--iface-regex`, then
//! `--iface-can-reach`; first success wins. Without any, `--public-ip` and `--public-ipv6` as if
//! given to `--iface`, so then they have to be local addresses. Without either, the default routes'
//! interface. Interfaces that are down or without a carrier count only if no other one fits.
//! Devices of pods (`devices`) never count. Of several addresses `address` decides.
//! [`Follower`] keeps the choice up to date.

mod address;
#[cfg(test)]
mod cases;
mod default_route;
mod devices;
mod error;
mod follow;
mod known_address;
mod pattern;
mod pods;
#[cfg(test)]
mod tests;
mod way;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use flannel_host::family::Family;
use flannel_netlink::{Address, Link, Netlink, NetlinkError, RouteType};
use ipnet::IpNet;

use self::way::{Candidate, Selector, best_address};
pub use self::{
    default_route::DefaultRoute,
    devices::PodDevice,
    error::{Candidates, IfaceError, Rejection},
    follow::{Follower, InterfaceChange, Lost},
    pattern::{BadPattern, NamePattern},
    pods::AddressInPods,
};

/// The operator's choice of interface and of public addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IfaceOptions {
    /// `--iface`, in order: an interface name or a local address each.
    pub iface: Vec<String>,
    /// `--iface-regex`, in order.
    pub patterns: Vec<NamePattern>,
    /// `--iface-can-reach`.
    pub can_reach: Option<IpAddr>,
    /// `--public-ip`.
    pub public_ip: Option<Ipv4Addr>,
    /// `--public-ipv6`.
    pub public_ipv6: Option<Ipv6Addr>,
}

impl IfaceOptions {
    /// Returns the address to publish to peers instead of the interface's own, if one was given.
    pub fn public(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.public_ip.map(IpAddr::V4),
            Family::V6 => self.public_ipv6.map(IpAddr::V6),
        }
    }

    fn publics(&self, families: &[Family]) -> impl Iterator<Item = IpAddr> {
        families.iter().filter_map(|family| self.public(*family))
    }
}

/// The external interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalInterface {
    /// Interface index.
    pub index: u32,
    /// Interface name.
    pub name: String,
    /// MTU in bytes, never 0.
    pub mtu: u32,
    /// Hardware type, `ARPHRD_*`.
    pub arphrd: u16,
    /// Our ends of the paths to peers, by family.
    pub ends: BTreeMap<Family, End>,
}

impl ExternalInterface {
    /// Returns its own and its public addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.ends.values().flat_map(|end| [end.addr, end.public])
    }
}

/// Our end of the paths to the peers of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// The interface's own address.
    pub addr: IpAddr,
    /// The address peers send to; differs from `addr` behind NAT.
    pub public: IpAddr,
    /// Source of outer packets: the public address if this host has it, else the interface's own.
    /// In the latter case the public address belongs to a NAT in front of this node.
    pub source: IpAddr,
}

/// The state of the host that the selection is based on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// All links.
    pub links: Vec<Link>,
    /// All addresses, in kernel order.
    pub addresses: Vec<Address>,
    /// The default routes, of each family the one with the lowest metric first.
    pub defaults: Vec<DefaultRoute>,
    /// The pod networks.
    pub pods: Vec<IpNet>,
    /// The interface and source by which the address of `--iface-can-reach` is reached, if it is.
    pub reach: Option<Reach>,
}

/// By which interface, and from which of its addresses, packets to some address leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// The interface.
    pub ifindex: u32,
    /// The address; `None` when the kernel names none.
    pub source: Option<IpAddr>,
}

impl Host {
    /// Reads what the choice by these options depends on.
    pub async fn read(
        netlink: &Netlink,
        families: &[Family],
        options: &IfaceOptions,
        pods: &[IpNet],
    ) -> Result<Self, NetlinkError> {
        let (links, addresses) = (netlink.links().await?, netlink.addresses().await?);
        let mut host = Self {
            links,
            addresses,
            pods: pods.to_vec(),
            ..Self::default()
        };
        for family in families {
            host.defaults
                .extend(DefaultRoute::read(netlink, *family).await?);
        }
        if let Some(target) = options.can_reach {
            host.reach = Reach::read(netlink, target, &host).await?;
        }
        Ok(host)
    }

    /// The same host with no other interface than this one, and the one it is a port of.
    fn narrowed_to(&self, link: &Link) -> Self {
        let is_kept =
            |other: &&Link| other.index == link.index || Some(other.index) == link.controller;
        Self {
            links: self.links.iter().filter(is_kept).cloned().collect(),
            ..self.clone()
        }
    }

    /// The same host without interfaces that are down or have no carrier, and without their routes.
    fn alive(&self) -> Self {
        let is_alive = |link: &&Link| link.up && link.running;
        let links: Vec<_> = self.links.iter().filter(is_alive).cloned().collect();
        let is_kept = |route: &DefaultRoute| links.iter().any(|link| link.index == route.ifindex);
        let defaults = self.defaults.iter().copied().filter(is_kept).collect();
        Self {
            links,
            defaults,
            ..self.clone()
        }
    }

    fn candidates(&self) -> Candidates {
        Candidates::of(self)
    }

    fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }

    /// Returns the role of a link, if it carries pods or tunnels between nodes.
    fn role(&self, link: &Link) -> Option<PodDevice> {
        devices::role(link, &self.links, &self.addresses, &self.pods)
    }

    fn is_of_pods(&self, index: u32) -> bool {
        self.link(index)
            .is_some_and(|link| self.role(link).is_some())
    }

    /// The link that has an address: rather one that can be the external interface.
    fn owner(&self, addr: IpAddr) -> Option<&Link> {
        devices::owner(addr, &self.links, &self.addresses, |link| {
            self.role(link).is_some()
        })
    }

    /// Returns true if a default route of each of these families leaves by the link.
    fn has_defaults(&self, families: &[Family], index: u32) -> bool {
        let leaves = |family: &Family| {
            self.defaults
                .iter()
                .any(|route| route.family == *family && route.ifindex == index)
        };
        families.iter().all(leaves)
    }
}

impl Reach {
    async fn read(
        netlink: &Netlink,
        target: IpAddr,
        host: &Host,
    ) -> Result<Option<Self>, NetlinkError> {
        let answer = netlink.route_from_here(target).await?;
        Ok(match answer.kind {
            RouteType::Unicast => answer.oif.map(|ifindex| Self {
                ifindex,
                source: answer.src,
            }),
            // Our own address: packets to it take the loopback, and the interface meant is the one
            // that has it.
            RouteType::Local => host.owner(target).map(|link| Self {
                ifindex: link.index,
                source: Some(target),
            }),
            _ => None,
        })
    }
}

/// Chooses the external interface for these families. Pure.
pub fn select(
    options: &IfaceOptions,
    families: &[Family],
    host: &Host,
) -> Result<ExternalInterface, IfaceError> {
    select_among(options, families, &host.alive())
        .or_else(|_| select_among(options, families, host))
}

/// The same, and an interface that is down counts as one that is up.
fn select_among(
    options: &IfaceOptions,
    families: &[Family],
    host: &Host,
) -> Result<ExternalInterface, IfaceError> {
    let ways = Selector::all(options);
    let found = if !ways.is_empty() {
        first_that_fits(&ways, families, host)?
    } else if options.publics(families).next().is_some() {
        by_public_address(options, families, host)?
    } else {
        by_default_route(families, host)?
    };
    Ok(found.publish(options, host))
}

fn first_that_fits(
    ways: &[Selector<'_>],
    families: &[Family],
    host: &Host,
) -> Result<Candidate, IfaceError> {
    let (mut tried, mut can_come) = (Vec::new(), false);
    for way in ways {
        match way.find(families, host) {
            Ok(found) => return Ok(found),
            Err(why) => {
                can_come |= way.can_come(&why);
                tried.push((way.to_string(), why));
            }
        }
    }
    Err(IfaceError::NoneFits {
        tried,
        can_come,
        candidates: host.candidates(),
    })
}

/// The interface that has the public addresses, all of them.
fn by_public_address(
    options: &IfaceOptions,
    families: &[Family],
    host: &Host,
) -> Result<Candidate, IfaceError> {
    let mut chosen: Option<&Link> = None;
    for public in options.publics(families) {
        let refused = |why| IfaceError::PublicNotLocal {
            public,
            why,
            candidates: host.candidates(),
        };
        let link = Selector::LocalAddress(public)
            .link(families, host)
            .map_err(refused)?;
        if let Some(first) = chosen.filter(|first| first.index != link.index) {
            return Err(refused(Rejection::NotOn(first.name.clone())));
        }
        chosen = Some(link);
    }
    usable(chosen, host, |link| {
        Candidate::with(link, families, |family| {
            options
                .public(family)
                .map_or_else(|| best_address(family, link, host), Ok)
        })
    })
}

/// The default routes of all families, which have to lead to one interface.
fn by_default_route(families: &[Family], host: &Host) -> Result<Candidate, IfaceError> {
    let mut common: Option<Vec<&Link>> = None;
    for family in families.iter().copied() {
        let links = links_by_default_route(family, host)?;
        common = Some(match common {
            None => links,
            Some(first) => in_both(&first, &links, host)?,
        });
    }
    let common = common.unwrap_or_default();
    let serves = |link: &&&Link| Candidate::on(link, families, host).is_ok();
    let chosen = common
        .iter()
        .find(serves)
        .or_else(|| common.first())
        .copied();
    usable(chosen, host, |link| Candidate::on(link, families, host))
}

fn in_both<'h>(v4: &[&'h Link], v6: &[&'h Link], host: &Host) -> Result<Vec<&'h Link>, IfaceError> {
    let is_in_v6 = |link: &&Link| v6.iter().any(|other| other.index == link.index);
    let both: Vec<_> = v4.iter().copied().filter(is_in_v6).collect();
    if both.is_empty() {
        let [v4, v6] = [v4, v6].map(|links| {
            links
                .iter()
                .map(|link| link.name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        });
        return Err(IfaceError::DefaultRoutesDiffer {
            v4,
            v6,
            candidates: host.candidates(),
        });
    }
    Ok(both)
}

/// The interface of the first default route that does not lead into pods or a tunnel. There are
/// several, best first and never none, where that route has several next hops.
fn links_by_default_route(family: Family, host: &Host) -> Result<Vec<&Link>, IfaceError> {
    let mut missing = IfaceError::NoDefaultRoute {
        family,
        candidates: host.candidates(),
    };
    let (mut found, mut metric) = (Vec::new(), None);
    for route in host.defaults.iter().filter(|route| route.family == family) {
        // An interface may be gone since.
        let Some(link) = host.link(route.ifindex) else {
            continue;
        };
        match host.role(link) {
            Some(role) => {
                let name = link.name.clone();
                missing = IfaceError::DefaultRouteOfPods {
                    family,
                    name,
                    role,
                    candidates: host.candidates(),
                };
            }
            None if metric.is_some_and(|metric| metric != route.metric) => break,
            None => {
                metric = Some(route.metric);
                found.push(link);
            }
        }
    }
    if found.is_empty() {
        Err(missing)
    } else {
        Ok(found)
    }
}

fn usable(
    link: Option<&Link>,
    host: &Host,
    found: impl FnOnce(&Link) -> Result<Candidate, Rejection>,
) -> Result<Candidate, IfaceError> {
    let link = link.ok_or_else(|| IfaceError::NoneFits {
        tried: Vec::new(),
        can_come: true,
        candidates: host.candidates(),
    })?;
    found(link).map_err(|why| IfaceError::Unusable {
        name: link.name.clone(),
        why,
        candidates: host.candidates(),
    })
}
