//! The rank of the addresses of an interface: which of several is the node's. Pure.
//!
//! The kernel's own source for the default route by the interface comes first, in the order of
//! [`Standing`]. Tools that move an address between hosts (kube-vip, keepalived, MetalLB, those of
//! clouds) add it to the node's own: as a single address (/32, /128), as a secondary one, without
//! duplicate detection, or on `lo`. A leased address is never taken for a virtual one: DHCP gives a
//! node its own, in some clouds as a single one.

use std::{
    cmp::Reverse,
    net::{IpAddr, Ipv4Addr},
};

use flannel_host::family::Family;
use flannel_netlink::{Address, AddressScope, Link};
use ipnet::IpNet;

use super::{Host, link_scope::is_link_scope};

/// The suitability of an address, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// Nothing speaks against it.
    Good,
    /// A secondary address, or one that was added without duplicate detection.
    Additional,
    /// A single address that is moved between hosts, by all signs.
    Virtual,
    /// An IPv4 address that a host gave itself for want of another, or one of a narrower scope.
    Narrow,
    /// Valid, and not for new connections: its prefix is on its way out.
    Deprecated,
    /// Not usable before duplicate detection ends.
    Tentative,
    /// In the pod network: nodes refuse a lease with it.
    InPods,
}

/// An address of an interface with its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ranked {
    pub(super) addr: IpAddr,
    pub(super) standing: Standing,
    /// An IPv6 privacy address.
    pub(super) temporary: bool,
}

impl Ranked {
    /// An address that was asked for: no other is wanted.
    pub(super) const fn asked_for(addr: IpAddr) -> Self {
        Self {
            addr,
            standing: Standing::Good,
            temporary: false,
        }
    }
}

/// The addresses of a link that can be the node's, best first. `reach` is the kernel's source for
/// an address that was named; without it the default route by this link decides.
pub(super) fn ranked(
    host: &Host,
    link: &Link,
    family: Family,
    reach: Option<IpAddr>,
) -> Vec<Ranked> {
    let own: Vec<_> = host
        .addresses
        .iter()
        .filter(|own| own.key.ifindex == link.index && is_usable(own, family))
        .collect();
    let source = Source::find(host, link, family, &own, reach);
    let elsewhere = source
        .address
        .filter(|source| own.iter().all(|own| own.key != source.key));
    let last = own.len();
    let mut ranked: Vec<_> = elsewhere
        .into_iter()
        .chain(own.iter().copied())
        .enumerate()
        .map(|(place, address)| {
            let ranked = Ranked {
                addr: address.key.addr,
                standing: source.standing(host, address, &own),
                temporary: address.is_temporary(),
            };
            // The kernel lists the newest IPv6 address first, and the newest is the one that came
            // to the node's own.
            let age = if family == Family::V6 {
                last - place.min(last)
            } else {
                place
            };
            (
                (
                    ranked.standing,
                    ranked.temporary,
                    !source.is_near(address),
                    Reverse(source.is(address)),
                    age,
                ),
                ranked,
            )
        })
        .collect();
    ranked.sort_by_key(|(key, _)| *key);
    ranked.into_iter().map(|(_, ranked)| ranked).collect()
}

/// The kernel's own source address for packets by a link; `None` where no default route has one.
struct Source<'a> {
    address: Option<&'a Address>,
}

