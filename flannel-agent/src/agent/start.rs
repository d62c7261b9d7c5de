//! Start-up: from options to a node that can be kept. What time can heal is waited for, what it
//! cannot ends the agent.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    path::PathBuf,
};

use anyhow::Context as _;
use flannel_backends::{Backend, PodNetwork, ProgramSet, ipsec::IpsecTunnels, offload::LostOffloaded};
use flannel_claims::Claims;
use flannel_cloud::CloudRoutes;
use flannel_common::{
    guard::{Checks, GuardMode},
    mode::Mode,
};
use flannel_echo::SharedEchoes;
use flannel_extension::ExtensionCommands;
use flannel_fast::{ConntrackSysctls, Exclusions, Fast, FastScope, RuleChanges};
use flannel_host::{error_chain::chain, family::Family, sysctl, sysctl_record::SharedRecord};
use flannel_netlink::{KernelEvents, Netlink};
use flannel_reconcile::{PlaneSetup, Reconciler, host_sysctls::HostSysctls, unreachable::NotMade};
use flannel_status::Status;
use flannel_store::{
    LeaseAttrs, LeaseKey, LeaseSet, NetworkAvailability, NodeReports, OptOuts, OwnLease, StoreEvent, SubnetManager,
    config::{BackendConfig, NetworkConfig, TxChecksumOffload},
    etcd::{self, EtcdManager},
    kube::{self, KubeManager, NodeIdentity},
};
use flannel_traffic::{Engine, Traffic, WantedTraffic};
use ipnet::IpNet;
use tokio::sync::{mpsc, watch};

use crate::{
    agent::{
        cloud_start, extension_start,
        external::External,
        host_addresses::HostAddressReader,
        ipsec_start,
        lease_start::{self, LeasedNode},
        node_settings::NodeOverrides,
        ownership_start,
        programs::Programs,
        published::Published,
        udp_start,
    },
    memory,
    observe::{metrics::Counts, shared::SharedState},
    options::RunOptions,
};

/// Events of the store between its task and the main loop.
const STORE_QUEUE: usize = 1024;

/// A node that holds a lease and can be kept.
pub(super) struct Components {
    pub(super) settings: Settings,
    pub(super) lease: Holding,
    pub(super) store: StoreHandles,
    pub(super) leases: LeaseSet,
    pub(super) external: External,
    pub(super) host_addresses: HostAddressReader,
    pub(super) programs: Programs,
    pub(super) reconciler: Reconciler,
    pub(super) traffic: Traffic,
    /// The task that runs commands for peers, where the backend is extension.
    pub(super) extension: Option<ExtensionCommands>,
    /// The task that keeps routes in the cloud, where a cloud routes the packets.
    pub(super) cloud: Option<CloudRoutes>,
    /// The task that agrees on keys with peers, where the backend is ipsec.
    pub(super) ipsec: Option<IpsecTunnels>,
    pub(super) kernel: KernelEvents,
    pub(super) rules: RuleChanges,
    /// The peers to which packets without an outer UDP checksum are lost.
    pub(super) unsummed_lost: watch::Receiver<BTreeSet<IpAddr>>,
    /// The peers to which packets with offloaded checksums are lost.
    pub(super) offloaded_lost: watch::Receiver<BTreeSet<LostOffloaded>>,
    /// Takes the trials of checksum offload that are due.
    pub(super) echoes: SharedEchoes,
    pub(super) firewall: flannel_firewall::Watch,
    pub(super) host_sysctls: HostSysctls,
    /// The claims of this agent, for as long as it runs.
    _claims: Claims,
}

