//! The tunnel device: made, kept, mended, or made anew.

use flannel_common::addr::Mac;

use crate::netlink::{Fault, Link, Netlink, NetlinkError, Verb, VxlanSpec};

/// The tunnel device as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Interface index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Ethernet address, the `VtepMAC` of our lease.
    pub mac: Mac,
    /// MTU in bytes.
    pub mtu: u32,
}

/// Sees to it that the device is there as `spec` wants it, and up.
///
/// What cannot be changed on a living device (VNI, port, lower device, local address, GBP) makes it anew, as stock flannel
/// does; MTU and Ethernet address are changed in place, which stock flannel does not do. At start (`adopt_mac`) a device that
/// is there keeps its Ethernet address, also when it is made anew: peers know it, and by it a lease of our former public
/// address is known as ours.
pub(crate) async fn ensure(netlink: &Netlink, spec: &VxlanSpec, adopt_mac: bool) -> Result<Device, NetlinkError> {
    let link = match netlink.link_by_name(&spec.name).await? {
        Some(link) if is_compatible(&link, spec) => link,
        Some(link) => {
            tracing::info!(device = spec.name, "the device differs from the configuration and is made anew");
            netlink.delete_link(link.index).await?;
            let known = link.mac.filter(|mac| adopt_mac && link.vxlan.is_some() && mac.is_unicast());
            create(netlink, &VxlanSpec { mac: known.unwrap_or(spec.mac), ..spec.clone() }).await?
        }
        None => create(netlink, spec).await?,
    };
    let mac = link.mac.filter(|_| adopt_mac).unwrap_or(spec.mac);
    if link.mac != Some(mac) {
        tracing::warn!(device = spec.name, from = ?link.mac, to = %mac, "somebody changed the Ethernet address; setting it back");
        netlink.set_mac(link.index, mac).await?;
    }
    if link.mtu != spec.mtu {
        tracing::info!(device = spec.name, from = link.mtu, to = spec.mtu, "setting the MTU");
        netlink.set_mtu(link.index, spec.mtu).await?;
    }
    if !link.up {
        netlink.set_up(link.index).await?;
    }
    Ok(Device { index: link.index, name: link.name, mac, mtu: spec.mtu })
}

async fn create(netlink: &Netlink, spec: &VxlanSpec) -> Result<Link, NetlinkError> {
    netlink.create_vxlan(spec).await?;
    tracing::info!(device = spec.name, mac = %spec.mac, local = %spec.local, "made the vxlan device");
    netlink.link_by_name(&spec.name).await?.ok_or_else(|| vanished(&spec.name))
}

/// Somebody removed the device between two requests; the next try makes it again.
pub(super) fn vanished(name: &str) -> NetlinkError {
    NetlinkError { verb: Verb::Read, object: format!("link {name}"), fault: Fault::NoAnswer }
}

fn is_compatible(link: &Link, spec: &VxlanSpec) -> bool {
    link.vxlan.as_ref().is_some_and(|vxlan| {
        vxlan.vni == spec.vni
            && vxlan.port == spec.port
            && vxlan.lower == Some(spec.lower)
            && vxlan.local == Some(spec.local)
            && vxlan.gbp == spec.gbp
            && vxlan.learning == spec.learning
            && !vxlan.l2miss
            && !vxlan.external
    })
}
