//! Routes by nexthop objects, for a large number of peers.
//!
//! The kernel compares a new IPv4 route with every route that leaves by the same device
//! (`fib_find_info()` in [net/ipv4/fib_semantics.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/fib_semantics.c)), so the time for
//! plain routes with a gateway each grows with the square of their number; an object is found by
//! its number. Below a thousand peers objects bring no gain, and routes stay as stock flannel
//! writes them. Routes use objects from a threshold on, and are plain again below half of it, so
//! that a cluster near the threshold does not switch back and forth.
//!
//! There is one object per route, and its number is the first address of the destination: unique
//! among all networks of a host, far above the numbers the kernel assigns by itself, and known
//! without asking. If the kernel refuses an object, because another program uses the number or for
//! any other reason, its route is made without it; all other routes keep their form.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    ops::RangeInclusive,
    time::Instant,
};

use flannel_netlink::{Netlink, NetlinkError, Nexthop, NexthopId, Route, RouteKey, protocol};
use flannel_status::Dirty;
use flannel_tracker::Tracker;
use ipnet::{IpNet, Ipv4Net};

use super::{
    kernel_objects::{NexthopObjects, sweep, upsert},
    ownership::Ownership,
};

/// Desired and actual objects, and whether routes are to use them.
#[derive(Debug)]
pub(super) struct Nexthops {
    many: usize,
    supported: bool,
    used: bool,
    tracker: Tracker<NexthopId, Nexthop>,
}

impl Nexthops {
    /// Objects are used from `many` routes on.
    pub(super) fn new(many: usize) -> Self {
        Self {
            many,
            supported: true,
            used: false,
            tracker: Tracker::default(),
        }
    }

    /// Reads back our objects. If some already exist, routes keep using objects.
    pub(super) async fn read_back(
        &mut self,
        netlink: &Netlink,
        ours: &Ownership,
    ) -> Result<(), NetlinkError> {
        let all = netlink.nexthops().await?;
        self.supported = all.is_some();
        let is_ours = |(id, nexthop): &(NexthopId, Nexthop)| ours.nexthop(*id, nexthop);
        let found: BTreeMap<_, _> = all
            .unwrap_or_default()
            .into_iter()
            .filter(is_ours)
            .collect();
        self.used |= !found.is_empty();
        self.tracker.found(found);
        Ok(())
    }

    /// Decides whether objects are used for `count` routes. Objects stay in use until `all` routes
    /// are known, even if there are few. Returns true if the decision changed; then
    /// [`Self::change`] is due for every route.
    pub(super) fn decide(&mut self, count: usize, all: bool) -> bool {
        let enough = if self.used { self.many / 2 } else { self.many };
        let used = self.supported && (count >= enough || (self.used && !all));
        std::mem::replace(&mut self.used, used) != used
    }

    /// Clears the desired state, which is unknown again.
    pub(super) fn clear_desired(&mut self) {
        self.tracker.clear_desired();
    }

    /// Some peers wanted routes before and want routes now. These are to follow by [`Self::form`].
    pub(super) fn change(
        &mut self,
        before: &BTreeMap<RouteKey, Route>,
        after: &BTreeMap<RouteKey, Route>,
    ) {
        for id in before
            .keys()
            .filter(|key| !after.contains_key(*key))
            .filter_map(id_of)
        {
            self.tracker.set_desired(&id, None);
        }
        for (key, route) in after {
            if let Some(id) = id_of(key) {
                self.tracker
                    .set_desired(&id, object(route).filter(|_| self.used));
            }
        }
    }

    /// Returns a desired route in the form in which it is made.
    pub(super) fn form(&self, key: &RouteKey, route: &Route) -> Route {
        let usable =
            |id: &NexthopId| self.tracker.wanted().contains_key(id) && !self.tracker.is_refused(id);
        Route {
            nexthop: id_of(key).filter(usable).map(|id| id.0),
            ..route.clone()
        }
    }

