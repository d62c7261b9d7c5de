//! The kernel's entries of one family: what should be and what is of every kind, and the order
//! among the kinds.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Instant,
};

use flannel_backend_api::Desired;
use flannel_common::packet::addr::Mac;
use flannel_host::error_chain::chain;
use flannel_netlink::{
    AddressKey, FdbKey, NeighbourKey, Netlink, NetlinkError, Nexthop, NexthopId, Route, RouteKey,
    TunnelPolicy, TunnelPolicyKey,
};
use flannel_status::{Dirty, Repairs};
use flannel_tracker::Tracker;
use ipnet::IpNet;

use super::{
    connected::{self, ConnectedRoutes},
    kernel_objects::{Addresses, Fdb, Neighbours, Policies, Routes, sweep, upsert},
    nexthops::Nexthops,
    ownership::Ownership,
    unreachable::{self, UnreachableRoute},
};

/// Desired and actual entries.
pub(super) struct Entries {
    pub(super) addresses: Tracker<AddressKey, ()>,
    pub(super) neighbours: Tracker<NeighbourKey, Mac>,
    pub(super) fdb: Tracker<FdbKey, IpAddr>,
    nexthops: Nexthops,
    policies: Tracker<TunnelPolicyKey, TunnelPolicy>,
    pub(super) routes: Tracker<RouteKey, Route>,
    pub(super) connected: ConnectedRoutes,
}

impl Entries {
    /// Creates an empty state. Routes use nexthop objects if there are `nexthops_from` or more of
    /// them.
    pub(super) fn new(nexthops_from: usize) -> Self {
        Self {
            addresses: Tracker::default(),
            neighbours: Tracker::default(),
            fdb: Tracker::default(),
            nexthops: Nexthops::new(nexthops_from),
            policies: Tracker::default(),
            routes: Tracker::default(),
            connected: ConnectedRoutes::default(),
        }
    }

    /// Clears the desired state, which is unknown again.
    pub(super) fn clear_desired(&mut self) {
        self.addresses.clear_desired();
        self.neighbours.clear_desired();
        self.fdb.clear_desired();
        self.nexthops.clear_desired();
        self.policies.clear_desired();
        self.routes.clear_desired();
    }

    /// Sets the number of peers: of all peers if `all` is true, else of those known so far. Returns
    /// true if this changes whether routes use nexthop objects.
    pub(super) fn count_peers(&mut self, count: usize, all: bool) -> bool {
        self.nexthops.decide(count, all)
    }

    /// Some peers wanted something before and want something now.
    pub(super) fn change(&mut self, before: &Desired, after: &Desired) {
        let addresses =
            |desired: &Desired| desired.addresses.iter().map(|key| (*key, ())).collect();
        self.addresses.change(&addresses(before), &addresses(after));
        self.neighbours
            .change(&before.neighbours, &after.neighbours);
        self.fdb.change(&before.fdb, &after.fdb);
        self.policies.change(&before.policies, &after.policies);
        self.nexthops.change(&before.routes, &after.routes);
        let formed = after
            .routes
            .iter()
            .map(|(key, route)| (*key, self.nexthops.form(key, route)));
        self.routes.change(&before.routes, &formed.collect());
    }

    /// The unreachable route for the network should be this way, or not be.
    pub(super) fn want_unreachable(&mut self, network: IpNet, route: Option<Route>) {
        self.routes.set_desired(&unreachable::key(network), route);
    }

    /// True if the unreachable route for the network is there.
    pub(super) fn has_unreachable(&self, network: IpNet) -> bool {
        self.routes.actual(&unreachable::key(network)).is_some()
    }

