//! Devices: the external interface and what it offloads, the tunnel devices, and what fits.

use flannel_common::{mode::Mode, node::NodeConfig, program::Program};

use super::{Best, Finding, may_have_tunnel};
use crate::{
    backend::vxlan::device_name,
    datapath::PinRoot,
    family::Family,
    fast,
    iface::{Host, IfaceOptions, select},
    netlink::{Link, Netlink, NetlinkError},
    traffic::tool,
};

/// A device that is named as flannel names its tunnels.
pub(super) fn is_flannels(link: &Link) -> bool {
    link.vxlan.is_some_and(|vxlan| Family::BOTH.iter().any(|family| link.name == device_name(*family, vxlan.vni)))
}

pub(super) async fn look(
    netlink: &Netlink,
    pins: &PinRoot,
    links: &[Link],
    pinned: Option<&NodeConfig>,
    best: &mut Best,
) -> Result<Vec<Finding>, NetlinkError> {
    let mut findings = Vec::new();
    match external(netlink, links, pinned).await? {
        Ok(link) => {
            findings.push(describe(link, best));
            findings.push(ingress(pins, links, link));
            findings.extend(offloads(link, may_have_tunnel(pinned)).await);
            findings.extend(links.iter().filter(|tunnel| is_flannels(tunnel)).map(|tunnel| fit(tunnel, link)));
        }
        Err(error) => {
            let text = error.lines().next().unwrap_or_default().trim_end_matches(':').to_owned();
            findings.push(Finding::warn("interface", text, "name one with --iface"));
        }
    }
    findings.extend(pods(links));
    findings.extend(links.iter().filter(|link| is_flannels(link)).filter_map(checksums));
    Ok(findings)
}

/// The external interface: that of the agent, or the one it would choose without being told.
async fn external<'a>(
    netlink: &Netlink,
    links: &'a [Link],
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
        let host = Host::read(netlink, &[family], &options).await?;
        match select(&options, &[family], &host) {
            Ok(chosen) => return Ok(by_index(chosen.index).ok_or_else(|| format!("{} is gone", chosen.name))),
            Err(error) if refused.is_empty() => refused = error.to_string(),
            Err(_) => {}
        }
    }
    Ok(Err(refused))
}

fn describe(link: &Link, best: &mut Best) -> Finding {
    let text = format!("the external interface is {}, MTU {}", link.name, link.mtu);
    if link.arphrd != Link::ETHER {
        let reason = format!("{} is no Ethernet device", link.name);
        best.lower(Mode::Kernel, &reason);
        return Finding::warn(
            "interface",
            format!("{text}, and no Ethernet device"),
            "packets take the kernel's path, which is complete",
        );
    }
    if link.up && link.running {
        Finding::ok("interface", text)
    } else {
        Finding::fail("interface", format!("{text}, and is down"), "bring it up, or choose another with --iface")
    }
}

/// The finding on filters that would miss what mode `fast` puts into pods. A device of a route to
/// peers is known by our link on it.
fn ingress(pins: &PinRoot, links: &[Link], external: &Link) -> Finding {
    let is_attached = |link: &Link| pins.link(Program::FromUnderlay, link.index).exists();
    let devices = links.iter().filter(|link| link.index == external.index || is_attached(link));
    let reasons = devices.flat_map(|link| fast::underlay_reasons(pins, link.index, &link.name));
    let reasons: Vec<String> = reasons.map(|reason| reason.to_string()).collect();
    if reasons.is_empty() {
        return Finding::ok("ingress", format!("no filter of others is on the ingress of {}", external.name));
    }
    Finding::warn(
        "ingress",
        reasons.join(", "),
        "mode fast leaves packets from other nodes to the kernel, so that the filters see them all; only speed is lost",
    )
}

/// What the interface does for packets, those of a tunnel among them where there is one, as ethtool tells it.
async fn offloads(link: &Link, tunnel: bool) -> Option<Finding> {
    let Some(ethtool) = tool::find("ethtool") else {
        return Some(Finding::ok("offload", "not looked at: ethtool is not installed"));
    };
    let text = tool::run(&ethtool, &["-k", &link.name], "").await.ok()?;
    let lacking: Vec<&str> = lacking(&text).filter(|feature| tunnel || *feature != OF_TUNNELS).collect();
    Some(if lacking.is_empty() {
        let packets = if tunnel { "tunnel packets" } else { "packets" };
        Finding::ok("offload", format!("{} merges and segments {packets}", link.name))
    } else {
        Finding::warn(
            "offload",
            format!("off on {}: {}", link.name, lacking.join(", ")),
            format!("only speed is lost; where the device can: ethtool -K {} FEATURE on", link.name),
        )
    })
}

/// The feature that only packets of a tunnel need.
const OF_TUNNELS: &str = "tx-udp_tnl-segmentation";

/// The features that matter and are off.
fn lacking(features: &str) -> impl Iterator<Item = &str> {
    const WANTED: [&str; 3] = ["generic-receive-offload", OF_TUNNELS, "generic-segmentation-offload"];
    features.lines().filter_map(|line| {
        let (name, value) = line.trim().split_once(": ")?;
        (WANTED.contains(&name) && value.starts_with("off")).then_some(name)
    })
}

/// Whether what the tunnel device lets through fits into the external interface.
fn fit(tunnel: &Link, external: &Link) -> Finding {
    let overhead = if tunnel.name.starts_with("flannel-v6.") { 70 } else { 50 };
    let text = format!("{} has MTU {}, and {} {}", tunnel.name, tunnel.mtu, external.name, external.mtu);
    if tunnel.mtu + overhead <= external.mtu {
        Finding::ok("mtu", text)
    } else {
        Finding::warn(
            "mtu",
            format!("{text}: {overhead} bytes of headers do not fit"),
            format!("set Backend.MTU to {} or less and start the agent anew", external.mtu),
        )
    }
}

/// Pods keep the MTU they were made with.
fn pods(links: &[Link]) -> Option<Finding> {
    let smallest = links.iter().filter(|link| is_flannels(link)).map(|link| link.mtu).min()?;
    let is_large = |link: &&Link| link.kind.as_deref() == Some("veth") && link.netns.is_some() && link.mtu > smallest;
    let large: Vec<&str> = links.iter().filter(is_large).map(|link| link.name.as_str()).take(5).collect();
    Some(if large.is_empty() {
        Finding::ok("mtu", "no pod's packets are larger than the tunnel takes")
    } else {
        Finding::warn(
            "mtu",
            format!("larger than the tunnel's {smallest} is the MTU of {}", large.join(", ")),
            "pods get their MTU from subnet.env when they are made: make these anew",
        )
    })
}

/// IPv6 tunnels of peers send no UDP checksum, if we announce that we take that.
fn checksums(link: &Link) -> Option<Finding> {
    let vxlan = link.vxlan.filter(|_| link.name.starts_with("flannel-v6."))?;
    Some(if vxlan.udp_zero_csum6_rx {
        Finding::ok("udp6zerocsumrx", format!("{} takes packets without UDP checksum", link.name))
    } else {
        Finding::warn(
            "udp6zerocsumrx",
            format!("{} takes no packets without UDP checksum", link.name),
            "peers send us IPv6 by the kernel's path; delete the device while the agent is down, and it is made anew",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_that_are_off_are_named() {
        let text = "Features for eth0:\ngeneric-receive-offload: on\n\ttx-udp_tnl-segmentation: off [fixed]\nlarge-receive-offload: off\n";
        assert_eq!(lacking(text).collect::<Vec<_>>(), ["tx-udp_tnl-segmentation"]);
    }
}
