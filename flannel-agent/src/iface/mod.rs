//! Choosing the external interface: the one whose addresses peers send to, the same for every
//! family.
//!
//! [`select`] is pure, over [`Host`], one reading of the kernel's state. An interface is chosen
//! only if it serves every family asked for.
//!
//! Order, as in stock flannel: each `--iface` in turn, then each `--iface-regex`, then
//! `--iface-can-reach`; first success wins. Without any, `--public-ip` and `--public-ipv6` as if
//! given to `--iface`, so then they have to be local addresses. Without either, the default routes'
//! interface. What was chosen is kept up with by [`follow()`].

mod address;
mod error;
mod follow;
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
use flannel_netlink::{Address, Link, Netlink, NetlinkError, Route, RouteKey, RouteType};

use self::way::{Candidate, Selector, best_address};
pub use self::{
    error::{Candidates, IfaceError, Rejection},
    follow::{Followed, Lost, follow},
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
    /// The routes of the main table, in kernel order, if the default route decides. Only the
    /// default routes count.
    pub routes: Vec<(RouteKey, Route)>,
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
    /// Reads the state of the host as far as selecting by these options needs it.
    pub async fn read(netlink: &Netlink, families: &[Family], options: &IfaceOptions) -> Result<Self, NetlinkError> {
        let mut routes = Vec::new();
        if Selector::all(options).is_empty() && options.publics(families).next().is_none() {
            for family in families {
                routes.extend(netlink.routes(*family).await?);
            }
        }
        Ok(Self { routes, ..Self::read_devices(netlink, options).await? })
    }

    /// Reads the state of the host as far as [`follow()`] needs it.
    pub async fn read_devices(netlink: &Netlink, options: &IfaceOptions) -> Result<Self, NetlinkError> {
        let (links, addresses) = (netlink.links().await?, netlink.addresses().await?);
        let reach = match options.can_reach {
            Some(target) => Reach::read(netlink, target, &addresses).await?,
            None => None,
        };
        Ok(Self { links, addresses, routes: Vec::new(), reach })
    }

    /// The same host with no other interface than this one.
    fn narrowed_to(&self, link: &Link) -> Self {
        let addresses = self.addresses.iter().filter(|address| address.key.ifindex == link.index);
        let reach = self.reach.filter(|reach| reach.ifindex == link.index);
        Self { links: vec![link.clone()], addresses: addresses.copied().collect(), routes: Vec::new(), reach }
    }

    fn candidates(&self) -> Candidates {
        Candidates::of(&self.links, &self.addresses)
    }

    fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }
}

impl Reach {
    async fn read(netlink: &Netlink, target: IpAddr, addresses: &[Address]) -> Result<Option<Self>, NetlinkError> {
        let answer = netlink.route_from_here(target).await?;
        Ok(match answer.kind {
            RouteType::Unicast => answer.oif.map(|ifindex| Self { ifindex, source: answer.src }),
            // Our own address: packets to it take the loopback, and the interface meant is the one
            // that has it.
            RouteType::Local => {
                let owner = addresses.iter().find(|address| address.key.addr == target);
                owner.map(|address| Self { ifindex: address.key.ifindex, source: Some(target) })
            }
            _ => None,
        })
    }
}

/// Chooses the external interface for these families. Pure.
pub fn select(options: &IfaceOptions, families: &[Family], host: &Host) -> Result<ExternalInterface, IfaceError> {
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

fn first_that_fits(ways: &[Selector<'_>], families: &[Family], host: &Host) -> Result<Candidate, IfaceError> {
    let mut tried = Vec::new();
    for way in ways {
        match way.find(families, host) {
            Ok(found) => return Ok(found),
            Err(why) => tried.push((way.to_string(), why)),
        }
    }
    Err(IfaceError::NoneFits { tried, candidates: host.candidates() })
}

/// The interface that has the public addresses, all of them.
fn by_public_address(options: &IfaceOptions, families: &[Family], host: &Host) -> Result<Candidate, IfaceError> {
    let mut chosen: Option<&Link> = None;
    for public in options.publics(families) {
        let refused = |why| IfaceError::PublicNotLocal { public, why, candidates: host.candidates() };
        let link = Selector::LocalAddress(public).link(families, host).map_err(refused)?;
        if let Some(first) = chosen.filter(|first| first.index != link.index) {
            return Err(refused(Rejection::NotOn(first.name.clone())));
        }
        chosen = Some(link);
    }
    usable(chosen, host, |link| {
        Candidate::with(link, families, |family| {
            options.public(family).map_or_else(|| best_address(family, link, host), Ok)
        })
    })
}

/// The default routes of all families, which have to lead to one interface.
fn by_default_route(families: &[Family], host: &Host) -> Result<Candidate, IfaceError> {
    let mut chosen: Option<&Link> = None;
    for family in families.iter().copied() {
        let default = host.routes.iter().find(|(key, _)| key.dst == family.everything());
        let (_, route) = default.ok_or_else(|| IfaceError::NoDefaultRoute { family, candidates: host.candidates() })?;
        let link = route.oif.and_then(|index| host.link(index));
        let link = link.ok_or_else(|| IfaceError::AmbiguousDefaultRoute { family, candidates: host.candidates() })?;
        if let Some(first) = chosen.filter(|first| first.index != link.index) {
            let [v4, v6] = [first, link].map(|link| link.name.clone());
            return Err(IfaceError::DefaultRoutesDiffer { v4, v6, candidates: host.candidates() });
        }
        chosen = Some(link);
    }
    usable(chosen, host, |link| Candidate::on(link, families, host))
}

fn usable(
    link: Option<&Link>,
    host: &Host,
    found: impl FnOnce(&Link) -> Result<Candidate, Rejection>,
) -> Result<Candidate, IfaceError> {
    let link = link.ok_or_else(|| IfaceError::NoneFits { tried: Vec::new(), candidates: host.candidates() })?;
    found(link).map_err(|why| IfaceError::Unusable { name: link.name.clone(), why, candidates: host.candidates() })
}
