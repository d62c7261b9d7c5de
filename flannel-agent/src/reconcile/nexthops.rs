//! Routes by nexthop objects, where the number of peers calls for them.
//!
//! The kernel compares a new IPv4 route with every one that leaves by the same device, so plain routes with a gateway each
//! cost it time by the square of their number; an object is found by its number. Below a thousand peers that is no gain,
//! and routes stay as stock flannel writes them. The border is crossed at [`MANY`] on the way up and at half of that on
//! the way down, so that a cluster near it does not go back and forth.
//!
//! There is one object per route, and its number is the first address of the destination: unique among all networks of a
//! host, far above the numbers the kernel gives by itself, and known without asking. One that is refused, because somebody
//! else has the number or for whatever reason, costs its route the object and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    ops::RangeInclusive,
    time::Instant,
};

use ipnet::{IpNet, Ipv4Net};

use super::{
    object::{NexthopObjects, sweep, upsert},
    ownership::Ownership,
    status::Dirty,
    tracker::Tracker,
};
use crate::netlink::{Netlink, NetlinkError, Nexthop, NexthopId, Route, RouteKey, protocol};

/// So many routes are made by objects.
pub(super) const MANY: usize = 2000;

/// Desired and actual objects, and whether routes are to use them.
#[derive(Debug)]
pub(super) struct Nexthops {
    many: usize,
    supported: bool,
    used: bool,
    tracker: Tracker<NexthopId, Nexthop>,
}

impl Default for Nexthops {
    fn default() -> Self {
        Self::new(MANY)
    }
}

impl Nexthops {
    /// Objects are used from `many` routes on.
    pub(super) fn new(many: usize) -> Self {
        Self { many, supported: true, used: false, tracker: Tracker::default() }
    }

    /// Reads back what is ours. Objects that are there already are a reason to stay with them.
    pub(super) async fn read_back(&mut self, netlink: &Netlink, ours: &Ownership) -> Result<(), NetlinkError> {
        let all = netlink.nexthops().await?;
        self.supported = all.is_some();
        let is_ours = |(id, nexthop): &(NexthopId, Nexthop)| ours.nexthop(*id, nexthop);
        let found: BTreeMap<_, _> = all.unwrap_or_default().into_iter().filter(is_ours).collect();
        self.used |= !found.is_empty();
        self.tracker.found(found);
        Ok(())
    }

