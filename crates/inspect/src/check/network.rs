//! Devices: the external interface and what it offloads, the tunnel devices, and what fits.

use std::{collections::BTreeSet, net::IpAddr};

use flannel_backend_api::offload::{OffloadSetting, Offloads};
use flannel_backends::vxlan::device_name;
use flannel_common::abi::{mode::Mode, node::NodeConfig, program::Program};
use flannel_datapath::PinRoot;
use flannel_fast::pods::PodReason;
use flannel_firewall_tools::tool;
use flannel_host::family::Family;
use flannel_iface::{AddressInPods, Host, IfaceOptions, select};
use flannel_netlink::{Address, Link, MAIN_TABLE, Netlink, NetlinkError, Route, RouteKey};
use ipnet::IpNet;

use super::{code::HostCode, finding::Finding, kernel::Best};

/// A device that is named as flannel names its tunnels.
pub(super) fn is_flannels(link: &Link) -> bool {
    link.vxlan.is_some_and(|vxlan| {
        Family::BOTH
            .iter()
            .any(|family| link.name == device_name(*family, vxlan.vni))
    })
}

pub(super) async fn look(
    netlink: &Netlink,
    pins: &PinRoot,
    links: &[Link],
    pods: &[IpNet],
    pinned: Option<&NodeConfig>,
    best: &mut Best,
) -> Result<Vec<Finding>, NetlinkError> {
    let mut findings = Vec::new();
    let tunnels = || links.iter().filter(|link| is_flannels(link));
    let mut settings = Offloads::default();
    settings
        .refresh(netlink, tunnels().map(|tunnel| tunnel.index))
        .await;
    let external = external(netlink, links, pods, pinned).await?;
    match &external {
        Ok(link) => {
            findings.push(describe(link, best));
            findings.extend(inside_pods(link, &netlink.addresses().await?, pods));
            let policies = flannel_fast::policy_reason(netlink, pods).await;
            let of_tunnels = tunnels()
                .filter_map(|tunnel| settings.on_receipt(tunnel.index))
                .map(PodReason::Offload);
            findings.push(ingress(
                pins,
                links,
                link,
                policies.into_iter().chain(of_tunnels),
            ));
            findings.extend(offloads(link, may_have_tunnel(pinned)).await);
            findings.extend(
                tunnels()
                    .filter_map(|tunnel| settings.on_transmit(tunnel.index))
                    .map(|setting| of_tunnel(&setting)),
            );
            findings.extend(tunnels().map(|tunnel| fit(tunnel, link)));
        }
        Err(error) => {
            let (problem, remedy) = split_remedy(error);
            findings.push(Finding::warn(HostCode::NoInterface, problem, remedy));
        }
    }
    let external = external.ok().map(|link| link.index);
    let routes = [
        netlink.routes(Family::V4).await?,
        netlink.routes(Family::V6).await?,
    ]
    .concat();
    let places = PodPlaces {
        bridges: bridges_of_pods(links, &netlink.addresses().await?),
        routed: devices_of_single_addresses(&routes),
    };
    findings.extend(pod_sizes(links, external, &places));
    findings.extend(tunnels().filter_map(checksums));
    Ok(findings)
}

/// Returns the external interface: that of the agent, or the one it would choose without options.
/// The inner error is the reason why there is none.
async fn external<'a>(
    netlink: &Netlink,
    links: &'a [Link],
    pods: &[IpNet],
    pinned: Option<&NodeConfig>,
) -> Result<Result<&'a Link, String>, NetlinkError> {
    let by_index = |index: u32| links.iter().find(|link| link.index == index);
    let known = pinned.map(|config| config.v4.underlay_ifindex.max(config.v6.underlay_ifindex));
    if let Some(link) = known.and_then(by_index) {
        return Ok(Ok(link));
    }
    let options = IfaceOptions::default();
    let mut refused = String::new();
    for family in Family::BOTH {
        let host = Host::read(netlink, &[family], &options, pods).await?;
        match select(&options, &[family], &host) {
            Ok(chosen) => {
                return Ok(by_index(chosen.index).ok_or_else(|| format!("{} is gone", chosen.name)));
            }
            Err(error) if refused.is_empty() => refused = error.to_string(),
            Err(_) => {}
        }
    }
    Ok(Err(refused))
}

