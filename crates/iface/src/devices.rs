//! Devices that carry pods, or tunnels between nodes: flannel's and those of other network plugins.
//! None of them is ever the external interface. Pure.

use std::{fmt, net::IpAddr};

use flannel_host::family::Family;
use flannel_netlink::{Address, Link};
use ipnet::IpNet;

/// The role of a device that carries pods or tunnels, as the end of a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodDevice {
    /// A tunnel or a bridge of a program, by its name.
    Named(&'static str),
    /// A bridge with an address of the pod network.
    Bridge(IpNet),
    /// A veth that leads to a pod.
    Veth,
}

impl fmt::Display for PodDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(role) => f.write_str(role),
            Self::Bridge(network) => write!(
                f,
                "a bridge of pods, with an address of the pod network {network}"
            ),
            Self::Veth => f.write_str("a veth that leads to a pod"),
        }
    }
}

const FLANNEL: &str = "a tunnel of flannel";
const BRIDGE: &str = "a bridge of pods";
const CALICO: &str = "a device of Calico";
const CILIUM: &str = "a device of Cilium";
const OPEN_VSWITCH: &str = "a device of Open vSwitch";
const SERVICES: &str = "a device with addresses of Services";

/// Names of devices.
const NAMES: [(&str, &str); 20] = [
    ("flannel0", FLANNEL),
    ("cni0", BRIDGE),
    ("cbr0", BRIDGE),
    ("docker0", BRIDGE),
    ("podman0", BRIDGE),
    ("cni-podman0", BRIDGE),
    ("nerdctl0", BRIDGE),
    ("kube-bridge", BRIDGE),
    ("weave", BRIDGE),
    ("datapath", "a device of Weave Net"),
    ("vxlan.calico", CALICO),
    ("vxlan-v6.calico", CALICO),
    ("wireguard.cali", CALICO),
    ("wg-v6.cali", CALICO),
    ("tunl0", "the kernel's own ipip device, which Calico uses"),
    ("ovs-system", OPEN_VSWITCH),
    ("ovn0", OPEN_VSWITCH),
    ("kube-ipvs0", SERVICES),
    ("kube-dummy-if", SERVICES),
    ("nodelocaldns", "the device of the node's DNS cache"),
];

/// The prefixes of names of devices.
const PREFIXES: [(&str, &str); 11] = [
    ("flannel.", FLANNEL),
    ("flannel-v6.", FLANNEL),
    ("flannel-wg", FLANNEL),
    ("cilium_", CILIUM),
    ("lxc_", CILIUM),
    ("cali", CALICO),
    ("vethwe", "a device of Weave Net"),
    ("antrea-", "a device of Antrea"),
    ("genev_sys_", OPEN_VSWITCH),
    ("vxlan_sys_", OPEN_VSWITCH),
    ("ovn-k8s-", OPEN_VSWITCH),
];

/// The prefixes of names of the host's ends of pods' veths that are not ports of a bridge.
const VETHS: [&str; 5] = ["veth", "cali", "lxc", "eni", "azv"];

/// Returns the role of a link, if it carries pods or tunnels between nodes.
///
/// In a node that is a container the external interface is a veth, too. It is neither a port of a
/// bridge, nor named as veths of pods are, nor the gateway of a pod.
pub(super) fn role(
    link: &Link,
    links: &[Link],
    addresses: &[Address],
    pods: &[IpNet],
) -> Option<PodDevice> {
    let exact = NAMES.iter().find(|(name, _)| link.name == *name);
    if let Some((_, role)) = exact.or_else(|| {
        PREFIXES
            .iter()
            .find(|(prefix, _)| link.name.starts_with(prefix))
    }) {
        return Some(PodDevice::Named(role));
    }
    let own = || addresses.iter().filter(|own| own.key.ifindex == link.index);
    match link.kind.as_deref() {
        Some("bridge") => own()
            .find_map(|own| subnet_of_pods(own, pods))
            .map(PodDevice::Bridge),
        Some("veth") => {
            let is_port = link
                .controller
                .is_some_and(|index| is_bridge(links.iter().find(|link| link.index == index)));
            let is_gateway = own().any(|own| is_gateway_of_pod(own, pods));
            let is_named = VETHS
                .iter()
                .any(|prefix| has_generated_name(&link.name, prefix));
            (is_port || is_gateway || is_named).then_some(PodDevice::Veth)
        }
        _ => None,
    }
}

/// A bridge has the first address of the node's subnet, as the CNI plugin `bridge` gives it.
fn subnet_of_pods(own: &Address, pods: &[IpNet]) -> Option<IpNet> {
    let subnet = IpNet::new(own.key.addr, own.key.prefix_len).ok()?;
    // The iterator begins with the address of the network for IPv6 only.
    let first = subnet.hosts().nth(usize::from(own.key.addr.is_ipv6()));
    let holds = |network: &IpNet| {
        network.contains(&own.key.addr) && network.prefix_len() < own.key.prefix_len
    };
    pods.iter()
        .copied()
        .find(holds)
        .filter(|_| first == Some(own.key.addr))
}

/// The host's end of a pod's veth has the single address of the gateway, as the CNI plugin `ptp`
/// gives it.
fn is_gateway_of_pod(own: &Address, pods: &[IpNet]) -> bool {
    let is_single = own.key.prefix_len == Family::of(own.key.addr).bits();
    is_single && pods.iter().any(|network| network.contains(&own.key.addr))
}

/// Devices of other kinds have ports that are the host's own: a VRF, a bond.
fn is_bridge(controller: Option<&Link>) -> bool {
    controller
        .is_none_or(|link| matches!(link.kind.as_deref(), Some("bridge" | "openvswitch") | None))
}

/// `veth` with eight hexadecimal digits, and the like.
fn has_generated_name(name: &str, prefix: &str) -> bool {
    let digits = name.strip_prefix(prefix);
    digits.is_some_and(|digits| {
        digits.len() >= 8 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// Returns the owner of an address: rather a link that can be the external interface than one that
/// cannot, because DHCP clients put addresses of the host on every device they find.
pub(super) fn owner<'a>(
    addr: IpAddr,
    links: &'a [Link],
    addresses: &[Address],
    is_of_pods: impl Fn(&Link) -> bool,
) -> Option<&'a Link> {
    let owners = addresses.iter().filter(|own| own.key.addr == addr);
    let mut owners =
        owners.filter_map(|own| links.iter().find(|link| link.index == own.key.ifindex));
    let first = owners.clone().next();
    owners.find(|link| !is_of_pods(link)).or(first)
}
