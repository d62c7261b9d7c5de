//! Start-up: from options to a node that can be kept. What time can heal is waited for, what it
//! cannot ends the agent.

mod lease;
pub(in crate::agent) mod leased_node;
pub(in crate::agent) mod node;
mod ownership;
mod reconciler;

use std::collections::BTreeMap;

use anyhow::Context as _;
use flannel_backend_api::PodNetwork;
use flannel_datapath::memory_is_ample;
use flannel_fast::RuleChanges;
use flannel_firewall::Watch;
use flannel_host::{error_chain::chain, family::Family, sysctl, sysctl_record::SharedRecord};
use flannel_host_sysctls::HostSysctls;
use flannel_metrics::{Counts, shared::SharedState};
use flannel_netlink::Netlink;
use flannel_options::RunOptions;
use flannel_status::Status;
use flannel_store::{
    LeaseKey, LeaseSet, StoreEvent, SubnetManager,
    etcd::{self, EtcdManager},
    kube::{self, KubeManager, NodeIdentity},
};
use flannel_traffic::{Engine, Traffic, WantedTraffic};
use tokio::sync::watch;

use crate::{
    agent::{
        components::{Components, EchoFeed, Holding, Settings, StoreHandles},
        host_addresses::HostAddressReader,
        programs::Programs,
        services::{self, Services},
        start::leased_node::LeasedNode,
    },
    memory,
};

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
    let node = leased_node(&mut manager, &netlink, options, publish).await?;
    ownership::retire_programs(options, &node.config, node.external.chosen());
    let services = Services::start(options, &node, &netlink, shared, stage).await?;
    // Tables of a size that the operator chose are tried up to a limit that is not seen, and a tool
    // that needs memory at that moment would go beyond it.
    let is_early = memory_is_ample() && options.fast.flow_table_size.is_none();
    let early = is_early.then(|| Programs::load(options, &node.backend, &node.networks));
    let udp = services::control_socket(options, &node.config).await;
    stage("looking for the tools that keep traffic rules");
    let traffic = traffic(options, &node, &netlink).await?;
    // On a node with thousands of Services `nft` takes as much memory as the verifier. Together
    // they would go beyond a limit that has room for either.
    let programs = early.unwrap_or_else(|| {
        Programs::load_after(traffic.first_look(), options, &node.backend, &node.networks)
    });
    let record = sysctl_record(options);
    let host_addresses = HostAddressReader::new(netlink.clone(), node.prefixes());
    let reconciler = reconciler::start(options, &node, netlink, shared, udp, record.clone().ok());
    let (attrs, to_publish) = watch::channel(node.request.attrs.clone());
    Ok(Components {
        settings: settings(options, &node),
        leases: leases::<M>(&node),
        firewall: Watch::start(
            options.fast.strict_rules,
            node.backend.port(),
            memory::return_holes,
        ),
        lease: Holding {
            own: node.own,
            assigned: M::ASSIGNS_SUBNETS,
            published: node.published,
            attrs,
        },
        store: StoreHandles::spawn(manager, node.request, to_publish),
        external: node.external,
        host_addresses,
        programs,
        reconciler,
        traffic,
        services,
        kernel,
        rules: RuleChanges::listen(),
        echoes: EchoFeed::of(&shared.echoes),
        host_sysctls: HostSysctls::new(record, options.set_forwarding),
        _claims: node.claims,
    })
}

/// Waits for a lease; starts over where the configuration or the interface changed.
async fn leased_node<M: SubnetManager>(
    manager: &mut M,
    netlink: &Netlink,
    options: &RunOptions,
    publish: &watch::Sender<Status>,
) -> anyhow::Result<LeasedNode> {
    let mut node = loop {
        // On the heap, because its future is large.
        if let Some(node) = Box::pin(lease::start(manager, netlink, options, publish)).await? {
            break node;
        }
        tracing::info!(
            "starting over: the network configuration or the external interface is another one by \
             now"
        );
    };
    if M::ASSIGNS_SUBNETS {
        cut_into_subnets(&mut node.networks, node.own.key);
    }
    Ok(node)
}

/// Starts the task that keeps traffic rules.
async fn traffic(
    options: &RunOptions,
    node: &LeasedNode,
    netlink: &Netlink,
) -> anyhow::Result<Traffic> {
    let engine = node.config.nftables.map(|nftables| {
        if nftables {
            Engine::Nftables
        } else {
            Engine::Iptables
        }
    });
    let wanted = WantedTraffic::of(&node.config, node.own.key, &node.former);
    let traffic = Traffic::start(netlink.clone(), engine, options.traffic.clone(), wanted).await;
    let traffic = traffic.context("--ip-masq cannot be done")?;
    warn_of_bridges(options, traffic.engine(), &node.networks);
    Ok(traffic)
}

/// The leases that are known at the start: our own.
fn leases<M: SubnetManager>(node: &LeasedNode) -> LeaseSet {
    let mut leases = LeaseSet::new(&node.config, M::PRECEDENCE, node.request.attrs.clone());
    leases.apply(StoreEvent::OwnLease(node.own.clone()));
    leases
}

fn settings(options: &RunOptions, node: &LeasedNode) -> Settings {
    Settings {
        config: node.config.clone(),
        subnet_file: options.paths.subnet_file.clone(),
        ip_masq: masquerades(options, &node.networks),
        mode: options.datapath.mode,
        guard: options.datapath.guard,
        node: node.node.clone(),
        has_tunnel: node.backend.port().is_some(),
        has_work: node.backend.has_work_for_programs(),
        former: node.former.clone(),
    }
}

/// The size of subnets is that of the assigned one.
fn cut_into_subnets(networks: &mut BTreeMap<Family, PodNetwork>, own: LeaseKey) {
    for (family, network) in networks {
        let length = own.subnet(*family).map_or(0, |subnet| subnet.prefix_len());
        *network = network.cut_into(length);
    }
}

/// True if pods of some family are masqueraded.
fn masquerades(options: &RunOptions, networks: &BTreeMap<Family, PodNetwork>) -> bool {
    let masquerade = options.traffic.masquerade;
    let any = networks.keys().any(|family| masquerade.has(*family));
    if masquerade.any() && !any {
        tracing::warn!(
            "--ip-masq names a family that the network configuration does not have: nothing is \
             masqueraded"
        );
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
            tracing::warn!(
                error,
                "no sysctl is set: the record of earlier changes is not usable"
            );
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
                "{setting} is not 1 (module br_netfilter): a pod gets no answer from a Service \
                 that leads to a pod of the same node"
            );
        }
    }
}
