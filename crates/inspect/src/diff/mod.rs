//! The differences between leases, maps and kernel, for `maps dump --diff`.
//!
//! A running agent reports the leases; without one the maps are compared only with the kernel, and
//! without eBPF the leases are. The comparison changes no state.

mod compare;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use anyhow::Context as _;
use flannel_backend_api::{CarriedExit, CarryingDevice};
use flannel_backends::{carried_way, carrying_device};
use flannel_common::{abi::node::NodeConfig, packet::addr::Mac};
use flannel_datapath::{
    DatapathError, PinRoot,
    maps::{ConfigMap, VtepMap},
    maps::{
        ecmp_paths::PinnedEcmpPaths,
        peers::{PinnedPeer, family_config, pinned_peers},
    },
};
use flannel_document::Document;
use flannel_host::family::Family;
use flannel_netlink::{Link, Netlink, NetlinkError, Nexthop, NexthopId, Route, TunnelPolicyKey};
use flannel_status::{PeerStatus, Status};
use serde::Serialize;

pub use self::compare::{ComparedTable, Difference};
use self::compare::{Expected, ExpectedWay, Kernel};
use crate::reported_cluster::ReportedCluster;

/// The differences between leases, maps and kernel.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Diff {
    /// True if the leases of a running agent were compared too.
    pub leases: bool,
    /// True if maps were compared; false on a node whose agent runs without eBPF.
    pub maps: bool,
    /// The number of peers there should be.
    pub peers: usize,
    /// Everything that is not as it should be.
    pub differences: Vec<Difference>,
}

impl Document for Diff {
    const NAME: &'static str = "maps-dump-diff";
}

/// The pinned state.
struct Maps {
    config: NodeConfig,
    peers: Vec<PinnedPeer>,
    vteps: BTreeMap<IpAddr, u32>,
    ecmp_paths: PinnedEcmpPaths,
}

impl Maps {
    fn read(pins: &PinRoot) -> Result<Self, DatapathError> {
        let config = ConfigMap::open(pins)?.get()?;
        let vteps = VtepMap::open(pins)?;
        let vteps = vteps
            .entries()
            .map(|entry| entry.map(|(vtep, value)| (vtep.into(), value.index)));
        Ok(Self {
            peers: pinned_peers(pins, &config)?,
            vteps: vteps.collect::<Result<_, _>>()?,
            ecmp_paths: PinnedEcmpPaths::read(pins)?,
            config,
        })
    }
}

/// Compares. `status` is what the agent says of itself, if one runs. Where it runs without eBPF,
/// leases are compared only with the kernel. Fails without maps and leases.
pub async fn read(pins: &PinRoot, status: Option<&Status>) -> anyhow::Result<Diff> {
    let (netlink, _events) = Netlink::connect().context("cannot ask the kernel")?;
    let maps = match Maps::read(pins) {
        Ok(maps) => Some(maps),
        Err(error) if error.is_absent() && status.is_some_and(Status::runs_without_bpf) => None,
        Err(error) => return Err(error.into()),
    };
    let links = netlink.links().await.context("cannot ask the kernel")?;
    let links: BTreeMap<u32, Link> = links.into_iter().map(|link| (link.index, link)).collect();
    let reported = match (&maps, status) {
        (None, Some(status)) => ReportedCluster::of(status, &links),
        _ => None,
    };
    let config = maps
        .as_ref()
        .map(|maps| maps.config)
        .or(reported.map(|reported| reported.config));
    let config = config.context("the agent has no lease yet, so there is nothing to compare")?;
    let kernel = read_kernel(&netlink, &config)
        .await
        .context("cannot ask the kernel")?;
    let leased = status.map(leased).transpose()?;
    let mut differences = Vec::new();
    if let Some(maps) = &maps {
        differences.extend(
            leased
                .iter()
                .flat_map(|leased| compare::leases_and_maps(leased, &maps.peers, &config)),
        );
        differences.extend(compare::vteps(&maps.peers, &maps.vteps, &config));
        differences.extend(compare::ecmp_paths(&maps.peers, &maps.ecmp_paths));
    }
    let expected = leased.unwrap_or_else(|| {
        maps.iter()
            .flat_map(|maps| &maps.peers)
            .map(compare::of_map)
            .collect()
    });
    differences.extend(compare::kernel(&expected, &kernel, &config));
    for (family, device) in carrying_devices(&links, &config).await {
        differences.extend(compare::behind(&expected, family, device.as_ref()));
    }
    if let Some(status) = status {
        let policies = netlink
            .tunnel_policies()
            .await
            .context("cannot ask the kernel")?;
        let present: BTreeSet<TunnelPolicyKey> = policies.into_iter().map(|(key, _)| key).collect();
        differences.extend(compare::policies(status, &present));
    }
    Ok(Diff {
        leases: status.is_some(),
        maps: maps.is_some(),
        peers: expected.len(),
        differences,
    })
}

