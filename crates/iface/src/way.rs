//! The ways of asking for an interface, and what each finds on a host. Pure.
//!
//! A way leads to one interface, and on it to one address of each family: to the address it names
//! where it names one of the family, else to the best of the interface.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use flannel_host::family::Family;
use flannel_netlink::Link;

use super::{
    End, ExternalInterface, Host, IfaceOptions, NamePattern, Rejection,
    address::{self, Ranked},
    link_scope::is_link_scope,
};

/// One way an interface was asked for.
pub(super) enum Selector<'a> {
    Name(&'a str),
    LocalAddress(IpAddr),
    Pattern(&'a NamePattern),
    Reach(IpAddr),
}

impl<'a> Selector<'a> {
    /// All ways the options name, in the order they are tried. None at all: the public addresses,
    /// or the default route.
    pub(super) fn all(options: &'a IfaceOptions) -> Vec<Self> {
        let by_value = options
            .iface
            .iter()
            .map(|value| value.parse().map_or(Self::Name(value), Self::LocalAddress));
        let by_pattern = options.patterns.iter().map(Self::Pattern);
        by_value
            .chain(by_pattern)
            .chain(options.can_reach.map(Self::Reach))
            .collect()
    }

    /// The interface, with an address of each family.
    pub(super) fn find(&self, families: &[Family], host: &Host) -> Result<Candidate, Rejection> {
        let link = self.link(families, host)?;
        Candidate::with(link, families, |family| self.address(family, link, host))
    }

    /// Returns true if it can lead to an interface once the host has changed, after it did not for
    /// this reason. A device of pods has its name for good.
    pub(super) const fn can_come(&self, why: &Rejection) -> bool {
        !why.is_of_the_value() && !matches!((self, why), (Self::Name(_), Rejection::OfPods { .. }))
    }

    /// The interface without its addresses.
    pub(super) fn link<'h>(
        &self,
        families: &[Family],
        host: &'h Host,
    ) -> Result<&'h Link, Rejection> {
        let link = match *self {
            Self::Name(name) => host
                .links
                .iter()
                .find(|link| link.name == name)
                .ok_or(Rejection::NoSuchName),
            Self::LocalAddress(addr) | Self::Reach(addr)
                if !families.contains(&Family::of(addr)) =>
            {
                Err(Rejection::OtherFamily(
                    families.first().copied().unwrap_or(Family::V4),
                ))
            }
            Self::LocalAddress(addr) if is_link_scope(addr) => Err(Rejection::LinkScope),
            Self::LocalAddress(addr) => host.owner(addr).ok_or(Rejection::NoSuchAddress),
            Self::Pattern(pattern) => link_by_pattern(pattern, families, host),
            Self::Reach(_) => host
                .reach
                .and_then(|reach| host.link(reach.ifindex))
                .ok_or(Rejection::NoRoute),
        }?;
        match host.role(link) {
            Some(role) => Err(Rejection::OfPods {
                name: link.name.clone(),
                role,
            }),
            None => Ok(link),
        }
    }

    /// The addresses of one family on the interface this way leads to, best first and never none.
    pub(super) fn addresses(
        &self,
        family: Family,
        link: &Link,
        host: &Host,
    ) -> Result<Vec<Ranked>, Rejection> {
        let all = |reach| {
            unless_empty(
                address::ranked(host, link, family, reach),
                Rejection::NoAddress(family),
            )
        };
        match *self {
            Self::LocalAddress(addr) if Family::of(addr) == family => {
                Ok(vec![Ranked::asked_for(addr)])
            }
            Self::Reach(target) if Family::of(target) == family => {
                let source = host
                    .reach
                    .filter(|reach| reach.ifindex == link.index)
                    .and_then(|reach| reach.source);
                all(source)
            }
            Self::Pattern(pattern) => {
                let matching = matching_addresses(pattern, family, link, host);
                match matching.is_empty() {
                    false => Ok(matching),
                    true if pattern.matches(&link.name) => all(None),
                    true => Err(Rejection::NoMatch),
                }
            }
            Self::Name(_) | Self::LocalAddress(_) | Self::Reach(_) => all(None),
        }
    }

    fn address(&self, family: Family, link: &Link, host: &Host) -> Result<IpAddr, Rejection> {
        let found = self.addresses(family, link, host)?;
        found
            .first()
            .map(|best| best.addr)
            .ok_or(Rejection::NoAddress(family))
    }
}