/// The parts of the configuration that stay the same while the agent runs.
pub(super) struct Settings {
    pub(super) config: NetworkConfig,
    pub(super) subnet_file: PathBuf,
    pub(super) ip_masq: bool,
    /// `--datapath`.
    pub(super) mode: Option<Mode>,
    pub(super) guard: Checks<GuardMode>,
    /// Settings of this node, which override those of the flags.
    pub(super) node: NodeOverrides,
    /// True if the backend has a tunnel that the guard can watch.
    pub(super) has_tunnel: bool,
    /// True if the backend has something for programs to do.
    pub(super) has_work: bool,
    /// Pod networks of an earlier life.
    pub(super) former: Vec<IpNet>,
}

/// The own lease: this is its only owner in the agent.
pub(super) struct Holding {
    pub(super) own: OwnLease,
    /// True if the store assigned our subnets permanently.
    pub(super) assigned: bool,
    pub(super) published: Published,
    /// The lease attributes that this node publishes. A changed value is published at once.
    pub(super) attrs: watch::Sender<LeaseAttrs>,
}

/// The ends of the channels to the store's task.
pub(super) struct StoreHandles {
    pub(super) events: mpsc::Receiver<StoreEvent>,
    pub(super) availability: NetworkAvailability,
    pub(super) reports: NodeReports,
    pub(super) opt_outs: OptOuts,
}

impl StoreHandles {
    fn new(manager: &mut impl SubnetManager, events: mpsc::Receiver<StoreEvent>) -> Self {
        Self {
            events,
            availability: manager.network_availability(),
            reports: manager.node_reports(),
            opt_outs: manager.opt_outs(),
        }
    }
}

/// Waits for the store that was chosen and brings the node up to its lease.
pub(super) async fn start(
    options: &RunOptions,
    publish: &watch::Sender<Status>,
    shared: &SharedState,
    counts: &Counts,
) -> anyhow::Result<Components> {
    let Some(kube) = &options.kube else {
        let manager = EtcdManager::new(&options.etcd, etcd::Liveness::default());
        return Box::pin(start_with(manager, options, publish, shared, counts)).await;
    };
    let identity = NodeIdentity::from_env(|name| std::env::var(name).ok())?;
    let manager = KubeManager::new(kube.clone(), identity, kube::Liveness::default());
    Box::pin(start_with(manager, options, publish, shared, counts)).await
}

