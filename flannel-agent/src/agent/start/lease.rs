//! From the network configuration to a lease: what comes before all else of the start, and waits
//! where time or an operator can help.
//!
//! A node that waits is not ready, and its status has the reason. While it waits it looks whether
//! the network configuration or the external interface is another one by now: with another one it
//! starts over.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use flannel_backend_api::{Backend, DeviceError, OwnEnd, PodNetwork, TunnelUnderlay, usable_mtu};
use flannel_backends::wireguard::WireguardKeys;
use flannel_claims::state_dir;
use flannel_common::packet::addr::Mac;
use flannel_host::{clock, error_chain::chain, family::Family};
use flannel_iface::{ExternalInterface, IfaceOptions};
use flannel_netlink::Netlink;
use flannel_options::RunOptions;
use flannel_reconcile::{networks::NetworksRecord, tunnel::device};
use flannel_status::Status;
use flannel_store::{
    AcquireError, AddressFault, Hints, LeaseAttrs, LeaseKey, LeaseRequest, LogThrottle, NodeMemory,
    OwnLease, SubnetManager, config::NetworkConfig, read_previous, read_previous_networks,
    wait_for_config, wait_for_hints, wait_for_lease,
};
use ipnet::IpNet;
use tokio::sync::watch;

use crate::agent::{
    external::{self, External},
    node_settings::NodeOverrides,
    published::Published,
    services,
    start::{
        leased_node::LeasedNode,
        node::{choose_external, log_settings, with_node_mtu},
        ownership,
    },
};

/// Warnings about the network configuration that are logged; there is one for each key that is not
/// known.
const CONFIG_WARNINGS: usize = 20;
/// The kernel's limit for a device's name, in bytes (`IFNAMSIZ` of [include/uapi/linux/if.h, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/uapi/linux/if.h) less the final zero).
const MAX_DEVICE_NAME: usize = 15;
/// Before another attempt to choose the external interface, or to make the tunnel devices.
const RETRY: Duration = Duration::from_secs(1);

/// Brings the node up to its lease. `None` if it has to start over.
pub(in crate::agent) async fn start<M: SubnetManager>(
    manager: &mut M,
    netlink: &Netlink,
    options: &RunOptions,
    publish: &watch::Sender<Status>,
) -> anyhow::Result<Option<LeasedNode>> {
    let stage = |text: &str| publish.send_modify(|status| text.clone_into(&mut status.stage));
    stage("waiting for the network configuration");
    let read = wait_for_config(manager, |problem| show(publish, Some(problem))).await;
    let read = read.context("the network configuration cannot be served")?;
    show(publish, None);
    log_warnings(&read);
    let claims = ownership::claim(options, &read, publish).await?;

    stage("asking what the store remembers of this node");
    let hints = wait_for_hints(manager, |problem| show(publish, Some(problem))).await;
    show(publish, None);
    let mut node = NodeOverrides::new(hints.settings.clone());

    stage("choosing the external interface");
    let mut waiting = Waiting {
        publish,
        netlink,
        read: &read,
        hints: &hints,
        complaint: LogThrottle::default(),
    };
    let Some(mut external) = waiting.external(manager, &options.iface, &mut node).await? else {
        return Ok(None);
    };
    let interface = external.chosen();
    let config = with_node_mtu(read.clone(), &mut node, interface.mtu);
    log_settings(node.states());
    log_interface(interface);
    external::warn_of_pod_networks(interface, &config);
    let backend = services::backend_of(&config, interface, stage).await?;

    stage("making the tunnel devices");
    let keys = own_keys(options, backend.as_ref())?;
    let ends = waiting.devices(manager, backend.as_ref(), &mut external, keys);
    let Some(ends) = ends.await? else {
        return Ok(None);
    };

    stage("waiting for a subnet lease");
    let networks_record = NetworksRecord::open(&options.paths.state_dir, config.networks());
    let former = former_networks(options, &networks_record);
    let published = Published::new(Arc::clone(&backend), config.backend.properties().lease_name);
    let request = lease_request(options, &config, published.attrs(external.chosen(), &ends));
    manager.remember_in(memory(netlink, options, external.chosen()).await?);
    let Some(own) = waiting.lease(manager, &request, &mut external).await else {
        return Ok(None);
    };
    Ok(Some(LeasedNode {
        networks: networks(&read),
        config,
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
    }))
}

