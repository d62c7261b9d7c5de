//! Choosing the external interface: the one whose address peers send to.
//!
//! [`select`] is pure, over [`Host`], one reading of the kernel's state. It answers for one family; two
//! families are two calls, and whether they must agree on the interface is for the caller.
//!
//! Order, as in stock flannel: each `--iface` in turn, first success wins. Without any, `--public-ip` as if
//! it had been given there, so then it has to be a local address. Without either, the default route's
//! interface. Ways to name an interface that come after `--iface` go into `Way`.

mod address;
mod error;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use self::address::choose;
pub use self::error::{Candidates, IfaceError, Rejection};
use crate::family::Family;
use crate::netlink::{Address, Link, Netlink, Route, RouteKey};

/// What the operator asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IfaceOptions {
    /// `--iface`, in order: an interface name or a local address each.
    pub iface: Vec<String>,
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
    /// The routes of the main table, in kernel order. Only the default routes count.
    pub routes: Vec<(RouteKey, Route)>,
}

impl Host {
    /// Reads the state of the host as far as selecting for `family` needs it.
    pub async fn read(netlink: &Netlink, family: Family) -> Result<Self, IfaceError> {
        Ok(Self {
            links: netlink.links().await?,
            addresses: netlink.addresses().await?,
            routes: netlink.routes(family).await?,
        })
    }

    fn candidates(&self) -> Candidates {
        Candidates::of(&self.links, &self.addresses)
    }

    fn link(&self, index: u32) -> Option<&Link> {
        self.links.iter().find(|link| link.index == index)
    }
}

/// One way an interface was asked for.
enum Way<'a> {
    Name(&'a str),
    LocalAddress(IpAddr),
}

impl<'a> Way<'a> {
    fn of(value: &'a str) -> Self {
        value.parse().map_or(Self::Name(value), Self::LocalAddress)
    }

    fn find(&self, family: Family, host: &Host) -> Result<Found, Rejection> {
        match *self {
            Self::Name(name) => {
                let link = host.links.iter().find(|link| link.name == name).ok_or(Rejection::NoSuchName)?;
                Found::on(link, family, host)
            }
            Self::LocalAddress(addr) if Family::of(addr) != family => Err(Rejection::OtherFamily(family)),
            Self::LocalAddress(addr) => {
                let owner = host.addresses.iter().find(|own| own.key.addr == addr);
                let link = owner.and_then(|own| host.link(own.key.ifindex)).ok_or(Rejection::NoSuchAddress)?;
                Found::with(link, addr)
            }
        }
    }
}

/// A usable interface and the address on it.
struct Found {
    link: Link,
    addr: IpAddr,
}

impl Found {
    fn on(link: &Link, family: Family, host: &Host) -> Result<Self, Rejection> {
        let addr = choose(&host.addresses, link.index, family).ok_or(Rejection::NoAddress(family))?;
        Self::with(link, addr)
    }

    fn with(link: &Link, addr: IpAddr) -> Result<Self, Rejection> {
        if link.mtu == 0 { Err(Rejection::NoMtu) } else { Ok(Self { link: link.clone(), addr }) }
    }

    fn publish(self, public: Option<IpAddr>) -> ExternalInterface {
        let Self { link: Link { index, name, mtu, arphrd, .. }, addr } = self;
        ExternalInterface { index, name, mtu, addr, public: public.unwrap_or(addr), arphrd }
    }
}

/// Chooses the external interface for one family. Pure.
pub fn select(options: &IfaceOptions, family: Family, host: &Host) -> Result<ExternalInterface, IfaceError> {
    let public = options.public_ip;
    if let Some(public) = public.filter(|public| Family::of(*public) != family) {
        return Err(IfaceError::PublicOfOtherFamily { public, family });
    }
    let found = match (options.iface.as_slice(), public) {
        ([], None) => by_default_route(family, host)?,
        ([], Some(public)) => by_public_address(public, family, host)?,
        (values, _) => first_that_fits(values, family, host)?,
    };
    Ok(found.publish(public))
}

fn first_that_fits(values: &[String], family: Family, host: &Host) -> Result<Found, IfaceError> {
    let mut tried = Vec::new();
    for value in values {
        match Way::of(value).find(family, host) {
            Ok(found) => return Ok(found),
            Err(why) => tried.push((value.clone(), why)),
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
