//! Follows the chosen interface: keeps the decision of [`super::select`] up to date. Pure.
//!
//! The interface is followed by its name, so one that was deleted and created again under another
//! index is the same. An address is kept for as long as the interface has it, even if a better one
//! appears: each change costs every peer a change. Once it is gone, another one is chosen according
//! to the options, on this interface alone. Each family is followed separately.

use std::net::IpAddr;

use flannel_host::family::Family;
use flannel_netlink::Link;

use super::{End, ExternalInterface, Host, IfaceOptions, Rejection, Selector, way::best_address};

/// The chosen interface does not serve right now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// No link has its name.
    #[error("the external interface {name} is gone; waiting for it to come back")]
    Gone {
        /// The interface.
        name: String,
    },
    /// It is there, and lacks something.
    #[error("the external interface {name} cannot be used: {why}; waiting for that to change")]
    Unusable {
        /// The interface.
        name: String,
        /// The reason it cannot be used.
        why: Rejection,
    },
}

/// The chosen interface as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// The interface. A family it does not serve right now has its former end.
    pub interface: ExternalInterface,
    /// The problems of the interface, per family or as a whole; empty if it serves all families.
    pub lost: Vec<Lost>,
}

/// Looks for the chosen interface. `host` needs no routes.
pub fn follow(options: &IfaceOptions, chosen: &ExternalInterface, host: &Host) -> Followed {
    let name = &chosen.name;
    let lost = |why| Lost::Unusable { name: name.clone(), why };
    let Some(link) = host.links.iter().find(|link| link.name == *name) else {
        return Followed { interface: chosen.clone(), lost: vec![Lost::Gone { name: name.clone() }] };
    };
    if link.mtu == 0 {
        return Followed { interface: chosen.clone(), lost: vec![lost(Rejection::NoMtu)] };
    }
    let Link { index, mtu, arphrd, .. } = *link;
    let mut followed =
        Followed { interface: ExternalInterface { index, mtu, arphrd, ..chosen.clone() }, lost: Vec::new() };
    let families: Vec<_> = chosen.ends.keys().copied().collect();
    for (family, end) in &mut followed.interface.ends {
        match address_now(options, *family, &families, end.addr, link, host) {
            Ok(addr) => *end = End::new(addr, options.public(*family), host),
            Err(why) => followed.lost.push(lost(why)),
        }
    }
    followed
}

fn address_now(
    options: &IfaceOptions,
    family: Family,
    families: &[Family],
    known: IpAddr,
    link: &Link,
    host: &Host,
) -> Result<IpAddr, Rejection> {
    if host.addresses.iter().any(|own| own.key.ifindex == link.index && own.key.addr == known) {
        return Ok(known);
    }
    find_again(options, family, families, link, &host.narrowed_to(link))
}

/// Another address on the one interface of `host`, as the options ask for it. A route may be away
/// together with the old address, so that where one was to lead the way, the interface's best
/// address does as well.
fn find_again(
    options: &IfaceOptions,
    family: Family,
    families: &[Family],
    link: &Link,
    host: &Host,
) -> Result<IpAddr, Rejection> {
    let mut ways = Selector::all(options);
    let by_route = options.can_reach.is_some() || (ways.is_empty() && options.public(family).is_none());
    if ways.is_empty() {
        ways.extend(options.public(family).map(Selector::LocalAddress));
    }
    let mut why = Rejection::NoAddress(family);
    for way in &ways {
        match way.link(families, host).and_then(|link| way.address(family, link, host)) {
            Ok(found) => return Ok(found),
            Err(rejection) => why = rejection,
        }
    }
    if by_route { best_address(family, link, host) } else { Err(why) }
}