impl<'a> Source<'a> {
    /// A route names its source, or leaves it to the kernel, which takes that of the gateway's
    /// subnet. Where both differ, the better one by itself counts: keepalived writes routes with a
    /// virtual address as their source.
    fn find(
        host: &'a Host,
        link: &Link,
        family: Family,
        own: &[&'a Address],
        reach: Option<IpAddr>,
    ) -> Self {
        let here = |addr: IpAddr| own.iter().copied().find(|own| own.key.addr == addr);
        if let Some(source) = reach {
            return Self {
                address: here(source),
            };
        }
        let route = host
            .defaults
            .iter()
            .find(|route| route.family == family && route.ifindex == link.index);
        let named = route
            .and_then(|route| route.src)
            .and_then(|src| here(src).or_else(|| elsewhere(host, src)));
        // Without an address of the interface the kernel takes one of any other, also a virtual
        // one.
        let chosen = route.and_then(|route| route.source).and_then(here);
        let found = named.into_iter().chain(chosen);
        let no_source = Source { address: None };
        let by_itself = |source: &&'a Address| {
            let is_elsewhere = source.key.ifindex != link.index;
            no_source.standing(host, source, own).max(if is_elsewhere {
                Standing::Virtual
            } else {
                Standing::Good
            })
        };
        Self {
            address: found.min_by_key(by_itself),
        }
    }

    fn is(&self, address: &Address) -> bool {
        self.address.is_some_and(|source| source.key == address.key)
    }

    /// Returns true for the source, and for IPv6 addresses of the same prefix: of these the kernel
    /// takes the newest.
    fn is_near(&self, address: &Address) -> bool {
        let Some(source) = self.address else {
            return false;
        };
        let prefix = IpNet::new(source.key.addr, source.key.prefix_len.min(64)).ok();
        self.is(address)
            || (source.key.addr.is_ipv6()
                && prefix.is_some_and(|prefix| prefix.contains(&address.key.addr)))
    }

    fn standing(&self, host: &Host, address: &Address, own: &[&Address]) -> Standing {
        let addr = address.key.addr;
        let signs = [
            (
                host.pods.iter().any(|network| network.contains(&addr)),
                Standing::InPods,
            ),
            (address.is_tentative(), Standing::Tentative),
            (address.is_deprecated(), Standing::Deprecated),
            (
                is_zeroconf(addr) || address.scope != AddressScope::Universe,
                Standing::Narrow,
            ),
        ];
        let found = signs
            .into_iter()
            .find(|(is_so, _)| *is_so)
            .map(|(_, standing)| standing);
        found.unwrap_or_else(|| self.standing_among(address, own))
    }

    /// Judges an address by the others of its link. A leased one is the node's own.
    fn standing_among(&self, address: &Address, own: &[&Address]) -> Standing {
        let bits = Family::of(address.key.addr).bits();
        let holds = |other: &&Address| {
            other.key.prefix_len < bits
                && IpNet::new(other.key.addr, other.key.prefix_len)
                    .is_ok_and(|net| net.contains(&address.key.addr))
        };
        if !address.is_permanent() {
            return Standing::Good;
        }
        // A node's own single address lies in no subnet of the link, and the kernel sends from it.
        let is_single = address.key.prefix_len == bits;
        if is_single
            && (own.iter().any(holds)
                || self.address.is_some_and(|source| source.key != address.key))
        {
            return Standing::Virtual;
        }
        let is_unproven = is_single && self.address.is_none();
        let is_additional = is_unproven || address.is_secondary() || address.is_without_detection();
        if is_additional {
            Standing::Additional
        } else {
            Standing::Good
        }
    }
}

/// The address on another link that can have addresses of the node, as `lo`.
fn elsewhere(host: &Host, addr: IpAddr) -> Option<&Address> {
    let family = Family::of(addr);
    let mut all = host
        .addresses
        .iter()
        .filter(|own| own.key.addr == addr && is_usable(own, family));
    all.find(|own| !host.is_of_pods(own.key.ifindex))
}

fn is_usable(address: &Address, family: Family) -> bool {
    let addr = address.key.addr;
    let unicast = !addr.is_unspecified() && !addr.is_loopback() && !addr.is_multicast();
    let one_node = unicast && addr != Ipv4Addr::BROADCAST && !is_link_scope(addr);
    Family::of(addr) == family && one_node && !address.is_duplicate()
}

/// An IPv4 address that a host gave itself for want of another.
fn is_zeroconf(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V4(addr) if addr.is_link_local())
}
