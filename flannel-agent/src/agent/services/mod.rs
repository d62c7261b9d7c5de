//! The tasks of a backend that run next to the main loop: commands of the operator, routes in a
//! cloud, the keys of IPsec.
//!
//! All of them learn from one view of the cluster, which the main loop shows them before the kernel
//! follows it. None makes the loop wait.

mod cloud;
mod extension;
mod ipsec;
mod service;
mod udp;

use std::path::PathBuf;

use flannel_backend_api::TunnelPeers;
use flannel_backends::{
    udp::UdpTunnel,
    wireguard::{WireguardDevices, WireguardKeys},
};
use flannel_metrics::shared::SharedState;
use flannel_netlink::Netlink;
use flannel_options::RunOptions;

use self::service::Service;
pub(super) use self::{extension::backend_of, service::ServiceView, udp::control_socket};
use super::start::leased_node::LeasedNode;

/// The services of the backend; they end with it.
pub(super) struct Services(Vec<Box<dyn Service>>);

impl Services {
    /// Starts those of the backend of a node that has its lease, and ends a process of another
    /// backend. `stage` shows what the start waits for.
    pub(super) async fn start(
        options: &RunOptions,
        node: &LeasedNode,
        netlink: &Netlink,
        shared: &SharedState,
        stage: impl Fn(&str),
    ) -> anyhow::Result<Self> {
        let (config, interface, own) = (&node.config, node.external.chosen(), node.own.key);
        let extension =
            extension::start(options, config, interface, own, netlink, shared, stage).await?;
        let cloud = cloud::start(options, config, interface, own, &shared.cloud)?;
        let ipsec = ipsec::start(options, config, netlink, &shared.ipsec).await?;
        Ok(Self(
            boxed(extension)
                .chain(boxed(cloud))
                .chain(boxed(ipsec))
                .collect(),
        ))
    }

    /// Shows the view to all of them.
    pub(super) fn learn(&mut self, view: &ServiceView<'_>) {
        for service in &mut self.0 {
            service.learn(view);
        }
    }

    /// Returns true unless packets for pods of this node get lost before it.
    pub(super) fn are_routed(&self) -> bool {
        self.0.iter().all(|service| service.is_routed())
    }
}

/// Returns the peers behind the tunnel devices, where the backend has more there than a link: with
/// keys those of a device, with a control socket those of a process.
pub(super) fn tunnel_peers(
    keys: Option<WireguardKeys>,
    control: Option<PathBuf>,
    shared: &SharedState,
) -> Option<Box<dyn TunnelPeers>> {
    if let Some(keys) = keys {
        let devices = WireguardDevices::new(keys, shared.wireguard.clone());
        return Some(Box::new(devices));
    }
    let control = control?;
    Some(Box::new(UdpTunnel::new(control, shared.udp.clone())))
}

fn boxed<S: Service + 'static>(service: Option<S>) -> impl Iterator<Item = Box<dyn Service>> {
    service
        .into_iter()
        .map(|service| Box::new(service) as Box<dyn Service>)
}
