//! The TUN device of the backend udp.

use std::net::Ipv4Addr;

use flannel_backend_api::{Device, DeviceError, DeviceFault, TunnelDevice, bring_up, made_link};
use flannel_netlink::{Link, Netlink};
use futures::future::{FutureExt as _, LocalBoxFuture};

use super::UdpError;

/// The TUN device that the backend udp wants, and the end of its process on the underlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpSpec {
    /// Its name.
    pub name: String,
    /// The address at which the process receives.
    pub source: Ipv4Addr,
    /// The UDP port of all nodes.
    pub port: u16,
    /// Its MTU in bytes.
    pub mtu: u32,
}

impl TunnelDevice for UdpSpec {
    fn name(&self) -> &str {
        &self.name
    }

    fn port(&self) -> Option<u16> {
        Some(self.port)
    }

    fn is_of_process(&self) -> bool {
        true
    }

    fn ensure<'a>(
        &'a self,
        netlink: &'a Netlink,
        _adopt_mac: bool,
    ) -> LocalBoxFuture<'a, Result<Device, DeviceError>> {
        ensure(netlink, self).boxed_local()
    }
}

impl From<UdpError> for DeviceError {
    fn from(error: UdpError) -> Self {
        let is_temporary = error.is_temporary();
        DeviceFault::new(error, is_temporary).into()
    }
}

/// Keeps an existing device, with the process that has it open. Without a process the device stays
/// and drops packets.
async fn ensure(netlink: &Netlink, spec: &UdpSpec) -> Result<Device, DeviceError> {
    let is_tun = |link: &Link| link.kind.as_deref() == Some("tun") && link.arphrd != Link::ETHER;
    let found = netlink.link_by_name(&spec.name).await?;
    if let Some(link) = found.as_ref().filter(|link| !is_tun(link)) {
        tracing::info!(
            device = spec.name,
            "this device is no TUN device and is created again"
        );
        netlink.delete_link(link.index).await?;
    }
    let link = if let Some(link) = found.filter(is_tun) {
        link
    } else {
        flannel_udp::make_persistent(&spec.name).map_err(UdpError::from)?;
        tracing::info!(device = spec.name, "made the TUN device");
        made_link(netlink, &spec.name).await?
    };
    bring_up(netlink, link, spec.mtu).await
}