    /// A route that was read, with what its object says in it: the kernel leaves that out where
    /// `net.ipv4.nexthop_compat_mode` is off (`fib_dump_info()` in [net/ipv4/fib_semantics.c, Linux
    /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/fib_semantics.c)).
    pub(super) fn complete(&self, route: Route) -> Route {
        match route
            .nexthop
            .and_then(|id| self.tracker.actual(&NexthopId(id)))
        {
            Some(Nexthop {
                gateway,
                oif,
                onlink,
                ..
            }) => Route {
                gateway: *gateway,
                oif: *oif,
                onlink: *onlink,
                ..route
            },
            None => route,
        }
    }

    /// An object was seen. `None` if it is none of our business, else whether it is not as it
    /// should be.
    pub(super) fn observe(
        &mut self,
        ours: &Ownership,
        id: NexthopId,
        nexthop: &Nexthop,
    ) -> Option<bool> {
        if ours.nexthop(id, nexthop) {
            return Some(self.tracker.observe(id, Some(*nexthop)));
        }
        let taken_from_us =
            self.tracker.wanted().contains_key(&id) || self.tracker.actual(&id).is_some();
        taken_from_us.then(|| self.tracker.observe(id, None))
    }

    /// An object is gone, and with it the routes by it. `None` if it is none of our business, else
    /// whether that is not as it should be.
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
            if routes
                .actual(&key)
                .is_some_and(|route| route.nexthop == Some(id.0))
            {
                routes.observe(key, None);
            }
        }
        Some(self.tracker.observe(id, None))
    }

    /// Makes the objects. Routes whose object is refused, or no longer refused, change their form.
    pub(super) async fn upsert(
        &mut self,
        netlink: &Netlink,
        routes: &mut Tracker<RouteKey, Route>,
        now: Instant,
    ) {
        let before = self.refused();
        upsert::<NexthopObjects>(netlink, &mut self.tracker, now).await;
        for id in before.symmetric_difference(&self.refused()) {
            for key in keys_of(*id, routes) {
                let route = routes
                    .wanted()
                    .get(&key)
                    .map(|route| self.form(&key, route));
                routes.set_desired(&key, route);
            }
        }
    }

    /// Removes the objects that are not wanted; no route uses them any more.
    pub(super) async fn sweep(&mut self, netlink: &Netlink, now: Instant) {
        sweep::<NexthopObjects>(netlink, &mut self.tracker, now).await;
    }

    /// Returns the objects that the kernel refused.
    pub(super) fn dirty(&self) -> impl Iterator<Item = Dirty> {
        self.tracker
            .failures()
            .map(|(id, failure)| failure.to_dirty(id.to_string()))
    }

    /// Returns the number of repaired objects.
    pub(super) const fn repairs(&self) -> u64 {
        self.tracker.repairs()
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
    /// Objects of our protocol whose number is an address of the network, or that lead into the
    /// tunnel device, as those of a former network.
    pub(super) fn nexthop(&self, id: NexthopId, nexthop: &Nexthop) -> bool {
        let inside = self.inside(IpNet::from(IpAddr::from(id.0.to_be_bytes())));
        let into_tunnel = nexthop.oif.is_some() && nexthop.oif == self.tunnel;
        nexthop.protocol == protocol::FLANNEL && !nexthop.special && (inside || into_tunnel)
    }
}

/// The number of a route's object. The kernel's IPv6 routes are not compared with each other and
/// need none.
fn id_of(key: &RouteKey) -> Option<NexthopId> {
    match key.dst {
        IpNet::V4(dst) => Some(NexthopId(dst.network().into())),
        IpNet::V6(_) => None,
    }
}

/// The object by which a route is made; `None` for a route that is more than one gateway.
fn object(route: &Route) -> Option<Nexthop> {
    let whole = route.gateway.is_some() && route.oif.is_some() && !route.is_multipath();
    whole.then_some(Nexthop {
        gateway: route.gateway,
        oif: route.oif,
        onlink: route.onlink,
        protocol: protocol::FLANNEL,
        special: false,
    })
}

