//! The tunnel device of one family: created, kept, repaired, or replaced.

use std::fs;

use flannel_common::addr::Mac;
use flannel_netlink::{Fault, Link, Netlink, NetlinkError, Verb, VxlanSpec};
use flannel_store::Vtep;

use crate::backend::TunnelSpec;

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
    /// It takes outer UDP over IPv6 without a checksum.
    pub zero_checksum_v6: bool,
}

impl Device {
    /// Our end of the tunnel, as published. Whether a NAT stands before it the device does not
    /// know.
    pub const fn vtep(&self) -> Vtep {
        Vtep { mac: self.mac, zero_checksum_v6: self.zero_checksum_v6, other_source: false }
    }
}

/// Ensures that the device exists as described by `spec`, and is up. At start (`adopt_mac`) an
/// existing device keeps its Ethernet address.
pub(crate) async fn ensure(netlink: &Netlink, spec: &TunnelSpec, adopt_mac: bool) -> Result<Device, NetlinkError> {
    match spec {
        TunnelSpec::Vxlan(spec) => ensure_vxlan(netlink, spec, adopt_mac).await,
    }
}

/// A difference that cannot be changed on an existing device (VNI, port, lower device, local
/// address, GBP) replaces the device, as in stock flannel; MTU and Ethernet address are changed in
/// place, which stock flannel does not do. At start (`adopt_mac`) an existing device keeps its
/// Ethernet address, also when it is replaced: peers know it, and it identifies a lease of our
/// former public address as ours.
///
/// The setting to accept packets without a checksum cannot be changed either, but is no reason for
/// a replacement: a device of stock flannel is taken over without losing a packet, and the agent
/// publishes to its peers what the device accepts.
async fn ensure_vxlan(netlink: &Netlink, spec: &VxlanSpec, adopt_mac: bool) -> Result<Device, NetlinkError> {
    let link = match netlink.link_by_name(&spec.name).await? {
        Some(link) if is_compatible(&link, spec) => link,
        Some(link) => {
            tracing::info!(device = spec.name, "the device differs from the configuration and is created again");
            netlink.delete_link(link.index).await?;
            let known = link.mac.filter(|mac| adopt_mac && link.vxlan.is_some() && mac.is_unicast());
            create(netlink, &VxlanSpec { mac: known.unwrap_or(spec.mac), ..spec.clone() }).await?
        }
        None => create(netlink, spec).await?,
    };
    let mac = link.mac.filter(|_| adopt_mac).unwrap_or(spec.mac);
    if link.mac != Some(mac) {
        tracing::warn!(device = spec.name, from = ?link.mac, to = %mac, "the Ethernet address was changed by another process; setting it back");
        netlink.set_mac(link.index, mac).await?;
    }
    if link.mtu != spec.mtu {
        tracing::info!(device = spec.name, from = link.mtu, to = spec.mtu, "setting the MTU");
        netlink.set_mtu(link.index, spec.mtu).await?;
    }
    if !link.up {
        refuse_router_advertisements(&spec.name);
        netlink.set_up(link.index).await?;
    }
    let zero_checksum_v6 = link.vxlan.is_some_and(|vxlan| vxlan.udp_zero_csum6_rx);
    Ok(Device { index: link.index, name: link.name, mac, mtu: spec.mtu, zero_checksum_v6 })
}

async fn create(netlink: &Netlink, spec: &VxlanSpec) -> Result<Link, NetlinkError> {
    netlink.create_vxlan(spec).await?;
    tracing::info!(device = spec.name, mac = %spec.mac, local = %spec.local, "made the vxlan device");
    netlink.link_by_name(&spec.name).await?.ok_or_else(|| vanished(&spec.name))
}

/// There are no routers on a tunnel. As with stock flannel it is no error when it cannot be set: on
/// a kernel without IPv6 there is nothing to set, in an unprivileged container it may be read-only.
fn refuse_router_advertisements(name: &str) {
    if let Err(error) = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/accept_ra"), "0") {
        tracing::debug!(device = name, %error, "cannot switch router advertisements off");
    }
}

/// Returns the error for a device that was removed between two requests; the next try creates it
/// again.
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
