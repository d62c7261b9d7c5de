//! The commands of the backend extension.

use std::sync::Arc;

use flannel_backend_api::Backend;
use flannel_extension::{ExtensionCommands, NodeFacts, RouteWatchSetup};
use flannel_host::family::Family;
use flannel_iface::ExternalInterface;
use flannel_metrics::shared::SharedState;
use flannel_netlink::Netlink;
use flannel_options::RunOptions;
use flannel_store::{
    LeaseKey,
    config::{BackendConfig, NetworkConfig},
};

use super::service::{Service, ServiceView};

/// The backend of a configuration; that of extension has the output of `PreStartupCommand`, which
/// runs here. `stage` shows what the start waits for.
pub(in crate::agent) async fn backend_of(
    config: &NetworkConfig,
    external: &ExternalInterface,
    stage: impl Fn(&str),
) -> anyhow::Result<Arc<dyn Backend>> {
    let BackendConfig::Extension(commands) = &config.backend else {
        return Ok(flannel_backends::of(&config.backend));
    };
    stage("running PreStartupCommand");
    let published =
        flannel_extension::before_lease(commands, config.into(), &node_facts(external, None))
            .await?;
    Ok(Arc::new(flannel_backends::Unmanaged::extension(published)))
}

/// Runs `PostStartupCommand`, and starts the task that runs the commands for peers. `None` with
/// another backend.
pub(super) async fn start(
    options: &RunOptions,
    config: &NetworkConfig,
    external: &ExternalInterface,
    key: LeaseKey,
    netlink: &Netlink,
    shared: &SharedState,
    stage: impl Fn(&str),
) -> anyhow::Result<Option<ExtensionCommands>> {
    let BackendConfig::Extension(commands) = &config.backend else {
        return Ok(None);
    };
    stage("running PostStartupCommand");
    flannel_extension::after_lease(commands, config.into(), &node_facts(external, Some(key)))
        .await?;
    let state_dir = &options.paths.state_dir;
    let SharedState {
        peers,
        echoes,
        extension,
        ..
    } = shared.clone();
    let routes = RouteWatchSetup {
        netlink: netlink.clone(),
        peers,
        echoes,
    };
    Ok(Some(ExtensionCommands::start(
        commands.clone(),
        config.into(),
        state_dir,
        extension,
        routes,
    )?))
}

impl Service for ExtensionCommands {
    fn learn(&mut self, view: &ServiceView<'_>) {
        Self::learn(self, view.own, view.changes, view.in_sync);
    }
}

/// This node, as commands know it.
fn node_facts(external: &ExternalInterface, key: Option<LeaseKey>) -> NodeFacts {
    let mut node = NodeFacts::default();
    for end in external.ends.values() {
        node.set_address(end.public);
    }
    for subnet in Family::BOTH
        .into_iter()
        .filter_map(|family| key?.subnet(family))
    {
        node.set_subnet(subnet);
    }
    node
}
