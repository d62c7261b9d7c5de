//! Follows the chosen interface: keeps the decision of [`super::select`] up to date. Pure.
//!
//! The interface is followed by its name, so one that was deleted and created again under another
//! index is the same. Each family is followed separately ([`super::known_address`]), on this
//! interface and by the options.
//!
//! Another interface is chosen, by the options as at start, after [`GRACE`] in one of these cases:
//! the interface cannot serve; it was chosen by its default route, and has none while another has
//! one; it is in the place of another one that serves again.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use flannel_host::family::Family;
use flannel_netlink::Link;

use super::{
    End, ExternalInterface, Host, IfaceError, IfaceOptions, Rejection, Selector,
    address::{self, Ranked},
    known_address::KnownAddress,
    select, select_among,
};

/// The time for which the interface may be unfit before another one is chosen.
pub(super) const GRACE: Duration = Duration::from_secs(10);
/// Between looks while time decides what comes next.
const SHORT_PAUSE: Duration = Duration::from_millis(500);
/// Between looks at an interface that does not come back: no event announces that another one
/// has a carrier.
const LONG_PAUSE: Duration = Duration::from_secs(5);

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

/// A change of the choice, to be logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InterfaceChange {
    /// The interface cannot serve, for this reason.
    Lost(String),
    /// It serves again, after this time.
    ServesAgain(Duration),
    /// Another interface was chosen.
    Moved {
        /// The name of the former one.
        from: String,
        /// The reason.
        why: String,
    },
}

/// The chosen interface, and what its choice depends on.
#[derive(Debug)]
pub struct Follower {
    options: IfaceOptions,
    families: Vec<Family>,
    chosen: ExternalInterface,
    addresses: BTreeMap<Family, KnownAddress>,
    lost: Option<Loss>,
    /// Since when another interface fits better than the chosen one, which serves.
    unfit: Option<Instant>,
    /// The interface in whose place the chosen one is until that one serves again.
    former: Option<String>,
}

#[derive(Debug)]
struct Loss {
    since: Instant,
    why: String,
}

/// The chosen interface as it is now.
struct Followed {
    /// The interface. A family that it does not serve right now has its former end.
    interface: ExternalInterface,
    /// The problems of the interface, per family or as a whole; empty if it serves all families.
    lost: Vec<Lost>,
}

impl Follower {
    /// Chooses for the first time.
    pub fn choose(
        options: IfaceOptions,
        families: Vec<Family>,
        host: &Host,
    ) -> Result<Self, IfaceError> {
        let chosen = select(&options, &families, host)?;
        let first = select_among(&options, &families, host)
            .ok()
            .map(|first| first.name);
        let former = first.filter(|first| *first != chosen.name);
        Ok(Self {
            options,
            families,
            chosen,
            addresses: BTreeMap::new(),
            lost: None,
            unfit: None,
            former,
        })
    }

    /// Returns the options.
    pub const fn options(&self) -> &IfaceOptions {
        &self.options
    }

    /// Returns the families.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// Returns the interface in use.
    pub const fn chosen(&self) -> &ExternalInterface {
        &self.chosen
    }

    /// Returns the reason why the interface cannot serve, if it cannot.
    pub fn problem(&self) -> Option<&str> {
        self.lost.as_ref().map(|lost| lost.why.as_str())
    }

    /// Returns the time after which it has to be looked at again without an event; `None` if only
    /// events matter.
    pub fn pause(&self, now: Instant) -> Option<Duration> {
        let since = self.lost.as_ref().map(|lost| lost.since).or(self.unfit)?;
        Some(if now.duration_since(since) < 2 * GRACE {
            SHORT_PAUSE
        } else {
            LONG_PAUSE
        })
    }

    /// Returns true if the link with this name is the one chosen, or the one it stands in for.
    pub fn concerns(&self, name: &str) -> bool {
        self.chosen.name == name || self.former.as_deref() == Some(name)
    }

    /// Takes in that the interface could not be looked at.
    pub fn fail(&mut self, why: String, now: Instant) -> Vec<InterfaceChange> {
        self.lose(why, now).into_iter().collect()
    }

    /// Looks at the host as it is now.
    pub fn look(&mut self, host: &Host, now: Instant) -> Vec<InterfaceChange> {
        let Followed { interface, lost } = self.follow(host, now);
        self.chosen = interface;
        let mut changes = Vec::new();
        if lost.is_empty() {
            changes.extend(
                self.lost
                    .take()
                    .map(|lost| InterfaceChange::ServesAgain(now.duration_since(lost.since))),
            );
        } else {
            let texts: Vec<_> = lost.iter().map(ToString::to_string).collect();
            changes.extend(self.lose(texts.join("; "), now));
        }
        if let Some((another, why)) = self.another(host, now) {
            changes.push(self.move_to(another, why));
        }
        changes
    }