async fn start_with<M: SubnetManager>(
    mut manager: M,
    options: &RunOptions,
    publish: &watch::Sender<Status>,
    shared: &SharedState,
    counts: &Counts,
) -> anyhow::Result<Components> {
    manager.count_with(counts.store.clone());
    let stage = |text: &str| publish.send_modify(|status| text.clone_into(&mut status.stage));
    let (netlink, kernel) = Netlink::connect().context("cannot talk to the kernel by netlink")?;
    let node = loop {
        // On the heap, because its future is large.
        if let Some(node) = Box::pin(lease_start::start(&mut manager, &netlink, options, publish)).await? {
            break node;
        }
        tracing::info!("starting over: the network configuration or the external interface is another one by now");
    };
    let LeasedNode {
        config,
        mut networks,
        node,
        external,
        backend,
        ends,
        keys,
        former,
        published,
        request,
        own,
        claims,
        networks_record,
    } = node;
    let interface = external.chosen();
    let extension = extension_start::start(options, &config, interface, own.key, &netlink, shared, stage).await?;
    let cloud = cloud_start::start(options, &config, interface, own.key, &shared.cloud)?;
    if M::ASSIGNS_SUBNETS {
        cut_into_subnets(&mut networks, own.key);
    }
    ownership_start::retire_programs(options, &config, interface);
    let programs = Programs::load(options, &backend, &networks);
    let (udp, ipsec) = processes(options, &config, &netlink, shared).await?;

    stage("looking for the tools that keep traffic rules");
    let engine = config.nftables.map(|nftables| if nftables { Engine::Nftables } else { Engine::Iptables });
    let wanted = WantedTraffic::of(&config, own.key, &former);
    let traffic = Traffic::start(netlink.clone(), engine, options.traffic.clone(), wanted).await;
    let traffic = traffic.context("--ip-masq cannot be done")?;

    let ip_masq = masquerades(options, &networks);
    let record = sysctl_record(options);
    warn_of_bridges(options, traffic.engine(), &networks);
    let setup = |(family, network): (&Family, &PodNetwork)| {
        let end = ends.get(family).copied();
        let unreachable_route = unreachable_route(options, backend.as_ref(), network.prefix);
        let nexthops_from = options.nexthops_from;
        (*family, PlaneSetup { network: *network, end, nexthops_from, unreachable_route })
    };
    let setups = networks.iter().map(setup).collect();
    let host_addresses =
        HostAddressReader::new(netlink.clone(), networks.values().map(|network| network.prefix).collect());
    let reconciler = Reconciler::new(netlink, &backend, &setups, interface, sysctl::local_ports(), &shared.peers)
        .with_fast(fast_of(options, backend.as_ref(), pod_networks(&config, &former), record.clone().ok()))
        .with_leftovers(networks_record)
        .with_checksum_offload(checksum_offload(options, &config))
        .with_wireguard(keys, shared.wireguard.clone())
        .with_udp(udp, shared.udp.clone());
    let mut leases = LeaseSet::new(&config, M::PRECEDENCE, request.attrs.clone());
    leases.apply(StoreEvent::OwnLease(own.clone()));
    let (events, receiver) = mpsc::channel(STORE_QUEUE);
    let (attrs, to_publish) = watch::channel(request.attrs.clone());
    let store = StoreHandles::new(&mut manager, receiver);
    tokio::spawn(manager.run(request, to_publish, events));
    Ok(Components {
        settings: Settings {
            config,
            subnet_file: options.paths.subnet_file.clone(),
            ip_masq,
            mode: options.datapath.mode,
            guard: options.datapath.guard,
            node,
            has_tunnel: backend.port().is_some(),
            has_work: backend.has_work_for_programs(),
            former,
        },
        lease: Holding { own, assigned: M::ASSIGNS_SUBNETS, published, attrs },
        store,
        leases,
        external,
        host_addresses,
        programs,
        reconciler,
        traffic,
        extension,
        cloud,
        ipsec,
        kernel,
        rules: RuleChanges::listen(),
        unsummed_lost: shared.echoes.unsummed_lost(),
        offloaded_lost: shared.echoes.offloaded_lost(),
        echoes: shared.echoes.clone(),
        host_sysctls: HostSysctls::new(record, options.set_forwarding),
        _claims: claims,
        firewall: flannel_firewall::Watch::start(options.fast.strict_rules, backend.port(), memory::return_holes),
    })
}

/// The control socket of the process of the backend udp, and the task that keeps that of ipsec,
/// where that is the backend. Processes of another backend are ended.
async fn processes(
    options: &RunOptions,
    config: &NetworkConfig,
    netlink: &Netlink,
    shared: &SharedState,
) -> anyhow::Result<(Option<PathBuf>, Option<IpsecTunnels>)> {
    let udp = udp_start::control_socket(options, config).await;
    Ok((udp, ipsec_start::start(options, config, netlink, &shared.ipsec).await?))
}

/// The option, or else the network configuration.
fn checksum_offload(options: &RunOptions, config: &NetworkConfig) -> TxChecksumOffload {
    let BackendConfig::Vxlan(vxlan) = &config.backend else { return TxChecksumOffload::Auto };
    options.datapath.tx_checksum_offload.unwrap_or(vxlan.tx_checksum_offload)
}

/// Checks that the options allow the unreachable route for a pod network. Fails if it is switched
/// off, if the backend carries no packets, or if an address of the store is in the network.
fn unreachable_route(options: &RunOptions, backend: &dyn Backend, network: IpNet) -> Result<(), NotMade> {
    if !options.unreachable_route {
        return Err(NotMade::Disabled);
    }
    if !backend.carries_packets() {
        return Err(NotMade::NoCarrier);
    }
    if backend.routes_whole_network() {
        return Err(NotMade::IntoTunnel);
    }
    let inside = store_addresses(options).into_iter().find(|address| network.contains(address));
    inside.map_or(Ok(()), |address| Err(NotMade::HasStore(address)))
}

