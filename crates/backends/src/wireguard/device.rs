//! The WireGuard device, which is the kernel's or that of a process.

use flannel_backend_api::{Device, DeviceError, DeviceFault, TunnelDevice, bring_up, made_link};
use flannel_host::wireguard_key::SecretKey;
use flannel_netlink::{Link, Netlink};
use futures::future::{FutureExt as _, LocalBoxFuture};

use super::{Control, WireguardError, has_process, start};

/// A WireGuard device as the backend wants it. The key is the node's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireguardSpec {
    /// Its name.
    pub name: String,
    /// Its UDP port.
    pub port: u16,
    /// Its MTU in bytes.
    pub mtu: u32,
    /// The secret that all nodes share.
    pub preshared_key: Option<SecretKey>,
    /// Seconds between two packets that keep an idle tunnel open.
    pub keepalive: Option<u16>,
}

impl TunnelDevice for WireguardSpec {
    fn name(&self) -> &str {
        &self.name
    }

    fn port(&self) -> Option<u16> {
        Some(self.port)
    }

    fn ensure<'a>(
        &'a self,
        netlink: &'a Netlink,
        _adopt_mac: bool,
    ) -> LocalBoxFuture<'a, Result<Device, DeviceError>> {
        ensure(netlink, self).boxed_local()
    }
}

impl From<WireguardError> for DeviceError {
    fn from(error: WireguardError) -> Self {
        match error {
            WireguardError::Netlink(error) => error.into(),
            other => DeviceFault::new(other, false).into(),
        }
    }
}

/// Keeps an existing device and its peers, so that no packet is lost. Stock flannel creates a new
/// device at every start. The link does not include key, port and peers.
async fn ensure(netlink: &Netlink, spec: &WireguardSpec) -> Result<Device, DeviceError> {
    let link = match netlink.link_by_name(&spec.name).await? {
        Some(link) if is_wireguard(&link).await => link,
        Some(link) => {
            tracing::info!(
                device = spec.name,
                "this device does not speak WireGuard and is created again"
            );
            netlink.delete_link(link.index).await?;
            create(netlink, &spec.name).await?
        }
        None => create(netlink, &spec.name).await?,
    };
    bring_up(netlink, link, spec.mtu).await
}

/// The kernel's, or one whose process answers.
pub(super) async fn is_wireguard(link: &Link) -> bool {
    link.kind.as_deref() == Some(Control::KIND) || has_process(&link.name).await
}

async fn create(netlink: &Netlink, name: &str) -> Result<Link, DeviceError> {
    match netlink.create_wireguard(name).await {
        Ok(()) => tracing::info!(device = name, "made the wireguard device"),
        Err(error) if error.is_unsupported() => start(name).await?,
        Err(error) => return Err(error.into()),
    }
    Ok(made_link(netlink, name).await?)
}
