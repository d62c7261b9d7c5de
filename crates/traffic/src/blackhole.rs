//! The blackhole route for our own subnet: what no pod has taken is dropped here, and not sent
//! round by the default route.
//!
//! Ours is known by protocol and kind. It has the highest metric there is, so that the route of a
//! pod bridge, which has the same destination, comes first: without one, as stock flannel writes
//! it, the two would tie and the older win.

use flannel_host::family::Family;
use flannel_netlink::{MAIN_TABLE, Netlink, Route, RouteKey, RouteScope, RouteType, protocol};
use ipnet::IpNet;

use super::{TrafficError, wanted::WantedTraffic};

const METRIC: u32 = u32::MAX;

fn key(subnet: IpNet) -> RouteKey {
    RouteKey {
        dst: subnet,
        table: MAIN_TABLE,
        metric: METRIC,
    }
}

fn route() -> Route {
    Route {
        gateway: None,
        oif: None,
        onlink: false,
        protocol: protocol::FLANNEL,
        scope: RouteScope::Universe,
        kind: RouteType::BlackHole,
        src: None,
        hops: Vec::new(),
        nexthop: None,
    }
}

/// Returns true if a route is our blackhole route, in one of these networks.
fn is_ours(key: &RouteKey, route: &Route, networks: &[IpNet]) -> bool {
    route.kind == RouteType::BlackHole
        && route.protocol == protocol::FLANNEL
        && networks.iter().any(|network| network.contains(&key.dst))
}

/// Brings the blackhole route of a family into the wanted state. Returns true if it had to be
/// changed.
pub(super) async fn keep(
    netlink: &Netlink,
    family: Family,
    wanted: &WantedTraffic,
    blackhole: bool,
) -> Result<bool, TrafficError> {
    let networks = wanted.networks();
    let routes = netlink.routes(family).await.map_err(TrafficError::Route)?;
    let ours: Vec<_> = routes
        .into_iter()
        .filter(|(key, route)| is_ours(key, route, &networks))
        .collect();
    let desired = wanted
        .scope(family)
        .filter(|_| blackhole)
        .map(|scope| key(scope.subnet));
    let mut changed = false;
    if let Some(desired) = desired
        && !ours.iter().any(|(key, _)| *key == desired)
    {
        netlink
            .replace_route(&desired, &route())
            .await
            .map_err(TrafficError::Route)?;
        changed = true;
    }
    for (key, route) in ours.iter().filter(|(key, _)| Some(*key) != desired) {
        match netlink.del_route(key, route).await {
            Err(error) if !error.is_gone() => return Err(TrafficError::Route(error)),
            _ => changed = true,
        }
    }
    Ok(changed)
}