fn leased(status: &Status) -> anyhow::Result<Vec<Expected>> {
    // What is not reached has no place in maps or kernel; a route of the administrator's may lead
    // there. IPsec has none in the maps.
    let is_here = |way: &str| {
        let exit = carried_way(way).map(|way| way.exit);
        way != "none" && exit != Some(CarriedExit::Policies)
    };
    let reached = status.peers.iter().filter(|peer| is_here(&peer.way));
    let peers: Option<Vec<Expected>> = reached.map(of_lease).collect();
    peers.context("the agent names a peer that is not understood here")
}

fn of_lease(peer: &PeerStatus) -> Option<Expected> {
    let way = match peer.way.as_str() {
        "direct" => ExpectedWay::Direct,
        "tunnel" => ExpectedWay::Plain,
        "kernel" => ExpectedWay::Kernel,
        other => {
            carried_way(other)?;
            ExpectedWay::Routed
        }
    };
    Some(Expected {
        subnet: peer.subnet.parse().ok()?,
        vtep: peer.public_ip.parse().ok()?,
        mac: if peer.vtep_mac == "-" {
            Mac::default()
        } else {
            peer.vtep_mac.parse().ok()?
        },
        way,
    })
}

/// Reads the neighbours and FDB entries of the tunnel devices, and the routes.
async fn read_kernel(netlink: &Netlink, config: &NodeConfig) -> Result<Kernel, NetlinkError> {
    let mut kernel = Kernel::default();
    let nexthops: BTreeMap<NexthopId, Nexthop> = netlink
        .nexthops()
        .await?
        .unwrap_or_default()
        .into_iter()
        .collect();
    // Other tunnel devices than those that the programs serve have no neighbours.
    let served = Family::BOTH
        .iter()
        .map(|family| family_config(config, *family))
        .filter(|config| config.has_tunnel());
    let tunnels: BTreeSet<u32> = served.map(|config| config.tunnel_ifindex).collect();
    for family in Family::BOTH {
        let routes = netlink.routes(family).await?;
        kernel.routes.extend(
            routes
                .into_iter()
                .map(|(key, route)| (key, complete(route, &nexthops))),
        );
    }
    for tunnel in tunnels {
        kernel
            .neighbours
            .extend(netlink.neighbours(Some(tunnel)).await?);
        kernel.fdb.extend(netlink.fdb(tunnel).await?);
    }
    Ok(kernel)
}

/// The tunnel devices behind which something else carries the packets of a family. One may carry
/// both.
async fn carrying_devices(
    links: &BTreeMap<u32, Link>,
    config: &NodeConfig,
) -> Vec<(Family, Box<dyn CarryingDevice>)> {
    let mut found = Vec::new();
    for family in Family::BOTH {
        if let Some(link) = links.get(&family_config(config, family).tunnel_ifindex) {
            found.extend(carrying_device(link).await.map(|device| (family, device)));
        }
    }
    found
}

/// A route with what its nexthop object says.
fn complete(route: Route, nexthops: &BTreeMap<NexthopId, Nexthop>) -> Route {
    match route.nexthop.and_then(|id| nexthops.get(&NexthopId(id))) {
        Some(nexthop) => Route {
            gateway: nexthop.gateway,
            oif: nexthop.oif,
            ..route
        },
        None => route,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_that_of_the_types() {
        flannel_json_schema::check::<Diff>(Diff::NAME, Diff::SCHEMA_VERSION);
    }
}
