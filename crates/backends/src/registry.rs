//! The table of backends: the one place that depends on the kind of backend. Pure.

use std::{
    fmt, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use flannel_backend_api::{Backend, CarriedExit, CarriedWay, Carrier, CarryingDevice, Marks, Way};
use flannel_host::family::Family;
use flannel_netlink::{IpipSpec, Link, Netlink, NetlinkError, TunnelAssociation, TunnelPolicyKey};
use flannel_store::config::BackendConfig;
use ipnet::IpNet;

use crate::{
    Unmanaged,
    host_gw::HostGw,
    ipip::{self, Ipip},
    ipsec::{self, Ipsec},
    udp::{self, CarryingTun, Udp},
    unmanaged,
    vxlan::{self, Vxlan},
    wireguard::{self, CarryingWireguard, Wireguard},
};

/// The backend of a network configuration.
pub fn of(config: &BackendConfig) -> Arc<dyn Backend> {
    match config {
        BackendConfig::Vxlan(config) => Arc::new(Vxlan(*config)),
        BackendConfig::HostGw => Arc::new(HostGw),
        BackendConfig::Wireguard(config) => Arc::new(Wireguard(*config)),
        BackendConfig::Ipsec(config) => Arc::new(Ipsec {
            udp_encap: config.udp_encap,
        }),
        BackendConfig::Udp(config) => Arc::new(Udp(*config)),
        BackendConfig::Ipip(config) => Arc::new(Ipip(*config)),
        BackendConfig::Extension(_) => Arc::new(Unmanaged::extension(None)),
        BackendConfig::AwsVpc(_)
        | BackendConfig::Gce
        | BackendConfig::TencentVpc(_)
        | BackendConfig::AliVpc(_) => Arc::new(Unmanaged::cloud()),
        BackendConfig::Alloc => Arc::new(Unmanaged::alloc()),
    }
}

/// The ways of backends that carry packets themselves.
const CARRIED: [&CarriedWay; 6] = [
    &wireguard::WAY,
    &ipsec::WAY,
    &ipip::WAY,
    &udp::WAY,
    &unmanaged::EXTENSION,
    &unmanaged::CLOUD,
];

/// Returns the way of this name, if a backend carries packets along it.
pub fn carried_way(name: &str) -> Option<&'static CarriedWay> {
    CARRIED.into_iter().find(|way| way.name == name)
}

/// By what the objects of all backends are known.
pub const MARKS: Marks = Marks {
    is_tunnel,
    is_policy: ipsec::is_ours,
};

/// The names of all ways.
pub const WAY_NAMES: [&str; 10] = {
    let [direct, tunnel, kernel, none] = Way::COMMON;
    let [wireguard, ipsec, ipip, udp, extension, cloud] = CARRIED;
    [
        direct,
        tunnel,
        kernel,
        wireguard.name,
        ipsec.name,
        ipip.name,
        udp.name,
        extension.name,
        cloud.name,
        none,
    ]
};

/// Returns true for a device that some backend makes: a vxlan device whose name is made from its
/// own VNI, as flannel names them, a WireGuard or ipip device with flannel's name, or the TUN
/// device of the backend udp. A process behind such a device ends with it.
pub fn is_tunnel(link: &Link) -> bool {
    let of_vni = |vni| {
        Family::BOTH
            .iter()
            .any(|family| link.name == vxlan::device_name(*family, vni))
    };
    let is_tun = link.kind.as_deref() == Some("tun");
    let encrypts = is_tun || link.kind.as_deref() == Some("wireguard");
    link.vxlan.as_ref().is_some_and(|vxlan| of_vni(vxlan.vni))
        || (encrypts && wireguard::DEVICES.contains(&link.name.as_str()))
        || (is_tun && link.name == udp::DEVICE)
        || (link.kind.as_deref() == Some(IpipSpec::KIND) && link.name == ipip::DEVICE)
}

/// The parts that findings about carriers name.
pub const CARRIER_PARTS: [&str; 3] = [wireguard::PART, udp::PART, ipsec::PART];

/// Reads what is behind a device; none where the device itself or a route carries packets.
pub async fn carrying_device(link: &Link) -> Option<Box<dyn CarryingDevice>> {
    if let Some(wireguard) = CarryingWireguard::read(link).await {
        return Some(Box::new(wireguard));
    }
    Some(Box::new(CarryingTun::read(link)?))
}

/// Reads what carries packets from one address to another: what is behind the route's device, or
/// the policies of a node with the backend ipsec. None where only a route carries packets.
pub async fn carrier(
    netlink: &Netlink,
    device: Option<&Link>,
    [source, destination]: [IpAddr; 2],
    state_dir: &Path,
) -> Result<Option<Carrier>, NetlinkError> {
    if let Some(link) = device
        && let Some(device) = carrying_device(link).await
    {
        return Ok(Some(device.carrier(destination)));
    }
    ipsec::carrier(netlink, [source, destination], state_dir).await
}

/// The policies that carry packets between two subnets along this way; none for other ways.
pub fn policy_keys(
    way: &str,
    own: IpNet,
    peer: IpNet,
) -> impl Iterator<Item = TunnelPolicyKey> + use<> {
    let has_policies = carried_way(way).is_some_and(|way| way.exit == CarriedExit::Policies);
    has_policies
        .then(|| ipsec::policy_keys(own, peer))
        .into_iter()
        .flatten()
}

/// A process of a backend, which outlives the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendProcess {
    /// That of the backend udp, by its control socket.
    Tunnel(PathBuf),
    /// charon, by the state directory.
    Charon(PathBuf),
}

impl BackendProcess {
    /// Returns those that an agent with this state directory has started and not ended.
    pub fn recorded(state_dir: &Path) -> Vec<Self> {
        let control = udp::control_socket(state_dir);
        let tunnel = Some(control).filter(|control| control.exists());
        let has_charon = ipsec::directory(state_dir).exists();
        let charon = has_charon.then(|| Self::Charon(state_dir.to_owned()));
        tunnel.map(Self::Tunnel).into_iter().chain(charon).collect()
    }

    /// Ends it, with its device or its associations, and removes its files.
    pub fn remove(&self) -> io::Result<()> {
        match self {
            Self::Tunnel(control) => udp::remove(control).map_err(io::Error::other),
            Self::Charon(state_dir) => ipsec::remove(state_dir).map_err(io::Error::other),
        }
    }
}

impl fmt::Display for BackendProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tunnel(_) => "end the tunnel process of the backend udp and remove its device",
            Self::Charon(_) => "end charon of the backend ipsec and remove its files",
        })
    }
}

/// Returns the policies of backends between parts of the network on record, and the associations
/// that serve them.
pub async fn recorded_policies(
    netlink: &Netlink,
    state_dir: &Path,
) -> Result<(Vec<TunnelAssociation>, Vec<TunnelPolicyKey>), NetlinkError> {
    let Some(network) = ipsec::recorded_network(state_dir) else {
        return Ok(Default::default());
    };
    let mut ours = netlink.tunnel_policies().await?;
    ours.retain(|(key, policy)| ipsec::is_ours(key, policy, network.into()));
    let mut associations = netlink.tunnel_associations().await?;
    associations.retain(|association| ours.iter().any(|(_, policy)| association.serves(policy)));
    Ok((associations, ours.into_iter().map(|(key, _)| key).collect()))
}

/// Returns the files with secrets of backends that the state directory may have. Stock flannel
/// would use the key of WireGuard.
pub fn secret_files(state_dir: &Path) -> [PathBuf; 1] {
    [state_dir.join(wireguard::KEY_FILE)]
}
