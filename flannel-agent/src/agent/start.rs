//! Start-up: from options to a node that can be kept. What time can heal is waited for, what it cannot ends the agent.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use anyhow::{Context as _, bail};
use flannel_common::{addr::Mac, mode::Mode};
use ipnet::Ipv4Net;
use tokio::sync::{mpsc, watch};

use crate::{
    agent::{
        bpf,
        external::{Chosen, External},
        sysctl,
    },
    backend::vxlan::{device_mtu, device_name},
    cli::RunOptions,
    config::{BackendConfig, FamilyConfig, NetworkConfig, VxlanConfig},
    iface::ExternalInterface,
    netlink::{KernelEvents, Netlink, VxlanSpec},
    observe::status::Status,
    reconcile::{Reconciler, Setup, device},
    subnet::{
        LeaseAttrs, LeaseRequest, LeaseSet, OwnLease, Readiness, StoreEvent, SubnetManager, VxlanData,
        etcd::{self, EtcdManager},
        kube::{self, KubeManager, NodeIdentity},
        read_previous, wait_for_config, wait_for_hints, wait_for_lease,
    },
};

/// Events of the store between its task and the main loop.
const STORE_QUEUE: usize = 1024;

/// A node that holds a lease and can be kept.
pub(super) struct Started {
    pub(super) reconciler: Reconciler,
    pub(super) external: External,
    /// What we publish; another value here is published at once.
    pub(super) attrs: watch::Sender<LeaseAttrs>,
    pub(super) leases: LeaseSet,
    pub(super) own: OwnLease,
    /// Whether the store assigned our subnet for good.
    pub(super) assigned: bool,
    pub(super) subnet: Ipv4Net,
    pub(super) setup: Setup,
    pub(super) subnet_file: PathBuf,
    pub(super) ip_masq: bool,
    pub(super) flag: Option<Mode>,
    pub(super) config_mode: Option<Mode>,
    pub(super) no_bpf: Option<String>,
    pub(super) kernel: KernelEvents,
    pub(super) store: mpsc::Receiver<StoreEvent>,
    pub(super) readiness: Readiness,
}

/// Waits for the store that was chosen and brings the node up to its lease.
pub(super) async fn start(options: &RunOptions, publish: &watch::Sender<Status>) -> anyhow::Result<Started> {
    let Some(kube) = &options.kube else {
        return start_with(EtcdManager::new(&options.etcd, etcd::Liveness::default()), options, publish).await;
    };
    let identity = NodeIdentity::from_env(|name| std::env::var(name).ok())?;
    start_with(KubeManager::new(kube.clone(), identity, kube::Liveness::default()), options, publish).await
}

async fn start_with<M: SubnetManager>(
    mut manager: M,
    options: &RunOptions,
    publish: &watch::Sender<Status>,
) -> anyhow::Result<Started> {
    let stage = |text: &str| publish.send_modify(|status| text.clone_into(&mut status.stage));
    let (netlink, kernel) = Netlink::connect().context("cannot talk to the kernel by netlink")?;

    stage("waiting for the network configuration");
    let config = wait_for_config(&mut manager).await.context("the network configuration cannot be served")?;
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let BackendConfig::Vxlan(vxlan) = config.backend.clone() else {
        bail!("this version does not serve the backend {}", config.backend.type_name())
    };
    let (Some(family), None) = (config.ipv4, config.ipv6) else { bail!("this version serves IPv4 alone") };

    stage("asking what the store remembers of this node");
    let hints = wait_for_hints(&mut manager).await;

    stage("choosing the external interface");
    let external = External::choose(&netlink, options, &hints).await?;
    let Chosen { interface, source: vtep } = external.chosen().clone();
    tracing::info!(interface = interface.name, address = %interface.addr, public = %interface.public, mtu = interface.mtu, "external interface");

    stage("making the tunnel device");
    let device = device::ensure(&netlink, &first_spec(&vxlan, &interface, vtep, hints.vtep_mac), true).await?;
    let mut setup = Setup { config: vxlan, family, external: interface, vtep, mac: device.mac };

    stage("waiting for a subnet lease");
    let request = lease_request(options, &config, &setup)?;
    let own = wait_for_lease(&mut manager, &request).await?;
    let subnet = own.key.v4.context("the lease has no IPv4 subnet")?;
    tracing::info!(%subnet, "lease acquired");
    if M::ASSIGNS_SUBNETS {
        setup.family = FamilyConfig::assigned(setup.family.network, subnet.prefix_len());
    }

    if !sysctl::forwards_ipv4() {
        tracing::warn!("net.ipv4.ip_forward is 0: this node will not carry its pods' packets until that is 1");
    }
    let bpf = bpf::open(options, &setup.config, &setup.family);
    let no_bpf = bpf.as_ref().err().cloned();
    let reconciler = Reconciler::new(netlink, setup.clone(), sysctl::local_ports(), bpf.ok());
    let mut leases = LeaseSet::new(&config, request.attrs.clone());
    leases.apply(StoreEvent::OwnLease(own.clone()));
    let readiness = manager.readiness();
    let (events, store) = mpsc::channel(STORE_QUEUE);
    let (attrs, published) = watch::channel(request.attrs.clone());
    tokio::spawn(manager.run(request, published, events));
    Ok(Started {
        reconciler,
        external,
        attrs,
        leases,
        own,
        assigned: M::ASSIGNS_SUBNETS,
        subnet,
        setup,
        subnet_file: options.subnet_file.clone(),
        ip_masq: options.ip_masq,
        flag: options.datapath,
        config_mode: config.datapath,
        no_bpf,
        kernel,
        store,
        readiness,
    })
}

/// The device before we know its address: one that is there keeps its own; a new one gets the one peers know, else a
/// random one.
fn first_spec(config: &VxlanConfig, external: &ExternalInterface, vtep: Ipv4Addr, known: Option<Mac>) -> VxlanSpec {
    VxlanSpec {
        name: device_name(config),
        vni: config.vni,
        port: config.port,
        mtu: device_mtu(config, external.mtu),
        mac: known.unwrap_or_else(|| Mac::local_unicast(rand::random())),
        lower: external.index,
        local: vtep.into(),
        learning: config.learning,
        gbp: config.gbp,
    }
}

fn lease_request(options: &RunOptions, config: &NetworkConfig, setup: &Setup) -> anyhow::Result<LeaseRequest> {
    let IpAddr::V4(public_ip) = setup.external.public else {
        bail!("the public address {} is no IPv4 address", setup.external.public)
    };
    let attrs = LeaseAttrs {
        public_ip: Some(public_ip),
        public_ipv6: None,
        backend_type: config.backend.type_name().to_owned(),
        backend_data: Some(
            VxlanData { vni: Some(setup.config.vni), vtep_mac: setup.mac, zero_checksum_v6: false }.to_json(),
        ),
        backend_v6_data: None,
    };
    let previous = match read_previous(&options.subnet_file) {
        Ok(previous) => previous,
        Err(error) => {
            tracing::warn!(%error, "the former subnet is not known");
            None
        }
    };
    Ok(LeaseRequest { config: config.clone(), attrs, previous })
}