/// Splits the error of a choice into problem and remedy, each on one line. The remedy lists the
/// interfaces, one to a line.
fn split_remedy(error: &str) -> (&str, String) {
    let (problem, remedy) = error.split_once("; pass ").unwrap_or((error, "--iface"));
    let mut lines = remedy.lines().map(str::trim);
    let first = lines.next().unwrap_or_default();
    let listed = lines.collect::<Vec<_>>().join("; ");
    (
        problem,
        format!("pass {first} {listed}").trim_end().to_owned(),
    )
}

fn describe(link: &Link, best: &mut Best) -> Finding {
    let text = format!("the external interface is {}, MTU {}", link.name, link.mtu);
    if link.arphrd != Link::ETHER {
        let reason = format!("{} is no Ethernet device", link.name);
        best.lower(Mode::Kernel, &reason);
        return Finding::warn(
            HostCode::NotEthernet,
            format!("{text}, and no Ethernet device"),
            "packets take the kernel's path, which is complete",
        );
    }
    if link.up && link.running {
        Finding::ok("interface", text)
    } else {
        Finding::fail(
            HostCode::InterfaceDown,
            format!("{text}, and is down"),
            "bring it up, or choose another with --iface",
        )
    }
}

/// Compares the addresses of the external interface with the pod networks, which are known once an
/// agent has written subnet.env.
fn inside_pods(external: &Link, addresses: &[Address], pods: &[IpNet]) -> Vec<Finding> {
    let own = addresses
        .iter()
        .filter(|address| address.key.ifindex == external.index);
    let found = AddressInPods::find(own.map(|address| address.key.addr), pods);
    if found.is_empty() && !pods.is_empty() {
        return vec![Finding::ok(
            "addresses",
            format!("no address of {} is in the pod network", external.name),
        )];
    }
    found
        .iter()
        .map(|found| {
            Finding::warn(
                HostCode::AddressInPods,
                found.to_string(),
                AddressInPods::REMEDY,
            )
        })
        .collect()
}

/// The finding on filters that would miss what mode `fast` puts into pods, and on IPsec policies
/// that it would bypass; `more` are reasons of other kinds. A device of a route to peers, and a
/// tunnel device without Ethernet, is known by our link on it.
fn ingress(
    pins: &PinRoot,
    links: &[Link],
    external: &Link,
    more: impl Iterator<Item = PodReason>,
) -> Finding {
    let programs = [Program::FromUnderlay, Program::FromL3Tunnel];
    let is_attached = |link: &Link| {
        programs
            .iter()
            .any(|program| pins.link(*program, link.index).exists())
    };
    let devices = links
        .iter()
        .filter(|link| link.index == external.index || is_attached(link));
    let reasons =
        devices.flat_map(|link| flannel_fast::underlay_reasons(pins, link.index, &link.name));
    let reasons: Vec<String> = reasons
        .chain(more)
        .map(|reason| reason.to_string())
        .collect();
    if reasons.is_empty() {
        return Finding::ok(
            "ingress",
            format!("no filter of others is on the ingress of {}", external.name),
        );
    }
    Finding::warn(
        HostCode::ForeignFilter,
        reasons.join(", "),
        "mode fast leaves packets from other nodes to the kernel, so that filters and IPsec see \
         them all and offload settings hold; only speed is lost",
    )
}

/// The finding on an offload setting of a tunnel device that keeps the programs from sending past
/// it.
fn of_tunnel(setting: &OffloadSetting) -> Finding {
    Finding::warn(
        HostCode::TunnelOffload,
        setting.to_string(),
        "the vxlan device of the kernel sends packets to peers in every mode, as this setting asks \
         for; \
         set it back where the NIC needs no remedy: only speed is lost",
    )
}