    /// Takes in what should be: the objects of these routes, if they are many. The routes are to follow by
    /// [`Self::form`].
    pub(super) fn want<'a>(&mut self, routes: impl ExactSizeIterator<Item = (&'a RouteKey, &'a Route)>) {
        let enough = if self.used { self.many / 2 } else { self.many };
        self.used = self.supported && routes.len() >= enough;
        let objects = routes.filter(|_| self.used).filter_map(|(key, route)| Some((id_of(key)?, object(route)?)));
        self.tracker.want(objects.collect());
    }

    /// A desired route in the form in which it is to be made.
    pub(super) fn form(&self, key: &RouteKey, route: &Route) -> Route {
        let usable = |id: &NexthopId| self.tracker.wanted().contains_key(id) && !self.tracker.is_refused(id);
        Route { nexthop: id_of(key).filter(usable).map(|id| id.0), ..route.clone() }
    }

    /// A route that was read, with what its object says in it: the kernel leaves that out where
    /// `net.ipv4.nexthop_compat_mode` is off.
    pub(super) fn complete(&self, route: Route) -> Route {
        match route.nexthop.and_then(|id| self.tracker.actual(&NexthopId(id))) {
            Some(Nexthop { gateway, oif, onlink, .. }) => {
                Route { gateway: *gateway, oif: *oif, onlink: *onlink, ..route }
            }
            None => route,
        }
    }

    /// An object was seen. `None` if it is none of our business, else whether it is not as it should be.
    pub(super) fn observe(&mut self, ours: &Ownership, id: NexthopId, nexthop: &Nexthop) -> Option<bool> {
        if ours.nexthop(id, nexthop) {
            return Some(self.tracker.observe(id, Some(*nexthop)));
        }
        let taken_from_us = self.tracker.wanted().contains_key(&id) || self.tracker.actual(&id).is_some();
        taken_from_us.then(|| self.tracker.observe(id, None))
    }

    /// An object is gone, and with it the routes by it. `None` if it is none of our business, else whether that is not as
    /// it should be.
    pub(super) fn observe_gone(
        &mut self,
        ours: &Ownership,
        id: NexthopId,
        nexthop: &Nexthop,
        routes: &mut Tracker<RouteKey, Route>,
    ) -> Option<bool> {
        if !ours.nexthop(id, nexthop) && self.tracker.actual(&id).is_none() {
            return None;
        }
        for key in keys_of(id, routes) {
            if routes.actual(&key).is_some_and(|route| route.nexthop == Some(id.0)) {
                routes.observe(key, None);
            }
        }
        Some(self.tracker.observe(id, None))
    }

    /// Makes the objects. Routes whose object is refused, or no longer refused, change their form.
    pub(super) async fn upsert(&mut self, netlink: &Netlink, routes: &mut Tracker<RouteKey, Route>, now: Instant) {
        let before = self.refused();
        upsert::<NexthopObjects>(netlink, &mut self.tracker, now).await;
        for id in before.symmetric_difference(&self.refused()) {
            for key in keys_of(*id, routes) {
                let route = routes.wanted().get(&key).map(|route| self.form(&key, route));
                routes.want_one(&key, route);
            }
        }
    }

    /// Removes the objects nobody wants; no route uses them any more.
    pub(super) async fn sweep(&mut self, netlink: &Netlink, now: Instant) {
        sweep::<NexthopObjects>(netlink, &mut self.tracker, now).await;
    }

    /// What the kernel refused.
    pub(super) fn dirty(&self) -> impl Iterator<Item = Dirty> {
        self.tracker.failures().map(|(id, failure)| Dirty::new(id.to_string(), failure))
    }

    /// When something the kernel refused is due again.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.tracker.next_retry()
    }

    fn refused(&self) -> BTreeSet<NexthopId> {
        self.tracker.failures().map(|(id, _)| *id).collect()
    }
}

impl Ownership {
    /// Objects of our protocol whose number is an address of the network.
    pub(super) fn nexthop(&self, id: NexthopId, nexthop: &Nexthop) -> bool {
        let inside = self.inside(IpNet::from(IpAddr::from(id.0.to_be_bytes())));
        nexthop.protocol == protocol::FLANNEL && !nexthop.special && inside
    }
}

/// The number of a route's object. The kernel's IPv6 routes are not compared with each other and need none.
fn id_of(key: &RouteKey) -> Option<NexthopId> {
    match key.dst {
        IpNet::V4(dst) => Some(NexthopId(dst.network().into())),
        IpNet::V6(_) => None,
    }
}

/// The object by which a route is made; `None` for a route that is more than one gateway.
fn object(route: &Route) -> Option<Nexthop> {
    let whole = route.gateway.is_some() && route.oif.is_some() && !route.multipath;
    whole.then_some(Nexthop {
        gateway: route.gateway,
        oif: route.oif,
        onlink: route.onlink,
        protocol: protocol::FLANNEL,
        special: false,
    })
}

/// The routes that have this number, by the prefix length one or none: all that are wanted or there.
fn keys_of(id: NexthopId, routes: &Tracker<RouteKey, Route>) -> Vec<RouteKey> {
    let base = id.0.into();
    let key = |len| Ipv4Net::new(base, len).ok().map(|dst| RouteKey::main(dst.into()));
    match (key(0), key(32)) {
        (Some(first), Some(last)) => routes.keys_in(RangeInclusive::new(first, last)),
        _ => Vec::new(),
    }
}
