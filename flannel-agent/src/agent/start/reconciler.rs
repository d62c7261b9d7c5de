//! The reconciler of a node that has its lease.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

use flannel_backend_api::{Backend, PodNetwork, ProgramSet};
use flannel_backends::MARKS;
use flannel_fast::{ConntrackSysctls, Exclusions, Fast, FastScope};
use flannel_host::{family::Family, sysctl, sysctl_record::SharedRecord};
use flannel_metrics::shared::SharedState;
use flannel_netlink::Netlink;
use flannel_options::RunOptions;
use flannel_reconcile::{PlaneSetup, Reconciler, unreachable::NotMade};
use flannel_store::config::{NetworkConfig, TxChecksumOffload};
use ipnet::IpNet;

use crate::agent::{services, start::leased_node::LeasedNode};

/// Makes the reconciler. `udp` is the control socket of the process of the backend udp, `record`
/// that of changed sysctls.
pub(in crate::agent) fn start(
    options: &RunOptions,
    node: &LeasedNode,
    netlink: Netlink,
    shared: &SharedState,
    udp: Option<PathBuf>,
    record: Option<SharedRecord>,
) -> Reconciler {
    let backend = node.backend.as_ref();
    let setups = setups(options, node);
    let fast = fast_of(
        options,
        backend,
        pod_networks(&node.config, &node.former),
        record,
    );
    let interface = node.external.chosen();
    Reconciler::new(
        netlink,
        &node.backend,
        &setups,
        interface,
        sysctl::local_ports(),
        &shared.peers,
    )
    .with_fast(fast)
    .with_leftovers(node.networks_record.clone(), MARKS)
    .with_checksum_offload(checksum_offload(options, &node.config))
    .with_tunnel_peers(services::tunnel_peers(node.keys, udp, shared))
}

fn setups(options: &RunOptions, node: &LeasedNode) -> BTreeMap<Family, PlaneSetup> {
    let setup = |(family, network): (&Family, &PodNetwork)| {
        let end = node.ends.get(family).copied();
        let unreachable_route = unreachable_route(options, node.backend.as_ref(), network.prefix);
        let nexthops_from = options.nexthops_from;
        (
            *family,
            PlaneSetup {
                network: *network,
                end,
                nexthops_from,
                unreachable_route,
                marks: MARKS,
            },
        )
    };
    node.networks.iter().map(setup).collect()
}

/// The option, or else the network configuration.
fn checksum_offload(options: &RunOptions, config: &NetworkConfig) -> TxChecksumOffload {
    let Some(configured) = config.backend.tx_checksum_offload() else {
        return TxChecksumOffload::Auto;
    };
    options.datapath.tx_checksum_offload.unwrap_or(configured)
}

/// Checks that the options allow the unreachable route for a pod network. Fails if it is switched
/// off, if the backend carries no packets, or if an address of the store is in the network.
fn unreachable_route(
    options: &RunOptions,
    backend: &dyn Backend,
    network: IpNet,
) -> Result<(), NotMade> {
    if !options.unreachable_route {
        return Err(NotMade::Disabled);
    }
    if !backend.carries_packets() {
        return Err(NotMade::NoCarrier);
    }
    if backend.routes_whole_network() {
        return Err(NotMade::IntoTunnel);
    }
    let inside = store_addresses(options)
        .into_iter()
        .find(|address| network.contains(address));
    inside.map_or(Ok(()), |address| Err(NotMade::HasStore(address)))
}

/// Addresses of the store, where it is not named by a host name. In a pod the API server has one of
/// a Service: these may be in the pod network, and have no route but the default route.
fn store_addresses(options: &RunOptions) -> Vec<IpAddr> {
    let urls = options
        .kube
        .as_ref()
        .map_or(options.etcd.endpoints.clone(), |kube| vec![kube.api()]);
    let hosts = urls
        .iter()
        .filter_map(|url| url.parse::<http::Uri>().ok()?.host().map(str::to_owned));
    let service = std::env::var("KUBERNETES_SERVICE_HOST").ok();
    hosts
        .chain(service)
        .filter_map(|host| host.trim_matches(['[', ']']).parse().ok())
        .collect()
}

fn fast_of(
    options: &RunOptions,
    backend: &dyn Backend,
    pod_networks: Vec<IpNet>,
    record: Option<SharedRecord>,
) -> Fast {
    let conntrack = ConntrackSysctls::new(options.fast.conntrack_liberal, record, pod_networks);
    Fast::new(
        scope_of(options, backend),
        conntrack,
        Exclusions::new(options.fast.exclude.clone()),
    )
}

/// Returns the flows that mode `fast` learns: with hosts outside only where programs see them.
fn scope_of(options: &RunOptions, backend: &dyn Backend) -> FastScope {
    let sees_them = backend.programs().is_ok_and(ProgramSet::is_on_external);
    if sees_them {
        options.fast.scope
    } else {
        FastScope::Cluster
    }
}

/// The networks pods of this node have addresses of, former ones included.
fn pod_networks(config: &NetworkConfig, former: &[IpNet]) -> Vec<IpNet> {
    config.networks().chain(former.iter().copied()).collect()
}
