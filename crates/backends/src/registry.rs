//! The table of backends: the one place that depends on the kind of backend. Pure.

use std::sync::Arc;

use flannel_backend_api::{Backend, CarriedWay, Marks, Way};
use flannel_host::family::Family;
use flannel_netlink::{IpipSpec, Link};
use flannel_store::config::BackendConfig;

use crate::{
    Unmanaged,
    host_gw::HostGw,
    ipip::{self, Ipip},
    ipsec::{self, Ipsec},
    udp::{self, Udp},
    unmanaged,
    vxlan::{self, Vxlan},
    wireguard::{self, Wireguard},
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
