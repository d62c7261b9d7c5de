//! The ways of asking for an interface, and what each finds on a host. Pure.

use std::{fmt, net::IpAddr};

use super::{ExternalInterface, Host, IfaceOptions, NamePattern, Rejection, address};
use crate::{family::Family, netlink::Link};

/// One way an interface was asked for.
pub(super) enum Way<'a> {
    Name(&'a str),
    LocalAddress(IpAddr),
    Pattern(&'a NamePattern),
    Reach(IpAddr),
}

impl<'a> Way<'a> {
    /// All ways the options name, in the order they are tried. None at all: the default route.
    pub(super) fn all(options: &'a IfaceOptions) -> Vec<Self> {
        let by_value = options.iface.iter().map(|value| value.parse().map_or(Self::Name(value), Self::LocalAddress));
        let by_pattern = options.patterns.iter().map(Self::Pattern);
        by_value.chain(by_pattern).chain(options.can_reach.map(Self::Reach)).collect()
    }

    pub(super) fn find(&self, family: Family, host: &Host) -> Result<Found, Rejection> {
        match *self {
            Self::Name(name) => {
                let link = host.links.iter().find(|link| link.name == name).ok_or(Rejection::NoSuchName)?;
                Found::on(link, family, host)
            }
            Self::LocalAddress(addr) | Self::Reach(addr) if Family::of(addr) != family => {
                Err(Rejection::OtherFamily(family))
            }
            Self::LocalAddress(addr) => {
                let owner = host.addresses.iter().find(|own| own.key.addr == addr);
                let link = owner.and_then(|own| host.link(own.key.ifindex)).ok_or(Rejection::NoSuchAddress)?;
                Found::with(link, addr)
            }
            Self::Pattern(pattern) => by_pattern(pattern, family, host),
            Self::Reach(_) => {
                let reach = host.reach.ok_or(Rejection::NoRoute)?;
                let link = host.link(reach.ifindex).ok_or(Rejection::NoRoute)?;
                reach.source.map_or_else(|| Found::on(link, family, host), |source| Found::with(link, source))
            }
        }
    }
}

impl fmt::Display for Way<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::LocalAddress(addr) => addr.fmt(f),
            Self::Pattern(pattern) => write!(f, "--iface-regex={}", pattern.text()),
            Self::Reach(addr) => write!(f, "--iface-can-reach={addr}"),
        }
    }
}

/// Addresses first, then names, each over all interfaces in the order of their indices. Of the names the first that can
/// be used counts.
fn by_pattern(pattern: &NamePattern, family: Family, host: &Host) -> Result<Found, Rejection> {
    let mut links: Vec<_> = host.links.iter().collect();
    links.sort_by_key(|link| link.index);
    let matching = |link: &Link| {
        let mut usable = address::usable(&host.addresses, link.index, family).into_iter();
        usable.find(|addr| pattern.matches(&addr.to_string()))
    };
    if let Some((link, addr)) = links.iter().find_map(|link| Some((link, matching(link)?))) {
        return Found::with(link, addr);
    }
    let mut by_name = links.iter().filter(|link| pattern.matches(&link.name));
    let first = Found::on(by_name.next().ok_or(Rejection::NoMatch)?, family, host);
    first.or_else(|why| by_name.find_map(|link| Found::on(link, family, host).ok()).ok_or(why))
}

/// A usable interface and the address on it.
pub(super) struct Found {
    link: Link,
    addr: IpAddr,
}

impl Found {
    /// An interface with the best of its addresses.
    pub(super) fn on(link: &Link, family: Family, host: &Host) -> Result<Self, Rejection> {
        let addr = address::choose(&host.addresses, link.index, family).ok_or(Rejection::NoAddress(family))?;
        Self::with(link, addr)
    }

    /// An interface with this address.
    pub(super) fn with(link: &Link, addr: IpAddr) -> Result<Self, Rejection> {
        if link.mtu == 0 { Err(Rejection::NoMtu) } else { Ok(Self { link: link.clone(), addr }) }
    }

    /// The result, with the address peers are told.
    pub(super) fn publish(self, public: Option<IpAddr>) -> ExternalInterface {
        let Self { link: Link { index, name, mtu, arphrd, .. }, addr } = self;
        ExternalInterface { index, name, mtu, addr, public: public.unwrap_or(addr), arphrd }
    }
}