/// Returns what the interface offloads, as ethtool reports it; tunnel packets count if there is a
/// `tunnel`. `None` if ethtool fails.
async fn offloads(link: &Link, tunnel: bool) -> Option<Finding> {
    let Some(ethtool) = tool::find("ethtool") else {
        return Some(Finding::ok(
            "offload",
            "not looked at: ethtool is not installed",
        ));
    };
    let text = tool::run(&ethtool, &["-k", &link.name], "").await.ok()?;
    let lacking: Vec<&str> = lacking(&text)
        .filter(|feature| tunnel || *feature != OF_TUNNELS)
        .collect();
    Some(if lacking.is_empty() {
        let packets = if tunnel { "tunnel packets" } else { "packets" };
        Finding::ok(
            "offload",
            format!("{} merges and segments {packets}", link.name),
        )
    } else {
        Finding::warn(
            HostCode::NicOffload,
            format!("off on {}: {}", link.name, lacking.join(", ")),
            format!(
                "only speed is lost; where the device can: ethtool -K {} FEATURE on",
                link.name
            ),
        )
    })
}

/// The feature that only packets of a tunnel need.
const OF_TUNNELS: &str = "tx-udp_tnl-segmentation";

/// The features that matter and are off.
fn lacking(features: &str) -> impl Iterator<Item = &str> {
    const WANTED: [&str; 3] = [
        "generic-receive-offload",
        OF_TUNNELS,
        "generic-segmentation-offload",
    ];
    features.lines().filter_map(|line| {
        let (name, value) = line.trim().split_once(": ")?;
        (WANTED.contains(&name) && value.starts_with("off")).then_some(name)
    })
}

/// Checks that the largest packets of the tunnel device fit, with their headers, into the external
/// interface.
fn fit(tunnel: &Link, external: &Link) -> Finding {
    let overhead = if tunnel.name.starts_with("flannel-v6.") {
        70
    } else {
        50
    };
    let text = format!(
        "{} has MTU {}, and {} {}",
        tunnel.name, tunnel.mtu, external.name, external.mtu
    );
    if tunnel.mtu + overhead <= external.mtu {
        Finding::ok("mtu", text)
    } else {
        Finding::warn(
            HostCode::TunnelMtu,
            format!("{text}: {overhead} bytes of headers do not fit"),
            format!(
                "set Backend.MTU to {} or less and restart the agent",
                external.mtu
            ),
        )
    }
}

/// Devices to which a route for a single address leads.
fn devices_of_single_addresses(routes: &[(RouteKey, Route)]) -> BTreeSet<u32> {
    let is_single = |key: &RouteKey| {
        key.table == MAIN_TABLE && key.dst.prefix_len() == key.dst.max_prefix_len()
    };
    routes
        .iter()
        .filter(|(key, _)| is_single(key))
        .filter_map(|(_, route)| route.oif)
        .collect()
}

/// The devices by which pods of this node are reached, by their index.
#[derive(Debug, Default)]
struct PodPlaces {
    /// Bridges whose ports lead to pods.
    bridges: BTreeSet<u32>,
    /// Devices of routes to single pods.
    routed: BTreeSet<u32>,
}

/// Bridges with an address of this node's subnet, as CNI plugins give them. The tunnel device has
/// the subnet's first address. Other bridges, such as docker0, have ports that are not pods'.
fn bridges_of_pods(links: &[Link], addresses: &[Address]) -> BTreeSet<u32> {
    let of_tunnels: Vec<IpAddr> = links
        .iter()
        .filter(|link| is_flannels(link))
        .flat_map(|link| {
            addresses
                .iter()
                .filter(|address| address.key.ifindex == link.index)
        })
        .map(|address| address.key.addr)
        .collect();
    let has_subnet = |address: &&Address| {
        let network = IpNet::new(address.key.addr, address.key.prefix_len);
        network.is_ok_and(|network| of_tunnels.iter().any(|first| network.contains(first)))
    };
    let is_tunnel = |index| {
        links
            .iter()
            .any(|link| link.index == index && is_flannels(link))
    };
    let found = addresses
        .iter()
        .filter(has_subnet)
        .map(|address| address.key.ifindex);
    found.filter(|index| !is_tunnel(*index)).collect()
}

