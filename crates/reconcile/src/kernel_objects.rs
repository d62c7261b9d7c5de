//! The kinds of kernel objects the reconciler keeps, each with how it is made and removed, and one
//! way of working off what is pending for any of them.

use std::{fmt::Display, net::IpAddr, time::Instant};

use flannel_common::packet::addr::Mac;
use flannel_netlink::{
    AddressKey, FdbKey, NeighbourKey, Netlink, NetlinkError, Nexthop, NexthopId, Route, RouteKey,
    TunnelPolicy, TunnelPolicyKey, protocol,
};
use futures::{StreamExt as _, stream};

use flannel_tracker::Tracker;

/// Requests in flight at once. Pipelining gains little in the kernel, but the wait for each answer
/// goes.
const IN_FLIGHT: usize = 128;

/// A kind of kernel object.
pub(super) trait Object {
    /// The identity of an object.
    type Key: Ord + Clone + Display;
    /// The content of an object.
    type Value: PartialEq + Clone;

    /// Creates the object, or changes the existing object to this value.
    async fn replace(
        netlink: &Netlink,
        key: &Self::Key,
        value: &Self::Value,
    ) -> Result<(), NetlinkError>;

    /// Removes the object.
    async fn remove(
        netlink: &Netlink,
        key: &Self::Key,
        value: &Self::Value,
    ) -> Result<(), NetlinkError>;
}

/// Addresses of the tunnel device.
pub(super) struct Addresses;
/// Permanent neighbours on it.
pub(super) struct Neighbours;
/// Permanent FDB entries on it.
pub(super) struct Fdb;
/// Nexthop objects, by which routes are made.
pub(super) struct NexthopObjects;
/// Policies that demand IPsec tunnels.
pub(super) struct Policies;
/// Routes to the peers' subnets.
pub(super) struct Routes;

impl Object for Addresses {
    type Key = AddressKey;
    type Value = ();

    async fn replace(netlink: &Netlink, key: &AddressKey, (): &()) -> Result<(), NetlinkError> {
        netlink.add_address(*key).await
    }

    async fn remove(netlink: &Netlink, key: &AddressKey, (): &()) -> Result<(), NetlinkError> {
        netlink.del_address(*key).await
    }
}

impl Object for Neighbours {
    type Key = NeighbourKey;
    type Value = Mac;

    async fn replace(netlink: &Netlink, key: &NeighbourKey, mac: &Mac) -> Result<(), NetlinkError> {
        netlink.replace_neighbour(*key, *mac).await
    }

    async fn remove(netlink: &Netlink, key: &NeighbourKey, _: &Mac) -> Result<(), NetlinkError> {
        netlink.del_neighbour(*key).await
    }
}

impl Object for Fdb {
    type Key = FdbKey;
    type Value = IpAddr;

    async fn replace(netlink: &Netlink, key: &FdbKey, dst: &IpAddr) -> Result<(), NetlinkError> {
        netlink.replace_fdb(*key, *dst).await
    }

    async fn remove(netlink: &Netlink, key: &FdbKey, _: &IpAddr) -> Result<(), NetlinkError> {
        netlink.del_fdb(*key).await
    }
}

impl Object for NexthopObjects {
    type Key = NexthopId;
    type Value = Nexthop;

    /// Leaves a number that is taken to its owner, unless flannel made the object there.
    async fn replace(
        netlink: &Netlink,
        id: &NexthopId,
        nexthop: &Nexthop,
    ) -> Result<(), NetlinkError> {
        match netlink.add_nexthop(*id, nexthop).await {
            Err(taken) if taken.is_exists() => match netlink.nexthop(*id).await {
                Ok(there) if there.protocol == protocol::FLANNEL => {
                    netlink.replace_nexthop(*id, nexthop).await
                }
                _ => Err(taken),
            },
            other => other,
        }
    }

    async fn remove(netlink: &Netlink, id: &NexthopId, _: &Nexthop) -> Result<(), NetlinkError> {
        netlink.del_nexthop(*id).await
    }
}

impl Object for Policies {
    type Key = TunnelPolicyKey;
    type Value = TunnelPolicy;

    async fn replace(
        netlink: &Netlink,
        key: &TunnelPolicyKey,
        policy: &TunnelPolicy,
    ) -> Result<(), NetlinkError> {
        netlink.replace_tunnel_policy(key, policy).await
    }

    async fn remove(
        netlink: &Netlink,
        key: &TunnelPolicyKey,
        _: &TunnelPolicy,
    ) -> Result<(), NetlinkError> {
        netlink.del_tunnel_policy(key).await
    }
}

impl Object for Routes {
    type Key = RouteKey;
    type Value = Route;

    async fn replace(netlink: &Netlink, key: &RouteKey, route: &Route) -> Result<(), NetlinkError> {
        netlink.replace_route(key, route).await
    }

    async fn remove(netlink: &Netlink, key: &RouteKey, route: &Route) -> Result<(), NetlinkError> {
        netlink.del_route(key, route).await
    }
}

/// Makes and replaces what is pending. What the kernel refuses stays pending and holds up nothing
/// else.
pub(super) async fn upsert<O: Object>(
    netlink: &Netlink,
    tracker: &mut Tracker<O::Key, O::Value>,
    now: Instant,
) {
    let requests = tracker.pending(now, false).upserts;
    let mut answers = stream::iter(requests)
        .map(async |(key, value)| (O::replace(netlink, &key, &value).await, key, value))
        .buffer_unordered(IN_FLIGHT);
    while let Some((result, key, value)) = answers.next().await {
        match result {
            Ok(()) => tracker.made(&key, value),
            Err(error) => refused(tracker, &key, &error, now),
        }
    }
}

/// Removes what is there and not wanted.
pub(super) async fn sweep<O: Object>(
    netlink: &Netlink,
    tracker: &mut Tracker<O::Key, O::Value>,
    now: Instant,
) {
    let requests = tracker.pending(now, true).deletes;
    let mut answers = stream::iter(requests)
        .map(async |(key, value)| (O::remove(netlink, &key, &value).await, key))
        .buffer_unordered(IN_FLIGHT);
    while let Some((result, key)) = answers.next().await {
        match result {
            Err(error) if !error.is_gone() => refused(tracker, &key, &error, now),
            _ => tracker.removed(&key),
        }
    }
}

fn refused<K, V>(tracker: &mut Tracker<K, V>, key: &K, error: &NetlinkError, now: Instant)
where
    K: Ord + Clone,
    V: PartialEq + Clone,
{
    if tracker.failed(key, error.to_string(), now) {
        tracing::warn!(%error, "the kernel refused an entry; it is tried again");
    }
}
