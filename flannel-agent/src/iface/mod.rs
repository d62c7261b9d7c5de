//! Choosing the external interface: the one whose address peers send to.
//!
//! [`select`] is pure, over [`Host`], one reading of the kernel's state. It answers for one family; two
//! families are two calls, and whether they must agree on the interface is for the caller.
//!
//! Order, as in stock flannel: each `--iface` in turn, then each `--iface-regex`, then `--iface-can-reach`; first success
//! wins. Without any, `--public-ip` as if it had been given to `--iface`, so then it has to be a local address. Without
//! either, the default route's interface. What was chosen is kept up with by [`follow()`].

mod address;
mod error;
mod follow;
mod pattern;
#[cfg(test)]
mod tests;
mod way;

use std::net::IpAddr;

use self::way::{Found, Way};
pub use self::{
    error::{Candidates, IfaceError, Rejection},
    follow::{Lost, follow},
    pattern::{BadPattern, NamePattern},
};
use crate::family::Family;
use crate::netlink::{Address, Link, Netlink, NetlinkError, Route, RouteKey, RouteType};

/// What the operator asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IfaceOptions {
    /// `--iface`, in order: an interface name or a local address each.
    pub iface: Vec<String>,
    /// `--iface-regex`, in order.
    pub patterns: Vec<NamePattern>,
    /// `--iface-can-reach`.
    pub can_reach: Option<IpAddr>,
    /// `--public-ip` or `--public-ipv6`, whichever is of the family selected for.
    pub public_ip: Option<IpAddr>,
}

/// The external interface, for one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalInterface {
    /// Interface index.
    pub index: u32,
    /// Interface name.
    pub name: String,
    /// MTU in bytes, never 0.
    pub mtu: u32,
    /// The interface's own address.
    pub addr: IpAddr,
    /// The address peers send to; differs from `addr` behind NAT.
    pub public: IpAddr,
    /// Hardware type, `ARPHRD_*`.
    pub arphrd: u16,
}

/// What the selection looks at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// All links.
    pub links: Vec<Link>,
    /// All addresses, in kernel order.
    pub addresses: Vec<Address>,
    /// The routes of the main table, in kernel order, if the default route decides. Only the default routes count.
    pub routes: Vec<(RouteKey, Route)>,
    /// How the address of `--iface-can-reach` is reached, if it is.
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
    pub async fn read(netlink: &Netlink, family: Family, options: &IfaceOptions) -> Result<Self, NetlinkError> {
        let by_default_route = Way::all(options).is_empty() && options.public_ip.is_none();
        let routes = if by_default_route { netlink.routes(family).await? } else { Vec::new() };
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
            // Our own address: packets to it take the loopback, and the interface meant is the one that has it.
            RouteType::Local => {
                let owner = addresses.iter().find(|address| address.key.addr == target);
                owner.map(|address| Self { ifindex: address.key.ifindex, source: Some(target) })
            }
            _ => None,
        })
    }
}

/// Chooses the external interface for one family. Pure.
pub fn select(options: &IfaceOptions, family: Family, host: &Host) -> Result<ExternalInterface, IfaceError> {
    let public = options.public_ip;
    if let Some(public) = public.filter(|public| Family::of(*public) != family) {
        return Err(IfaceError::PublicOfOtherFamily { public, family });
    }
    let found = match (Way::all(options).as_slice(), public) {
        ([], None) => by_default_route(family, host)?,
        ([], Some(public)) => by_public_address(public, family, host)?,
        (ways, _) => first_that_fits(ways, family, host)?,
    };
    Ok(found.publish(public))
}

fn first_that_fits(ways: &[Way<'_>], family: Family, host: &Host) -> Result<Found, IfaceError> {
    let mut tried = Vec::new();
    for way in ways {
        match way.find(family, host) {
            Ok(found) => return Ok(found),
            Err(why) => tried.push((way.to_string(), why)),
        }
    }
    Err(IfaceError::NoneFits { tried, candidates: host.candidates() })
}

fn by_public_address(public: IpAddr, family: Family, host: &Host) -> Result<Found, IfaceError> {
    Way::LocalAddress(public).find(family, host).map_err(|why| IfaceError::PublicNotLocal {
        public,
        why,
        candidates: host.candidates(),
    })
}

fn by_default_route(family: Family, host: &Host) -> Result<Found, IfaceError> {
    let default = host.routes.iter().find(|(key, _)| key.dst == family.everything());
    let (_, route) = default.ok_or_else(|| IfaceError::NoDefaultRoute { family, candidates: host.candidates() })?;
    let link = route.oif.and_then(|index| host.link(index));
    let link = link.ok_or_else(|| IfaceError::AmbiguousDefaultRoute { family, candidates: host.candidates() })?;
    Found::on(link, family, host).map_err(|why| IfaceError::Unusable {
        name: link.name.clone(),
        why,
        candidates: host.candidates(),
    })
}
