//! The tunnel device of one family: created, kept, repaired, or replaced.

use std::{fs, net::IpAddr};

use flannel_backends::{
    TunnelSpec, UdpSpec, WireguardSpec,
    udp::UdpError,
    wireguard::{self, Control},
};
use flannel_common::addr::Mac;
use flannel_netlink::{Fault, IpipInfo, IpipSpec, Link, Netlink, NetlinkError, Verb, VxlanSpec};
use flannel_store::Vtep;

pub use super::device_error::DeviceError;
use super::rivals;

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

/// Ensures that the device exists as described by `spec`, and is up. At start (`adopt_mac`) an
/// existing device keeps its Ethernet address.
pub async fn ensure(
    netlink: &Netlink,
    spec: &TunnelSpec,
    adopt_mac: bool,
) -> Result<Device, DeviceError> {
    let ensured = match spec {
        TunnelSpec::Vxlan(spec) => ensure_vxlan(netlink, spec, adopt_mac).await,
        TunnelSpec::Wireguard(spec) => ensure_wireguard(netlink, spec).await,
        TunnelSpec::Udp(spec) => ensure_udp(netlink, spec).await,
        TunnelSpec::Ipip(spec) => ensure_ipip(netlink, spec).await,
    };
    match ensured {
        Err(error) => Err(rivals::named(netlink, spec, error).await),
        device => device,
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
async fn ensure_vxlan(
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
    bring_up(netlink, &link, spec.mtu).await?;
    let zero_checksum_v6 = link.vxlan.is_some_and(|vxlan| vxlan.udp_zero_csum6_rx);
    let vtep = Vtep {
        mac,
        zero_checksum_v6,
        other_source: false,
    };
    Ok(Device {
        index: link.index,
        name: link.name,
        mtu: spec.mtu,
        vtep: Some(vtep),
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

/// Keeps an existing device and its peers, so that no packet is lost. Stock flannel creates a new
/// device at every start. The link does not include key, port and peers.
async fn ensure_wireguard(netlink: &Netlink, spec: &WireguardSpec) -> Result<Device, DeviceError> {
    let link = match netlink.link_by_name(&spec.name).await? {
        Some(link) if is_wireguard(&link).await => link,
        Some(link) => {
            tracing::info!(
                device = spec.name,
                "this device does not speak WireGuard and is created again"
            );
            netlink.delete_link(link.index).await?;
            create_wireguard(netlink, &spec.name).await?
        }
        None => create_wireguard(netlink, &spec.name).await?,
    };
    bring_up(netlink, &link, spec.mtu).await?;
    Ok(Device {
        index: link.index,
        name: link.name,
        mtu: spec.mtu,
        vtep: None,
    })
}

/// The kernel's, or one whose process answers.
async fn is_wireguard(link: &Link) -> bool {
    link.kind.as_deref() == Some(Control::KIND) || wireguard::has_process(&link.name).await
}

async fn create_wireguard(netlink: &Netlink, name: &str) -> Result<Link, DeviceError> {
    match netlink.create_wireguard(name).await {
        Ok(()) => tracing::info!(device = name, "made the wireguard device"),
        Err(error) if error.is_unsupported() => wireguard::start(name).await?,
        Err(error) => return Err(error.into()),
    }
    Ok(netlink
        .link_by_name(name)
        .await?
        .ok_or_else(|| vanished(name))?)
}

/// Keeps an existing device, with the process that has it open. Without a process the device stays
/// and drops packets.
async fn ensure_udp(netlink: &Netlink, spec: &UdpSpec) -> Result<Device, DeviceError> {
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
        netlink
            .link_by_name(&spec.name)
            .await?
            .ok_or_else(|| vanished(&spec.name))?
    };
    bring_up(netlink, &link, spec.mtu).await?;
    Ok(Device {
        index: link.index,
        name: link.name,
        mtu: spec.mtu,
        vtep: None,
    })
}

/// Another local address, or one fixed end, replaces the device, as in stock flannel. A device of
/// another kind is replaced too, at which stock flannel ends.
async fn ensure_ipip(netlink: &Netlink, spec: &IpipSpec) -> Result<Device, DeviceError> {
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
            create_ipip(netlink, spec).await?
        }
        None => create_ipip(netlink, spec).await?,
    };
    bring_up(netlink, &link, spec.mtu).await?;
    Ok(Device {
        index: link.index,
        name: link.name,
        mtu: spec.mtu,
        vtep: None,
    })
}

async fn create_ipip(netlink: &Netlink, spec: &IpipSpec) -> Result<Link, DeviceError> {
    match netlink.create_ipip(spec).await {
        Ok(()) => tracing::info!(device = spec.name, local = %spec.local, "made the ipip device"),
        Err(error) if error.is_unsupported() => return Err(DeviceError::NoIpip(error)),
        Err(error) => return Err(error.into()),
    }
    Ok(netlink
        .link_by_name(&spec.name)
        .await?
        .ok_or_else(|| vanished(&spec.name))?)
}

async fn bring_up(netlink: &Netlink, link: &Link, mtu: u32) -> Result<(), DeviceError> {
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
    Ok(())
}

async fn create(netlink: &Netlink, spec: &VxlanSpec) -> Result<Link, NetlinkError> {
    netlink.create_vxlan(spec).await?;
    tracing::info!(device = spec.name, mac = %spec.mac, local = %spec.local, "made the vxlan \
        device");
    netlink
        .link_by_name(&spec.name)
        .await?
        .ok_or_else(|| vanished(&spec.name))
}

/// Switches router advertisements off: a tunnel has no routers. As in stock flannel, a failure is
/// not an error: a kernel without IPv6 lacks the sysctl, and it may be read-only in an unprivileged
/// container.
fn refuse_router_advertisements(name: &str) {
    if let Err(error) = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/accept_ra"), "0") {
        tracing::debug!(device = name, %error, "cannot switch router advertisements off");
    }
}

/// Returns the error for a device that was removed between two requests; the next try creates it
/// again.
pub(super) fn vanished(name: &str) -> NetlinkError {
    NetlinkError {
        verb: Verb::Read,
        object: format!("link {name}"),
        fault: Fault::NoAnswer,
    }
}

impl Device {
    /// Its Ethernet address; zero if it has none.
    pub(crate) fn mac(&self) -> Mac {
        self.vtep.map(|vtep| vtep.mac).unwrap_or_default()
    }
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
