//! The process of the backend ipsec.

use std::net::IpAddr;

use anyhow::Context as _;
use flannel_backends::ipsec::{self, IpsecEnd, IpsecSetup, IpsecTunnels, SharedIpsecStatus};
use flannel_host::{error_chain::chain, family::Family};
use flannel_iface::ExternalInterface;
use flannel_netlink::Netlink;
use flannel_options::RunOptions;
use flannel_store::{
    LeaseKey,
    config::{BackendConfig, NetworkConfig},
};
use tokio::task::spawn_blocking;

use super::service::{Service, ServiceView};

/// Starts the task that agrees on keys with peers. `None` with another backend; a process that is
/// there is ended then.
pub(super) async fn start(
    options: &RunOptions,
    config: &NetworkConfig,
    netlink: &Netlink,
    shared: &SharedIpsecStatus,
) -> anyhow::Result<Option<IpsecTunnels>> {
    let state_dir = options.paths.state_dir.clone();
    let BackendConfig::Ipsec(settings) = &config.backend else {
        match spawn_blocking(move || ipsec::stop(&state_dir)).await {
            Ok(Ok(true)) => tracing::info!("ended charon of the former backend ipsec"),
            Ok(Err(error)) => tracing::warn!(
                error = chain(&error),
                "charon of the former backend ipsec is left"
            ),
            Ok(Ok(false)) | Err(_) => {}
        }
        return Ok(None);
    };
    let setup = IpsecSetup {
        config: settings.clone(),
        network: config.ipv4.context("the backend ipsec needs IPv4")?.network,
        program: ipsec::program()?,
        shared: shared.clone(),
    };
    Ok(Some(IpsecTunnels::start(
        setup,
        netlink.clone(),
        &state_dir,
    )?))
}

impl Service for IpsecTunnels {
    fn learn(&mut self, view: &ServiceView<'_>) {
        Self::learn(
            self,
            own_end(view.interface, view.own),
            view.changes,
            view.in_sync,
        );
    }
}

/// Our end of the tunnels; `None` without IPv4.
fn own_end(external: &ExternalInterface, key: LeaseKey) -> Option<IpsecEnd> {
    let IpAddr::V4(address) = external.ends.get(&Family::V4)?.public else {
        return None;
    };
    Some(IpsecEnd {
        subnet: key.v4?,
        address,
    })
}
