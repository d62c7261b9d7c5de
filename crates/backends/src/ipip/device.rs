//! The ipip device.

use std::net::IpAddr;

use flannel_backend_api::{Device, DeviceError, DeviceFault, TunnelDevice, bring_up, made_link};
use flannel_netlink::{IpipInfo, IpipSpec, Link, Netlink, NetlinkError};
use futures::future::{FutureExt as _, LocalBoxFuture};

/// An ipip device as the backend wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IpipDevice(pub(super) IpipSpec);

/// The kernel has no ipip devices.
#[derive(Debug, thiserror::Error)]
#[error(
    "this kernel has no ipip devices: load the module ipip (modprobe ipip), or use the backend \
     vxlan"
)]
struct NoIpip(#[source] NetlinkError);

impl TunnelDevice for IpipDevice {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn ensure<'a>(
        &'a self,
        netlink: &'a Netlink,
        _adopt_mac: bool,
    ) -> LocalBoxFuture<'a, Result<Device, DeviceError>> {
        ensure(netlink, &self.0).boxed_local()
    }
}

/// Another local address, or one fixed end, replaces the device, as in stock flannel. A device of
/// another kind is replaced too, at which stock flannel ends.
async fn ensure(netlink: &Netlink, spec: &IpipSpec) -> Result<Device, DeviceError> {
    let wanted = IpipInfo {
        local: Some(IpAddr::V4(spec.local)),
        remote: None,
    };
    let link = match netlink.link_by_name(&spec.name).await? {
        Some(link) if link.ipip == Some(wanted) => link,
        Some(link) => {
            tracing::info!(
                device = spec.name,
                "the device differs from the configuration and is created again"
            );
            netlink.delete_link(link.index).await?;
            create(netlink, spec).await?
        }
        None => create(netlink, spec).await?,
    };
    bring_up(netlink, link, spec.mtu).await
}

async fn create(netlink: &Netlink, spec: &IpipSpec) -> Result<Link, DeviceError> {
    match netlink.create_ipip(spec).await {
        Ok(()) => tracing::info!(device = spec.name, local = %spec.local, "made the ipip device"),
        Err(error) if error.is_unsupported() => {
            return Err(DeviceFault::new(NoIpip(error), false).into());
        }
        Err(error) => return Err(error.into()),
    }
    Ok(made_link(netlink, &spec.name).await?)
}
