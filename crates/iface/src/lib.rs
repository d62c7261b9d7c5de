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
mod candidates;
#[cfg(test)]
mod cases;
mod default_route;
mod devices;
mod error;
mod external;
mod follow;
mod host;
mod known_address;
mod link_scope;
mod options;
mod pattern;
mod pods;
#[cfg(test)]
mod tests;
mod way;

use flannel_host::family::Family;
use flannel_netlink::Link;

use self::way::{Candidate, Selector, best_address};
pub use self::{
    candidates::Candidates,
    default_route::DefaultRoute,
    devices::PodDevice,
    error::{IfaceError, Rejection},
    external::{End, ExternalInterface},
    follow::{Follower, InterfaceChange, Lost},
    host::{Host, Reach},
    options::IfaceOptions,
    pattern::{BadPattern, NamePattern},
    pods::AddressInPods,
};

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