    fn lose(&mut self, why: String, now: Instant) -> Option<InterfaceChange> {
        if let Some(lost) = &mut self.lost {
            lost.why = why;
            return None;
        }
        self.lost = Some(Loss {
            since: now,
            why: why.clone(),
        });
        Some(InterfaceChange::Lost(why))
    }

    /// The interface to choose instead of one that was unfit long enough, and the reason.
    fn another(&mut self, host: &Host, now: Instant) -> Option<(ExternalInterface, String)> {
        let unfit = select(&self.options, &self.families, host)
            .ok()
            .filter(|best| best.name != self.chosen.name)
            .and_then(|best| Some((self.why_unfit(&best, host)?, best)));
        let Some((why, best)) = unfit else {
            self.unfit = None;
            return None;
        };
        let since = self
            .lost
            .as_ref()
            .map_or_else(|| *self.unfit.get_or_insert(now), |lost| lost.since);
        (now.duration_since(since) >= GRACE).then_some((best, why))
    }

    fn why_unfit(&self, best: &ExternalInterface, host: &Host) -> Option<String> {
        let ExternalInterface { name, index, .. } = &self.chosen;
        if let Some(lost) = &self.lost {
            return Some(lost.why.clone());
        }
        if self.former.as_ref() == Some(&best.name) {
            return Some(format!("{} serves again", best.name));
        }
        let is_moved = self.follows_default_route() && !host.has_defaults(&self.families, *index);
        is_moved.then(|| format!("no default route leaves by {name} any more"))
    }

    fn follows_default_route(&self) -> bool {
        Selector::all(&self.options).is_empty()
            && self.options.publics(&self.families).next().is_none()
    }

    fn move_to(&mut self, another: ExternalInterface, why: String) -> InterfaceChange {
        let from = std::mem::replace(&mut self.chosen, another).name;
        let returned = self.former.as_ref() == Some(&self.chosen.name);
        self.former = if returned {
            None
        } else {
            self.former.take().or_else(|| Some(from.clone()))
        };
        self.addresses.clear();
        (self.lost, self.unfit) = (None, None);
        InterfaceChange::Moved { from, why }
    }

    fn follow(&mut self, host: &Host, now: Instant) -> Followed {
        let name = self.chosen.name.clone();
        let lost = |why| Lost::Unusable {
            name: name.clone(),
            why,
        };
        let Some(link) = host.links.iter().find(|link| link.name == name) else {
            return Followed {
                interface: self.chosen.clone(),
                lost: vec![Lost::Gone { name }],
            };
        };
        if link.mtu == 0 {
            return Followed {
                interface: self.chosen.clone(),
                lost: vec![lost(Rejection::NoMtu)],
            };
        }
        let Link {
            index, mtu, arphrd, ..
        } = *link;
        let interface = ExternalInterface {
            index,
            mtu,
            arphrd,
            ..self.chosen.clone()
        };
        let mut followed = Followed {
            interface,
            lost: Vec::new(),
        };
        for (family, end) in &mut followed.interface.ends {
            let known = self.addresses.entry(*family).or_default();
            let found = addresses_now(&self.options, *family, &self.families, link, host);
            let (addresses, why) = match found {
                Ok(addresses) => (addresses, Rejection::NoAddress(*family)),
                Err(why) => (Vec::new(), why),
            };
            match known.look(end.addr, &addresses, now) {
                Ok(addr) => *end = End::new(addr, self.options.public(*family), host),
                Err(away) => followed.lost.push(lost(away.unwrap_or(why))),
            }
        }
        match (link.up, link.running) {
            (false, _) => followed.lost.push(lost(Rejection::Down)),
            (true, false) => followed.lost.push(lost(Rejection::NoCarrier)),
            (true, true) => {}
        }
        followed
    }
}

/// The addresses of a family that the options allow on the one interface `link`, best first. A
/// route may be away together with the address, so where one was to lead the way, the interface's
/// best addresses do as well.
fn addresses_now(
    options: &IfaceOptions,
    family: Family,
    families: &[Family],
    link: &Link,
    host: &Host,
) -> Result<Vec<Ranked>, Rejection> {
    let host = &host.narrowed_to(link);
    let mut ways = Selector::all(options);
    let by_route =
        options.can_reach.is_some() || (ways.is_empty() && options.public(family).is_none());
    if ways.is_empty() {
        ways.extend(options.public(family).map(Selector::LocalAddress));
    }
    let mut why = Rejection::NoAddress(family);
    for way in &ways {
        let leads_here = way.link(families, host).and_then(|found| {
            if found.index == link.index {
                way.addresses(family, link, host)
            } else {
                Err(Rejection::NoSuchAddress)
            }
        });
        match leads_here {
            Ok(found) => return Ok(found),
            Err(rejection) => why = rejection,
        }
    }
    let all = address::ranked(host, link, family, None);
    if by_route && !all.is_empty() {
        Ok(all)
    } else {
        Err(why)
    }
}