/// Shows in the status what the start waits for, if it does.
fn show(publish: &watch::Sender<Status>, problem: Option<&str>) {
    publish.send_if_modified(|status| {
        if status.error.as_deref() == problem {
            return false;
        }
        status.error = problem.map(str::to_owned);
        status.update_problems(clock::unix_now());
        true
    });
}

/// A start that waits.
struct Waiting<'a> {
    publish: &'a watch::Sender<Status>,
    netlink: &'a Netlink,
    /// The network configuration as it was read.
    read: &'a NetworkConfig,
    /// The store's memory of this node.
    hints: &'a Hints,
    complaint: LogThrottle,
}

impl Waiting<'_> {
    /// Waits for an external interface. `None` if the network configuration is another one by now.
    async fn external<M: SubnetManager>(
        &mut self,
        manager: &mut M,
        options: &IfaceOptions,
        node: &mut NodeOverrides,
    ) -> anyhow::Result<Option<External>> {
        let (netlink, read, hints) = (self.netlink, self.read, self.hints);
        let external = loop {
            match choose_external(netlink, options, read, hints, node).await {
                Ok(external) => break external,
                Err(error) if error.can_pass() => {
                    self.complain("no external interface yet", &error.on_one_line());
                }
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(RETRY).await;
            if self.has_another_config(manager).await {
                return Ok(None);
            }
        };
        self.end();
        Ok(Some(external))
    }

    /// Waits until the tunnel devices are there. `None` if the node has to start over.
    async fn devices<M: SubnetManager>(
        &mut self,
        manager: &mut M,
        backend: &dyn Backend,
        external: &mut External,
        keys: Option<WireguardKeys>,
    ) -> anyhow::Result<Option<BTreeMap<Family, OwnEnd>>> {
        let (netlink, hints) = (self.netlink, self.hints);
        let ends = loop {
            match make_devices(netlink, backend, external.chosen(), hints, keys).await {
                Ok(ends) => break ends,
                Err(error) if error.downcast_ref().is_some_and(DeviceError::is_temporary) => {
                    self.complain("cannot make the tunnel device", &chain(error.as_ref()));
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(RETRY).await;
            if self.is_outdated(manager, external).await {
                return Ok(None);
            }
        };
        self.end();
        Ok(Some(ends))
    }

    /// Waits for a lease. `None` if the node has to start over.
    async fn lease<M: SubnetManager>(
        &self,
        manager: &mut M,
        request: &LeaseRequest,
        external: &mut External,
    ) -> Option<OwnLease> {
        let own = wait_for_lease(manager, request, async |manager, error| {
            self.for_lease(error);
            !self.is_outdated(manager, external).await
        });
        let own = own.await?;
        self.publish.send_modify(|status| {
            (status.lease_problem, status.conflicts.address) = (None, 0);
            status.update_problems(clock::unix_now());
        });
        tracing::info!(lease = %own.key, "lease acquired");
        Some(own)
    }

    /// Shows in the status why the store grants no lease.
    fn for_lease<E: std::error::Error>(&self, error: &AcquireError<E>) {
        let address_taken = matches!(error, AcquireError::AddressTaken(_));
        self.publish.send_modify(|status| {
            status.lease_problem = Some(error.to_string());
            status.conflicts.address = usize::from(address_taken);
            status.update_problems(clock::unix_now());
        });
    }

    /// Shows in the status what keeps the start waiting, and logs it once a minute.
    fn complain(&mut self, what: &str, problem: &str) {
        if self.complaint.is_due(problem, Instant::now()) {
            tracing::warn!("{what}; tried again every second: {problem}");
        }
        show(self.publish, Some(problem));
    }

    /// Takes the problem out of the status.
    fn end(&mut self) {
        self.complaint.clear();
        show(self.publish, None);
    }

    /// Returns true if the network configuration or the external interface is another one by now.
    async fn is_outdated<M: SubnetManager>(
        &self,
        manager: &mut M,
        external: &mut External,
    ) -> bool {
        external.invalidate();
        self.has_another_config(manager).await || external.look_again().await.is_some()
    }

    async fn has_another_config<M: SubnetManager>(&self, manager: &mut M) -> bool {
        let config = manager
            .network_config()
            .await
            .ok()
            .and_then(|text| M::parse_config(&text).ok());
        config.is_some_and(|config| config != *self.read)
    }
}

/// The place of the record of the node's lease.
async fn memory(
    netlink: &Netlink,
    options: &RunOptions,
    external: &ExternalInterface,
) -> anyhow::Result<NodeMemory> {
    let links = netlink
        .links()
        .await
        .context("cannot read the interfaces of this host")?;
    let of = |index| {
        links
            .iter()
            .find(|link| link.index == index)
            .and_then(|link| link.mac)
    };
    Ok(NodeMemory {
        file: state_dir::lease_record(&options.paths.state_dir),
        interface: of(external.index).filter(|mac| mac.is_unicast()),
        interfaces: links.iter().filter_map(|link| link.mac).collect(),
    })
}

fn log_warnings(config: &NetworkConfig) {
    for warning in config.warnings.iter().take(CONFIG_WARNINGS) {
        tracing::warn!("{warning}");
    }
    if let more @ 1.. = config.warnings.len().saturating_sub(CONFIG_WARNINGS) {
        tracing::warn!("{more} more warnings about the network configuration");
    }
}

/// The keys of this node, where the backend needs them.
fn own_keys(options: &RunOptions, backend: &dyn Backend) -> anyhow::Result<Option<WireguardKeys>> {
    Ok(backend
        .has_keys()
        .then(|| WireguardKeys::of_file(&options.paths.wireguard_key_file))
        .transpose()?)
}

fn networks(config: &NetworkConfig) -> BTreeMap<Family, PodNetwork> {
    let v4 = config.ipv4.map(|config| (Family::V4, config.into()));
    let v6 = config.ipv6.map(|config| (Family::V6, config.into()));
    v4.into_iter().chain(v6).collect()
}

/// Makes each family's tunnel device, if the backend has one, before we know its address: one that
/// is there keeps its own; a new one gets the one peers know, else a random one.
async fn make_devices(
    netlink: &Netlink,
    backend: &dyn Backend,
    external: &ExternalInterface,
    hints: &Hints,
    keys: Option<WireguardKeys>,
) -> anyhow::Result<BTreeMap<Family, OwnEnd>> {
    let mut ends = BTreeMap::new();
    for (family, end) in &external.ends {
        backend.accept(end)?;
        usable_mtu(backend, *family, external.mtu)?;
        let known = match family {
            Family::V4 => hints.vtep_mac,
            Family::V6 => hints.vtep_mac_v6,
        };
        let mac = known.unwrap_or_else(|| Mac::local_unicast(rand::random()));
        let lower = TunnelUnderlay {
            external: external.index,
            mtu: external.mtu,
            source: end.source,
            mac,
        };
        let Some(wanted) = backend.device(&lower) else {
            continue;
        };
        ensure!(
            wanted.name().len() <= MAX_DEVICE_NAME,
            "the {family} tunnel device would be {}, and a device's name has at most \
             {MAX_DEVICE_NAME} bytes: choose a \
             Backend.VNI of fewer digits",
            wanted.name()
        );
        let device = device::ensure(netlink, wanted.as_ref(), true).await?;
        let of_device = device.vtep.map(OwnEnd::from);
        let own = of_device.or(keys.map(|keys| keys.public.into()));
        ends.extend(own.map(|own| (*family, own)));
    }
    Ok(ends)
}

fn log_interface(interface: &ExternalInterface) {
    for end in interface.ends.values() {
        tracing::info!(
            interface = interface.name,
            address = %end.addr,
            public = %end.public,
            mtu = interface.mtu,
            "external interface"
        );
    }
    warn_of_addresses(interface);
}

/// Other nodes refuse a lease with such an address.
fn warn_of_addresses(external: &ExternalInterface) {
    for end in external.ends.values() {
        if let Some(fault) = AddressFault::of(end.public) {
            tracing::warn!(
                "our public address {} {fault}: other nodes will refuse our lease; choose another \
                 by --public-ip or --iface",
                end.public
            );
        }
    }
}

/// The networks that subnet.env names, and those on record: subnet.env may have been removed.
fn former_networks(options: &RunOptions, record: &NetworksRecord) -> Vec<IpNet> {
    let mut former = read_previous_networks(&options.paths.subnet_file).unwrap_or_else(|error| {
        tracing::debug!(%error, "the networks in subnet.env are not known");
        Vec::new()
    });
    former.extend(record.former());
    former.sort();
    former.dedup();
    former
}

fn lease_request(options: &RunOptions, config: &NetworkConfig, attrs: LeaseAttrs) -> LeaseRequest {
    let previous: Option<LeaseKey> = match read_previous(&options.paths.subnet_file) {
        Ok(previous) => previous,
        Err(error) => {
            tracing::warn!(%error, "the former subnet is not known");
            None
        }
    };
    LeaseRequest {
        config: config.clone(),
        attrs,
        previous,
    }
}