/// A pod's veth is a port of the pods' bridge, or has a route to the pod. The node's own interfaces
/// may be veths as well, where the node is a container: neither the external one nor a port of it
/// is a pod's.
fn is_pods(link: &Link, external: Option<u32>, places: &PodPlaces) -> bool {
    let is_external =
        external.is_some_and(|index| link.index == index || link.controller == Some(index));
    let is_port = link
        .controller
        .is_some_and(|bridge| places.bridges.contains(&bridge));
    let is_attached = is_port || places.routed.contains(&link.index);
    link.kind.as_deref() == Some("veth") && link.netns.is_some() && is_attached && !is_external
}

/// Pods keep the MTU they were made with.
fn pod_sizes(links: &[Link], external: Option<u32>, places: &PodPlaces) -> Option<Finding> {
    let smallest = links
        .iter()
        .filter(|link| is_flannels(link))
        .map(|link| link.mtu)
        .min()?;
    let is_large = |link: &&Link| is_pods(link, external, places) && link.mtu > smallest;
    let large: Vec<&str> = links
        .iter()
        .filter(is_large)
        .map(|link| link.name.as_str())
        .take(5)
        .collect();
    Some(if large.is_empty() {
        Finding::ok("mtu", "no pod's packets are larger than the tunnel takes")
    } else {
        Finding::warn(
            HostCode::PodMtu,
            format!(
                "larger than the tunnel's {smallest} is the MTU of {}",
                large.join(", ")
            ),
            "pods get their MTU from subnet.env when they are created: recreate these",
        )
    })
}

/// IPv6 tunnels of peers send no UDP checksum, if we announce that we take that.
fn checksums(link: &Link) -> Option<Finding> {
    let vxlan = link
        .vxlan
        .filter(|_| link.name.starts_with("flannel-v6."))?;
    Some(if vxlan.udp_zero_csum6_rx {
        Finding::ok(
            "udp6zerocsumrx",
            format!("{} takes packets without UDP checksum", link.name),
        )
    } else {
        Finding::warn(
            HostCode::ZeroChecksum,
            format!("{} takes no packets without UDP checksum", link.name),
            "peers send us IPv6 by the kernel's path; delete the device while the agent is down, \
             and the agent creates it again",
        )
    })
}

/// Returns true if tunnel packets may come and go here; true also if no configuration is pinned.
pub(super) fn may_have_tunnel(pinned: Option<&NodeConfig>) -> bool {
    pinned.is_none_or(NodeConfig::has_tunnel)
}

#[cfg(test)]
mod tests {
    use flannel_netlink::{AddressFlags, AddressKey, AddressScope, VxlanInfo};

    use super::*;

    const CNI0: u32 = 4;

    fn veth(index: u32, name: &str, controller: Option<u32>) -> Link {
        Link {
            kind: Some("veth".to_owned()),
            netns: Some(0),
            controller,
            ..Link::ethernet(index, name, 1500)
        }
    }

    fn tunnel() -> Link {
        let vxlan = Some(VxlanInfo {
            vni: 1,
            ..VxlanInfo::default()
        });
        Link {
            vxlan,
            ..Link::ethernet(3, "flannel.1", 1450)
        }
    }

