//! The routes in a cloud.

use std::collections::BTreeSet;

use anyhow::Context as _;
use flannel_cloud::{CloudConfig, CloudRoutes, CloudSetup, DesiredRoute, SharedCloudStatus};
use flannel_host::family::Family;
use flannel_iface::ExternalInterface;
use flannel_options::RunOptions;
use flannel_store::{
    LeaseKey,
    config::{BackendConfig, NetworkConfig},
};
use ipnet::Ipv4Net;

use super::service::{Service, ServiceView};

/// Starts the task that keeps the routes of a node that has its lease. `None` with a backend that
/// has none.
pub(super) fn start(
    options: &RunOptions,
    config: &NetworkConfig,
    external: &ExternalInterface,
    key: LeaseKey,
    shared: &SharedCloudStatus,
) -> anyhow::Result<Option<CloudRoutes>> {
    let cloud = match &config.backend {
        BackendConfig::AwsVpc(keys) => CloudConfig::Aws(keys.clone()),
        BackendConfig::Gce => CloudConfig::Gce,
        BackendConfig::TencentVpc(keys) => CloudConfig::Tencent(keys.clone()),
        BackendConfig::AliVpc(keys) => CloudConfig::Ali(keys.clone()),
        _ => return Ok(None),
    };
    let setup = CloudSetup {
        config: cloud,
        network: config.ipv4.context("routes of a cloud need IPv4")?.network,
        interval: options.cloud_interval,
        state_dir: options.paths.state_dir.clone(),
        shared: shared.clone(),
    };
    let desired = desired_route(external, key, BTreeSet::new(), false)
        .context("a lease without an IPv4 subnet")?;
    Ok(Some(CloudRoutes::start(setup, desired)?))
}

impl Service for CloudRoutes {
    fn learn(&mut self, view: &ServiceView<'_>) {
        let others = view.leases.others_v4().collect();
        if let Some(desired) = desired_route(view.interface, view.own, others, view.in_sync) {
            Self::learn(self, desired);
        }
    }

    fn is_routed(&self) -> bool {
        Self::is_routed(self)
    }
}

/// Returns the parts of the leases and of this node on which routes in the cloud depend; `None`
/// without IPv4.
fn desired_route(
    external: &ExternalInterface,
    key: LeaseKey,
    others: BTreeSet<Ipv4Net>,
    in_sync: bool,
) -> Option<DesiredRoute> {
    let address = external.ends.get(&Family::V4)?.addr;
    Some(DesiredRoute {
        own: key.v4?,
        address,
        others,
        in_sync,
    })
}