/// Addresses of the store, where it is not named by a host name. In a pod the API server has one of
/// a Service: these may be in the pod network, and have no route but the default route.
fn store_addresses(options: &RunOptions) -> Vec<IpAddr> {
    let urls = options.kube.as_ref().map_or(options.etcd.endpoints.clone(), |kube| vec![kube.api()]);
    let hosts = urls.iter().filter_map(|url| url.parse::<http::Uri>().ok()?.host().map(str::to_owned));
    let service = std::env::var("KUBERNETES_SERVICE_HOST").ok();
    hosts.chain(service).filter_map(|host| host.trim_matches(['[', ']']).parse().ok()).collect()
}

/// The size of subnets is that of the assigned one.
fn cut_into_subnets(networks: &mut BTreeMap<Family, PodNetwork>, own: LeaseKey) {
    for (family, network) in networks {
        let length = own.subnet(*family).map_or(0, |subnet| subnet.prefix_len());
        *network = network.cut_into(length);
    }
}

fn fast_of(
    options: &RunOptions,
    backend: &dyn Backend,
    pod_networks: Vec<IpNet>,
    record: Option<SharedRecord>,
) -> Fast {
    let conntrack = ConntrackSysctls::new(options.fast.conntrack_liberal, record, pod_networks);
    Fast::new(scope_of(options, backend), conntrack, Exclusions::new(options.fast.exclude.clone()))
}

/// Returns the flows that mode `fast` learns: with hosts outside only where programs see them.
fn scope_of(options: &RunOptions, backend: &dyn Backend) -> FastScope {
    let sees_them = backend.programs().is_ok_and(ProgramSet::is_on_external);
    if sees_them { options.fast.scope } else { FastScope::Cluster }
}

/// The networks pods of this node have addresses of, former ones included.
fn pod_networks(config: &NetworkConfig, former: &[IpNet]) -> Vec<IpNet> {
    config.networks().chain(former.iter().copied()).collect()
}

/// True if pods of some family are masqueraded.
fn masquerades(options: &RunOptions, networks: &BTreeMap<Family, PodNetwork>) -> bool {
    let masquerade = options.traffic.masquerade;
    let any = networks.keys().any(|family| masquerade.has(*family));
    if masquerade.any() && !any {
        tracing::warn!("--ip-masq names a family that the network configuration does not have: nothing is masqueraded");
    }
    any
}

/// The record of changed sysctls; the reason why it cannot be used.
fn sysctl_record(options: &RunOptions) -> Result<SharedRecord, String> {
    match SharedRecord::load_or_repair(&options.paths.state_dir) {
        Ok((record, repair)) => {
            if let Some(repair) = repair {
                tracing::warn!("{repair}");
            }
            Ok(record)
        }
        Err(error) => {
            let error = chain(&error);
            tracing::warn!(error, "no sysctl is set: the record of earlier changes is not usable");
            Err(error)
        }
    }
}

/// Stock flannel does not start where bridges do not call iptables. Its rules do not need that;
/// kube-proxy's do.
fn warn_of_bridges(options: &RunOptions, engine: Engine, networks: &BTreeMap<Family, PodNetwork>) {
    if engine != Engine::Iptables || !options.traffic.any_rule() {
        return;
    }
    for family in networks.keys() {
        let setting = sysctl::bridge_filtering(*family);
        if !sysctl::is_on(setting) {
            let setting = setting.replace('/', ".");
            tracing::warn!(
                "{setting} is not 1 (module br_netfilter): a pod gets no answer from a Service that leads to a pod of the same node"
            );
        }
    }
}