    /// Reads back our objects, and the routes of other programs that conflict with our routes.
    pub(super) async fn read_back(
        &mut self,
        netlink: &Netlink,
        ours: &Ownership,
        unreachable: &mut UnreachableRoute,
    ) -> Result<(), NetlinkError> {
        self.nexthops.read_back(netlink, ours).await?;
        if let Some(tunnel) = ours.tunnel {
            let addresses = netlink
                .addresses()
                .await?
                .into_iter()
                .map(|address| address.key);
            self.addresses.found(
                addresses
                    .filter(|key| ours.address(key))
                    .map(|key| (key, ()))
                    .collect(),
            );
            let neighbours = netlink.neighbours(Some(tunnel)).await?;
            self.neighbours.found(
                neighbours
                    .into_iter()
                    .filter(|(key, _)| ours.neighbour(key))
                    .collect(),
            );
            let fdb = netlink.fdb(tunnel).await?;
            self.fdb
                .found(fdb.into_iter().filter(|(key, _)| ours.fdb(key)).collect());
        }
        let policies = netlink.tunnel_policies().await?.into_iter();
        self.policies.found(
            policies
                .filter(|(key, policy)| ours.policy(key, policy))
                .collect(),
        );
        let routes = netlink.routes(ours.family()).await?;
        unreachable.set_foreign(routes.iter());
        for key in self
            .connected
            .read(netlink, ours.tunnel, ours.network, &routes)
            .await?
        {
            self.routes.retry_now(&key);
        }
        let left = left_by_other_backends(netlink, ours, &routes).await?;
        let is_left = |key: &RouteKey, route: &Route| {
            ours.possible_leftover(key, route)
                .is_some_and(|device| left.contains(&device))
        };
        let is_ours = |(key, route): &(RouteKey, Route)| {
            ours.route(key, route, self.routes.wanted()) || is_left(key, route)
        };
        let routes = routes
            .into_iter()
            .map(|(key, route)| (key, self.nexthops.complete(route)));
        let routes: BTreeMap<_, _> = routes.filter(is_ours).collect();
        self.routes.found(routes);
        Ok(())
    }

    /// Returns true if a route that was seen is a connected one of another device, or such a one
    /// may be gone: only a listing shows which of the routes with this key are there.
    pub(super) fn is_beside_connected(
        &self,
        ours: &Ownership,
        key: &RouteKey,
        route: Option<&Route>,
    ) -> bool {
        let is_connected =
            |route| connected::connected(key, route, ours.tunnel, ours.network).is_some();
        route.is_some_and(is_connected) || self.connected.device(key).is_some()
    }

    /// One route was seen. Returns `None` if it cannot be ours, and else true if it is not as it
    /// should be.
    pub(super) fn observe_route(
        &mut self,
        ours: &Ownership,
        key: RouteKey,
        route: Option<&Route>,
    ) -> Option<bool> {
        (ours.may_be_route(&key, route) || self.routes.actual(&key).is_some()).then(|| {
            let route = route.map(|route| self.nexthops.complete(route.clone()));
            self.routes.observe(
                key,
                route.filter(|route| ours.route(&key, route, self.routes.wanted())),
            )
        })
    }

    /// A nexthop object was seen, or (`gone`) is no more. `None` if it is none of our business,
    /// else whether it is not as it should be.
    pub(super) fn observe_nexthop(
        &mut self,
        ours: &Ownership,
        id: NexthopId,
        nexthop: &Nexthop,
        gone: bool,
    ) -> Option<bool> {
        if gone {
            self.nexthops
                .observe_gone(ours, id, nexthop, &mut self.routes)
        } else {
            self.nexthops.observe(ours, id, nexthop)
        }
    }

    /// Returns true if IPsec policies are desired, or if the kernel has some of our policies.
    pub(super) fn has_policies(&self) -> bool {
        !self.policies.is_empty()
    }

    /// Makes what a route needs first.
    pub(super) async fn upsert_before_routes(&mut self, netlink: &Netlink, now: Instant) {
        upsert::<Addresses>(netlink, &mut self.addresses, now).await;
        upsert::<Neighbours>(netlink, &mut self.neighbours, now).await;
        upsert::<Fdb>(netlink, &mut self.fdb, now).await;
        upsert::<Policies>(netlink, &mut self.policies, now).await;
        self.nexthops.upsert(netlink, &mut self.routes, now).await;
    }

    /// Makes the routes.
    pub(super) async fn upsert_routes(&mut self, netlink: &Netlink, now: Instant) {
        self.upsert_beside_connected(netlink, now).await;
        upsert::<Routes>(netlink, &mut self.routes, now).await;
    }