fn unless_empty<T>(found: Vec<T>, why: Rejection) -> Result<Vec<T>, Rejection> {
    if found.is_empty() {
        Err(why)
    } else {
        Ok(found)
    }
}

impl fmt::Display for Selector<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::LocalAddress(addr) => addr.fmt(f),
            Self::Pattern(pattern) => write!(f, "--iface-regex={}", pattern.text()),
            Self::Reach(addr) => write!(f, "--iface-can-reach={addr}"),
        }
    }
}

/// Addresses first, then names, each over all interfaces in the order of their indices. By
/// addresses all families have to match; of the names the first that can be used counts. Devices of
/// pods count only if their name is all that matches, so that the error has the reason.
fn link_by_pattern<'h>(
    pattern: &NamePattern,
    families: &[Family],
    host: &'h Host,
) -> Result<&'h Link, Rejection> {
    let mut links: Vec<_> = host.links.iter().collect();
    links.sort_by_key(|link| link.index);
    let (of_pods, links): (Vec<_>, Vec<_>) = links
        .into_iter()
        .partition(|link| host.role(link).is_some());
    let all_match = |link: &Link| {
        let has_match =
            |family: &Family| !matching_addresses(pattern, *family, link, host).is_empty();
        families.iter().all(has_match)
    };
    if let Some(link) = links.iter().find(|link| all_match(link)) {
        return Ok(link);
    }
    let usable = |link: &Link| Candidate::on(link, families, host).is_ok();
    let mut by_name = links
        .iter()
        .chain(&of_pods)
        .filter(|link| pattern.matches(&link.name));
    let first = by_name.next().ok_or(Rejection::NoMatch)?;
    Ok(if usable(first) {
        first
    } else {
        by_name
            .find(|link| usable(link) && host.role(link).is_none())
            .unwrap_or(first)
    })
}

pub(super) fn best_address(family: Family, link: &Link, host: &Host) -> Result<IpAddr, Rejection> {
    let best = address::ranked(host, link, family, None)
        .first()
        .map(|best| best.addr);
    best.ok_or(Rejection::NoAddress(family))
}

/// The addresses that match. One in the pod network never does.
fn matching_addresses(
    pattern: &NamePattern,
    family: Family,
    link: &Link,
    host: &Host,
) -> Vec<Ranked> {
    let is_of_pods = |addr: IpAddr| host.pods.iter().any(|network| network.contains(&addr));
    let mut found = address::ranked(host, link, family, None);
    found.retain(|ranked| pattern.matches(&ranked.addr.to_string()) && !is_of_pods(ranked.addr));
    found
}

/// A usable interface and the addresses on it.
pub(super) struct Candidate {
    link: Link,
    addrs: BTreeMap<Family, IpAddr>,
}

impl Candidate {
    /// An interface with the best of its addresses.
    pub(super) fn on(link: &Link, families: &[Family], host: &Host) -> Result<Self, Rejection> {
        Self::with(link, families, |family| best_address(family, link, host))
    }

    /// An interface with these addresses.
    pub(super) fn with(
        link: &Link,
        families: &[Family],
        address: impl Fn(Family) -> Result<IpAddr, Rejection>,
    ) -> Result<Self, Rejection> {
        if link.mtu == 0 {
            return Err(Rejection::NoMtu);
        }
        let addrs = families
            .iter()
            .map(|family| Ok((*family, address(*family)?)));
        Ok(Self {
            link: link.clone(),
            addrs: addrs.collect::<Result<_, Rejection>>()?,
        })
    }

    /// Returns the result, with the addresses published to peers.
    pub(super) fn publish(self, options: &IfaceOptions, host: &Host) -> ExternalInterface {
        let Self {
            link:
                Link {
                    index,
                    name,
                    mtu,
                    arphrd,
                    ..
                },
            addrs,
        } = self;
        let ends = addrs
            .into_iter()
            .map(|(family, addr)| (family, End::new(addr, options.public(family), host)));
        ExternalInterface {
            index,
            name,
            mtu,
            arphrd,
            ends: ends.collect(),
        }
    }
}

impl End {
    /// Returns the end with the interface's address `addr`, and with `public` as the one published
    /// to peers instead, if it is given.
    pub(super) fn new(addr: IpAddr, public: Option<IpAddr>, host: &Host) -> Self {
        let public = public.unwrap_or(addr);
        let is_local = host.addresses.iter().any(|own| own.key.addr == public);
        Self {
            addr,
            public,
            source: if is_local { public } else { addr },
        }
    }
}
