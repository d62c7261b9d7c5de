//! Where the chosen interface is now: what [`super::select`] decided once, kept up with. Pure.
//!
//! The interface is followed by its name, so one that was made anew under another index is the same. Its address is kept for
//! as long as the interface has it, whatever better ones come along: each change costs every peer a change. Only then another
//! one is chosen, as it was asked for, on this interface alone.

use super::{ExternalInterface, Host, IfaceOptions, Rejection, Way, way::Found};
use crate::family::Family;

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
        /// What it lacks.
        why: Rejection,
    },
}

/// The chosen interface as it is now. `host` needs no routes.
pub fn follow(options: &IfaceOptions, chosen: &ExternalInterface, host: &Host) -> Result<ExternalInterface, Lost> {
    let name = &chosen.name;
    let link = host.links.iter().find(|link| link.name == *name).ok_or_else(|| Lost::Gone { name: name.clone() })?;
    let kept = host.addresses.iter().any(|own| own.key.ifindex == link.index && own.key.addr == chosen.addr);
    let found = if kept {
        Found::with(link, chosen.addr)
    } else {
        find_again(options, Family::of(chosen.addr), &host.narrowed_to(link))
    };
    match found {
        Ok(found) => Ok(found.publish(options.public_ip)),
        Err(why) => Err(Lost::Unusable { name: name.clone(), why }),
    }
}

/// Another address on the one interface of `host`, as the options ask for it. A route may be away together with the old
/// address, so that where one was to lead the way, the interface's best address does as well.
fn find_again(options: &IfaceOptions, family: Family, host: &Host) -> Result<Found, Rejection> {
    let mut ways = Way::all(options);
    let by_route = options.can_reach.is_some() || (ways.is_empty() && options.public_ip.is_none());
    if ways.is_empty() {
        ways.extend(options.public_ip.map(Way::LocalAddress));
    }
    let mut why = Rejection::NoAddress(family);
    for way in &ways {
        match way.find(family, host) {
            Ok(found) => return Ok(found),
            Err(rejection) => why = rejection,
        }
    }
    match host.links.first() {
        Some(link) if by_route => Found::on(link, family, host),
        _ => Err(why),
    }
}
