//! A tunnel device as it is, and the steps that all kinds have in common.

use std::fs;

use flannel_common::packet::addr::Mac;
use flannel_netlink::{Fault, Link, Netlink, NetlinkError, Verb};
use flannel_store::Vtep;

use crate::DeviceError;

/// The tunnel device as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Interface index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// MTU in bytes.
    pub mtu: u32,
    /// Our end of a VXLAN tunnel, as published. The device does not know if a NAT is in front of
    /// it. `None` for a device of another kind.
    pub vtep: Option<Vtep>,
}

impl Device {
    /// Its Ethernet address; zero if it has none.
    pub fn mac(&self) -> Mac {
        self.vtep.map(|vtep| vtep.mac).unwrap_or_default()
    }
}

/// Gives a device its MTU, sets it up, and returns it.
pub async fn bring_up(netlink: &Netlink, link: Link, mtu: u32) -> Result<Device, DeviceError> {
    if link.mtu != mtu {
        tracing::info!(
            device = link.name,
            from = link.mtu,
            to = mtu,
            "setting the MTU"
        );
        let refused = |source| DeviceError::MtuRefused {
            device: link.name.clone(),
            mtu,
            source,
        };
        netlink.set_mtu(link.index, mtu).await.map_err(refused)?;
    }
    if !link.up {
        refuse_router_advertisements(&link.name);
        netlink.set_up(link.index).await?;
    }
    Ok(Device {
        index: link.index,
        name: link.name,
        mtu,
        vtep: None,
    })
}

/// Switches router advertisements off: a tunnel has no routers. As in stock flannel, a failure is
/// not an error: a kernel without IPv6 lacks the sysctl, and it may be read-only in an unprivileged
/// container.
fn refuse_router_advertisements(name: &str) {
    if let Err(error) = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/accept_ra"), "0") {
        tracing::debug!(device = name, %error, "cannot switch router advertisements off");
    }
}

/// Returns the link of a device that was just made.
pub async fn made_link(netlink: &Netlink, name: &str) -> Result<Link, NetlinkError> {
    netlink
        .link_by_name(name)
        .await?
        .ok_or_else(|| vanished(name))
}

/// Returns the error for a device that was removed between two requests; the next try creates it
/// again.
pub fn vanished(name: &str) -> NetlinkError {
    NetlinkError {
        verb: Verb::Read,
        object: format!("link {name}"),
        fault: Fault::NoAnswer,
    }
}
