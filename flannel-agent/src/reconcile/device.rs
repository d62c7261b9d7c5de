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
/// The Ethernet address of one that is there is kept unless `keep_mac` is false: at start its address is the one peers know,
/// later ours is. What cannot be changed on a living device (VNI, port, lower device, local address, GBP) makes it anew, as
/// stock flannel does, but with the same Ethernet address: by it a lease of our former public address is known as ours. The
/// MTU is changed in place, which stock flannel does not do.
pub(crate) async fn ensure(netlink: &Netlink, spec: &VxlanSpec, keep_mac: bool) -> Result<Device, NetlinkError> {
    let link = match netlink.link_by_name(&spec.name).await? {
        Some(link) if is_compatible(&link, spec) && (keep_mac || link.mac == Some(spec.mac)) => link,
        Some(link) => {
            tracing::info!(
                device = spec.name,
                "the device is there, but differs from the configuration; it is made anew"
            );
            netlink.delete_link(link.index).await?;
            let known = link.mac.filter(|mac| keep_mac && link.vxlan.is_some() && mac.is_unicast());
            create(netlink, &VxlanSpec { mac: known.unwrap_or(spec.mac), ..spec.clone() }).await?
        }
        None => create(netlink, spec).await?,
    };
    if link.mtu != spec.mtu {
        tracing::info!(device = spec.name, from = link.mtu, to = spec.mtu, "setting the MTU");
        netlink.set_mtu(link.index, spec.mtu).await?;
    }
    if !link.up {
        netlink.set_up(link.index).await?;
    }
    let mac = link.mac.unwrap_or(spec.mac);
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
