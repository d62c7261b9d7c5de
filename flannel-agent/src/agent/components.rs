//! The parts of a node that holds a lease, which the main loop keeps.

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf};

use flannel_backend_api::offload::LostOffloaded;
use flannel_claims::Claims;
use flannel_common::abi::{
    guard::{Checks, GuardMode},
    mode::Mode,
};
use flannel_echo::SharedEchoes;
use flannel_fast::RuleChanges;
use flannel_host_sysctls::HostSysctls;
use flannel_netlink::KernelEvents;
use flannel_reconcile::Reconciler;
use flannel_store::{
    LeaseAttrs, LeaseRequest, LeaseSet, NetworkAvailability, NodeReports, OptOuts, OwnLease,
    StoreEvent, SubnetManager, config::NetworkConfig,
};
use flannel_traffic::Traffic;
use ipnet::IpNet;
use tokio::sync::{mpsc, watch};

use crate::agent::{
    external::External, host_addresses::HostAddressReader, node_settings::NodeOverrides,
    programs::Programs, published::Published, services::Services,
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
    pub(super) services: Services,
    pub(super) kernel: KernelEvents,
    pub(super) rules: RuleChanges,
    pub(super) echoes: EchoFeed,
    pub(super) firewall: flannel_firewall::Watch,
    pub(super) host_sysctls: HostSysctls,
    /// The claims of this agent, for as long as it runs.
    pub(super) _claims: Claims,
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
    /// Starts the store's task, which keeps the lease and reports what changes.
    pub(super) fn spawn<M: SubnetManager>(
        mut manager: M,
        request: LeaseRequest,
        attrs: watch::Receiver<LeaseAttrs>,
    ) -> Self {
        let (sender, events) = mpsc::channel(STORE_QUEUE);
        let handles = Self {
            events,
            availability: manager.network_availability(),
            reports: manager.node_reports(),
            opt_outs: manager.opt_outs(),
        };
        tokio::spawn(manager.run(request, attrs, sender));
        handles
    }
}

/// The results of echo requests that the kernel is to follow.
pub(super) struct EchoFeed {
    /// The peers to which packets without an outer UDP checksum are lost.
    pub(super) unsummed_lost: watch::Receiver<BTreeSet<IpAddr>>,
    /// The peers to which packets with offloaded checksums are lost.
    pub(super) offloaded_lost: watch::Receiver<BTreeSet<LostOffloaded>>,
    /// Takes the trials of checksum offload that are due.
    pub(super) shared: SharedEchoes,
}

impl EchoFeed {
    pub(super) fn of(echoes: &SharedEchoes) -> Self {
        Self {
            unsummed_lost: echoes.unsummed_lost(),
            offloaded_lost: echoes.offloaded_lost(),
            shared: echoes.clone(),
        }
    }
}