    /// Makes those whose key a connected route of another device has, or leaves them out.
    async fn upsert_beside_connected(&mut self, netlink: &Netlink, now: Instant) {
        for key in self.connected.keys() {
            let Some(route) = self.routes.missing(key, now) else {
                continue;
            };
            let Some(device) = self.connected.device(key) else {
                continue;
            };
            let made = if device.gives_way() {
                netlink
                    .prepend_route(key, &route)
                    .await
                    .map_err(|error| chain(&error))
            } else {
                Err(device.refusal(key))
            };
            match made {
                Ok(()) => self.routes.made(key, route),
                Err(error) => {
                    if self.routes.failed(key, error.clone(), now) {
                        tracing::warn!(error, "no {key} to another node");
                    }
                }
            }
        }
    }

    /// Removes the routes that are not wanted.
    pub(super) async fn sweep_routes(&mut self, netlink: &Netlink, now: Instant) {
        sweep::<Routes>(netlink, &mut self.routes, now).await;
    }

    /// Removes what only those routes needed.
    pub(super) async fn sweep_after_routes(&mut self, netlink: &Netlink, now: Instant) {
        self.nexthops.sweep(netlink, now).await;
        sweep::<Policies>(netlink, &mut self.policies, now).await;
        sweep::<Fdb>(netlink, &mut self.fdb, now).await;
        sweep::<Neighbours>(netlink, &mut self.neighbours, now).await;
        sweep::<Addresses>(netlink, &mut self.addresses, now).await;
    }

    /// Returns the entries that the kernel refused.
    pub(super) fn dirty(&self) -> impl Iterator<Item = Dirty> {
        let addresses = self
            .addresses
            .failures()
            .map(|(key, failure)| failure.to_dirty(key.to_string()));
        let neighbours = self
            .neighbours
            .failures()
            .map(|(key, failure)| failure.to_dirty(key.to_string()));
        let fdb = self
            .fdb
            .failures()
            .map(|(key, failure)| failure.to_dirty(key.to_string()));
        let policies = self
            .policies
            .failures()
            .map(|(key, failure)| failure.to_dirty(key.to_string()));
        let routes = self
            .routes
            .failures()
            .map(|(key, failure)| failure.to_dirty(key.to_string()));
        addresses
            .chain(neighbours)
            .chain(fdb)
            .chain(self.nexthops.dirty())
            .chain(policies)
            .chain(routes)
    }

    /// Returns the number of repairs of each kind of entry.
    pub(super) const fn repairs(&self) -> Repairs {
        Repairs {
            devices: 0,
            addresses: self.addresses.repairs(),
            neighbours: self.neighbours.repairs(),
            fdb: self.fdb.repairs(),
            nexthops: self.nexthops.repairs(),
            wireguard: 0,
            policies: self.policies.repairs(),
            routes: self.routes.repairs(),
            maps: 0,
            sysctls: 0,
        }
    }

    /// When something the kernel refused is due again.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        let Self {
            addresses,
            neighbours,
            fdb,
            nexthops,
            policies,
            routes,
            connected: _,
        } = self;
        let retries = [
            addresses.next_retry(),
            neighbours.next_retry(),
            fdb.next_retry(),
            nexthops.next_retry(),
            policies.next_retry(),
            routes.next_retry(),
        ];
        retries.into_iter().flatten().min()
    }
}

/// The tunnel devices of other backends that routes for our network lead into.
async fn left_by_other_backends(
    netlink: &Netlink,
    ours: &Ownership,
    routes: &[(RouteKey, Route)],
) -> Result<BTreeSet<u32>, NetlinkError> {
    let devices: BTreeSet<u32> = routes
        .iter()
        .filter_map(|(key, route)| ours.possible_leftover(key, route))
        .collect();
    let mut left = BTreeSet::new();
    for device in devices {
        if netlink
            .link_by_index(device)
            .await?
            .is_some_and(|link| (ours.marks.is_tunnel)(&link))
        {
            left.insert(device);
        }
    }
    Ok(left)
}