/// The routes that have this number, by the prefix length one or none: all that are wanted or
/// there.
fn keys_of(id: NexthopId, routes: &Tracker<RouteKey, Route>) -> Vec<RouteKey> {
    let base = id.0.into();
    let key = |len| {
        Ipv4Net::new(base, len)
            .ok()
            .map(|dst| RouteKey::main(dst.into()))
    };
    match (key(0), key(32)) {
        (Some(first), Some(last)) => routes.keys_in(RangeInclusive::new(first, last)),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Ownership = Ownership {
        tunnel: Some(7),
        network: IpNet::V4(Ipv4Net::new_assert(
            std::net::Ipv4Addr::new(10, 244, 0, 0),
            16,
        )),
        whole_network: false,
        marks: flannel_backends::MARKS,
    };

    fn routes(count: u8) -> BTreeMap<RouteKey, Route> {
        let route = |n: u8| {
            let base = IpAddr::from([10, 244, n, 0]);
            let dst = IpNet::new(base, 24).expect("a prefix");
            (RouteKey::main(dst), Route::onlink(base, 7, protocol::BOOT))
        };
        (1..=count).map(route).collect()
    }

    /// Wants `count` routes, and returns true if the first of them is made by an object.
    fn by_object(nexthops: &mut Nexthops, count: u8, all: bool) -> bool {
        let routes = routes(count);
        nexthops.decide(routes.len(), all);
        nexthops.change(&BTreeMap::new(), &routes);
        let (key, route) = routes.first_key_value().expect("a route");
        nexthops.form(key, route).nexthop == Some(0x0af4_0100)
    }

    #[test]
    fn the_border_is_lower_on_the_way_down_and_waits_until_all_is_known() {
        let mut nexthops = Nexthops::new(4);
        for (count, all, expected) in [
            (3, true, false),
            (4, true, true),
            (2, true, true),
            (1, false, true),
            (1, true, false),
            (3, true, false),
        ] {
            assert_eq!(
                by_object(&mut nexthops, count, all),
                expected,
                "{count} routes, all known: {all}"
            );
        }
        nexthops.supported = false;
        assert!(!by_object(&mut nexthops, 200, true), "the kernel has none");
    }

    #[test]
    fn a_refused_object_leaves_its_route_plain() {
        let mut nexthops = Nexthops::new(0);
        assert!(by_object(&mut nexthops, 3, true));
        nexthops.tracker.failed(
            &NexthopId(0x0af4_0100),
            "File exists".to_owned(),
            Instant::now(),
        );
        assert!(!by_object(&mut nexthops, 3, true));
    }

    #[test]
    fn ours_have_our_protocol_and_a_number_in_the_network() {
        let nexthop = object(&routes(1).into_values().next().expect("a route")).expect("an object");
        assert!(OURS.nexthop(NexthopId(0x0af4_0100), &nexthop));
        assert!(
            OURS.nexthop(NexthopId(0x0a09_0100), &nexthop),
            "of a former network"
        );
        let elsewhere = Nexthop {
            oif: Some(2),
            ..nexthop
        };
        assert!(OURS.nexthop(NexthopId(0x0af4_0100), &elsewhere));
        assert!(
            !OURS.nexthop(NexthopId(7), &elsewhere),
            "neither in the network nor into the tunnel"
        );
        for other in [
            Nexthop {
                protocol: 4,
                ..nexthop
            },
            Nexthop {
                special: true,
                ..nexthop
            },
        ] {
            assert!(!OURS.nexthop(NexthopId(0x0af4_0100), &other), "{other:?}");
        }
    }

    #[test]
    fn only_ipv4_routes_have_a_number() {
        assert_eq!(
            id_of(&RouteKey::main("fd00::/64".parse().expect("a prefix"))),
            None
        );
    }

    /// With the object go the routes by it, and no others.
    #[test]
    fn an_object_that_is_gone_takes_its_route_along() {
        let (mut nexthops, mut tracker) = (Nexthops::new(0), Tracker::default());
        let routes = routes(2);
        nexthops.decide(routes.len(), true);
        nexthops.change(&BTreeMap::new(), &routes);
        let formed: BTreeMap<_, _> = routes
            .iter()
            .map(|(key, route)| (*key, nexthops.form(key, route)))
            .collect();
        tracker.change(&BTreeMap::new(), &formed);
        tracker.found(formed);
        let nexthop = object(&routes.into_values().next().expect("a route")).expect("an object");
        let id = NexthopId(0x0af4_0100);
        let elsewhere = Nexthop {
            oif: Some(2),
            ..nexthop
        };
        assert_eq!(
            nexthops.observe_gone(&OURS, NexthopId(1), &elsewhere, &mut tracker),
            None
        );
        assert_eq!(
            nexthops.observe_gone(&OURS, id, &nexthop, &mut tracker),
            Some(true)
        );
        let pending = tracker.pending(Instant::now(), true).upserts;
        assert_eq!(
            pending
                .iter()
                .map(|(key, _)| id_of(key))
                .collect::<Vec<_>>(),
            [Some(id)]
        );
    }
}
