//! The vxlan device of one family.

use flannel_backend_api::{Device, DeviceError, TunnelDevice, bring_up, made_link, vanished};
use flannel_netlink::{Link, Netlink, NetlinkError, VxlanSpec};
use flannel_store::Vtep;
use futures::future::{FutureExt as _, LocalBoxFuture};

/// A vxlan device as the backend wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VxlanDevice(pub(super) VxlanSpec);

impl TunnelDevice for VxlanDevice {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn port(&self) -> Option<u16> {
        Some(self.0.port)
    }

    fn vni(&self) -> Option<u32> {
        Some(self.0.vni)
    }

    fn ensure<'a>(
        &'a self,
        netlink: &'a Netlink,
        adopt_mac: bool,
    ) -> LocalBoxFuture<'a, Result<Device, DeviceError>> {
        ensure(netlink, &self.0, adopt_mac).boxed_local()
    }
}

/// A difference that cannot be changed on an existing device (VNI, port, lower device, local
/// address, GBP) replaces the device, as in stock flannel; MTU and Ethernet address are changed in
/// place, which stock flannel does not do. At start (`adopt_mac`) an existing device keeps its
/// Ethernet address, also when it is replaced: peers know it, and it identifies a lease of our
/// former public address as ours.
///
/// The setting to accept packets without a checksum cannot be changed either, but a difference in
/// it does not replace the device: a device of stock flannel is taken over without losing a packet,
/// and the agent publishes to its peers what the device accepts.
async fn ensure(
    netlink: &Netlink,
    spec: &VxlanSpec,
    adopt_mac: bool,
) -> Result<Device, DeviceError> {
    let link = match netlink.link_by_name(&spec.name).await? {
        Some(link) if is_compatible(&link, spec) => link,
        Some(link) => {
            require_lower(netlink, spec, link.index).await?;
            tracing::info!(
                device = spec.name,
                "the device differs from the configuration and is created again"
            );
            netlink.delete_link(link.index).await?;
            let known = link
                .mac
                .filter(|mac| adopt_mac && link.vxlan.is_some() && mac.is_unicast());
            create(
                netlink,
                &VxlanSpec {
                    mac: known.unwrap_or(spec.mac),
                    ..spec.clone()
                },
            )
            .await?
        }
        None => create(netlink, spec).await?,
    };
    let mac = link.mac.filter(|_| adopt_mac).unwrap_or(spec.mac);
    if link.mac != Some(mac) {
        tracing::warn!(device = spec.name, from = ?link.mac, to = %mac, "the Ethernet address was \
            changed by another process; setting it back");
        netlink.set_mac(link.index, mac).await?;
    }
    let vtep = Vtep {
        mac,
        zero_checksum_v6: link.vxlan.is_some_and(|vxlan| vxlan.udp_zero_csum6_rx),
        other_source: false,
    };
    Ok(Device {
        vtep: Some(vtep),
        ..bring_up(netlink, link, spec.mtu).await?
    })
}

/// Checks that there is another device to put the tunnel on: one that cannot be created again is
/// not deleted.
async fn require_lower(netlink: &Netlink, spec: &VxlanSpec, own: u32) -> Result<(), NetlinkError> {
    let lower = netlink.link_by_index(spec.lower).await?;
    let is_other = lower.is_some_and(|lower| lower.index != own);
    if is_other {
        Ok(())
    } else {
        Err(vanished(&format!("{} below {}", spec.lower, spec.name)))
    }
}

async fn create(netlink: &Netlink, spec: &VxlanSpec) -> Result<Link, NetlinkError> {
    netlink.create_vxlan(spec).await?;
    tracing::info!(device = spec.name, mac = %spec.mac, local = %spec.local, "made the vxlan \
        device");
    made_link(netlink, &spec.name).await
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