    /// A node that is a container: `eth0` and `eth1` are veths as the pods' are.
    #[test]
    fn a_veth_of_the_node_itself_is_no_pod() {
        let own = [
            tunnel(),
            veth(2, "eth0", None),
            veth(7, "eth1", None),
            Link::ethernet(CNI0, "cni0", 1450),
        ];
        let places = PodPlaces {
            bridges: BTreeSet::from([CNI0]),
            routed: BTreeSet::from([6]),
        };
        let found = pod_sizes(&own, Some(2), &places).expect("a finding");
        assert_eq!(
            found.text,
            "no pod's packets are larger than the tunnel takes"
        );

        let pods = [veth(5, "veth5", Some(CNI0)), veth(6, "cali6", None)];
        let all = [&own[..], &pods].concat();
        let found = pod_sizes(&all, Some(2), &places).expect("a finding");
        assert_eq!(
            found.text,
            "larger than the tunnel's 1450 is the MTU of veth5, cali6"
        );

        let bridged = [
            tunnel(),
            Link::ethernet(8, "br0", 1500),
            veth(2, "eth0", Some(8)),
        ];
        let places = PodPlaces {
            bridges: BTreeSet::from([8]),
            ..PodPlaces::default()
        };
        let found = pod_sizes(&bridged, Some(8), &places).expect("a finding");
        assert_eq!(
            found.text, "no pod's packets are larger than the tunnel takes",
            "a port of the external bridge"
        );
    }

    #[test]
    fn containers_of_another_bridge_are_no_pods() {
        const DOCKER0: u32 = 9;
        let address = |ifindex, addr: &str, prefix_len| Address {
            key: AddressKey {
                ifindex,
                addr: addr.parse().expect("an address"),
                prefix_len,
            },
            scope: AddressScope::Universe,
            flags: AddressFlags::Permanent,
        };
        let addresses = [
            address(2, "192.168.1.11", 24),
            address(3, "10.244.5.0", 32),
            address(CNI0, "10.244.5.1", 24),
            address(DOCKER0, "172.17.0.1", 16),
        ];
        let bridges = [
            Link::ethernet(CNI0, "cni0", 1450),
            Link::ethernet(DOCKER0, "docker0", 1500),
        ];
        let container = [tunnel(), veth(10, "veth10", Some(DOCKER0))];
        let links = [&bridges[..], &container].concat();
        let places = PodPlaces {
            bridges: bridges_of_pods(&links, &addresses),
            ..PodPlaces::default()
        };
        assert_eq!(places.bridges, BTreeSet::from([CNI0]));
        let found = pod_sizes(&links, Some(2), &places).expect("a finding");
        assert_eq!(
            found.text,
            "no pod's packets are larger than the tunnel takes"
        );
    }

    #[test]
    fn a_remedy_keeps_its_list() {
        let error = "there is no IPv4 default route; pass --iface with the name or a local address \
            of one of:\n  \
                     eth0 (up): 10.0.0.1\n  eth1 (down): no address";
        let (problem, remedy) = split_remedy(error);
        assert_eq!(problem, "there is no IPv4 default route");
        let list = "eth0 (up): 10.0.0.1; eth1 (down): no address";
        assert_eq!(
            remedy,
            format!("pass --iface with the name or a local address of one of: {list}")
        );
        assert_eq!(
            split_remedy("eth0 is gone"),
            ("eth0 is gone", "pass --iface".to_owned())
        );
    }

    #[test]
    fn a_pod_without_a_bridge_is_found_by_its_route() {
        let to = |dst: &str, oif| {
            let key = RouteKey::main(dst.parse().expect("a prefix"));
            (
                key,
                Route::via(
                    [0, 0, 0, 0].into(),
                    Some(oif),
                    flannel_netlink::protocol::BOOT,
                ),
            )
        };
        let elsewhere = to("10.5.1.9/32", 9);
        let routes = [
            to("10.5.1.7/32", 6),
            to("10.5.1.0/24", 2),
            to("fd00::7/128", 7),
            (
                RouteKey {
                    table: 7,
                    ..elsewhere.0
                },
                elsewhere.1,
            ),
        ];
        assert_eq!(devices_of_single_addresses(&routes), BTreeSet::from([6, 7]));
    }

    #[test]
    fn features_that_are_off_are_named() {
        let text = "Features for eth0:\ngeneric-receive-offload: on\n\ttx-udp_tnl-segmentation: \
            off [fixed]\nlarge-receive-offload: off\n";
        assert_eq!(
            lacking(text).collect::<Vec<_>>(),
            ["tx-udp_tnl-segmentation"]
        );
    }
}
