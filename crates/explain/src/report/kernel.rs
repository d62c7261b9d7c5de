//! The kernel's way: route, neighbour, FDB, underlay. It is there in every mode, and has to be
//! right in every mode.

use std::net::IpAddr;

use flannel_common::abi::{entry_state::EntryState, peer::PeerEntry};
use flannel_datapath::maps::ecmp_paths;
use flannel_flows::rows::seconds;
use flannel_netlink::{RouteAnswer, RouteType};

use super::{commands, step::Step};
use crate::{
    location::Location,
    snapshot::{Snapshot, Tunnel},
};

/// The remedy for a fault that a running agent would have repaired.
pub(super) const REPAIR: &str = "a running agent repairs that at once: see `flannel-agent status`, \
    and `flannel-agent maps dump --diff`";

pub(super) const fn is_direct(entry: &PeerEntry) -> bool {
    entry.word.has(EntryState::DIRECT)
}

/// Returns the steps of the packet's way through the kernel.
pub(super) fn steps(facts: &Snapshot) -> Vec<Step> {
    let mut steps: Vec<Step> = facts
        .route
        .iter()
        .map(|route| self::route(facts, route))
        .collect();
    let Some(tunnel) = &facts.tunnel else {
        return steps;
    };
    if tunnel.peer.entry.is_routed() {
        steps.extend(
            matches!(facts.destination, Location::Peer(_))
                .then(|| by_device(facts, tunnel))
                .flatten(),
        );
        return steps;
    }
    if is_direct(&tunnel.peer.entry) {
        steps.extend(matches!(facts.destination, Location::Peer(_)).then(|| on_link(tunnel)));
        return steps;
    }
    match &facts.destination {
        Location::Peer(_) => {
            steps.extend([
                device(tunnel),
                neighbour(tunnel),
                fdb(tunnel),
                underlay(tunnel),
                path(facts, tunnel),
            ]);
        }
        Location::Unknown => {
            steps.extend([device(tunnel), neighbour(tunnel)]);
            steps.extend(tunnel.neighbour.map(|_| fdb(tunnel)));
            steps.extend(tunnel.fdb.map(|_| underlay(tunnel)));
        }
        _ => steps.push(device(tunnel)),
    }
    steps.extend(size(facts, tunnel));
    steps
}

fn route(facts: &Snapshot, route: &Result<RouteAnswer, String>) -> Step {
    let destination = facts.onward.address;
    let answer = match route {
        Ok(answer) => answer,
        Err(error) => {
            return Step::fail(
                "route",
                format!("the kernel does not forward it: {error}. {FORWARDING}"),
            );
        }
    };
    let device = facts.route_device.as_deref().unwrap_or("no device");
    let by = answer.gateway.map_or_else(
        || format!("by {device}"),
        |gateway| format!("by {device} via {gateway}"),
    );
    match (answer.kind, expected(facts)) {
        (RouteType::Unicast | RouteType::Local, Some((index, name)))
            if answer.oif != Some(index) =>
        {
            Step::fail(
                "route",
                format!(
                    "{destination} is routed {by}, and not by {name}: look for a more specific \
                     route; {REPAIR}"
                ),
            )
        }
        (RouteType::Unicast, _) => commands::default_route(facts, &by)
            .unwrap_or_else(|| Step::ok("route", format!("{destination} is routed {by}"))),
        (RouteType::Local, _) => {
            Step::ok("route", format!("{destination} is delivered to this host"))
        }
        (RouteType::Unreachable, _) if matches!(facts.destination, Location::Unleased(_)) => {
            Step::fail(
                "route",
                format!(
                    "no node has a lease for {destination}, so the unreachable route for the pod \
                     network matches it"
                ),
            )
        }
        (RouteType::Unreachable, _) => Step::fail(
            "route",
            format!("the kernel has no route to {destination}, or forwards none. {FORWARDING}"),
        ),
        (kind, _) => Step::fail(
            "route",
            format!("the kernel's route to {destination} is {kind:?}: packets end there"),
        ),
    }
}

const FORWARDING: &str = "net.ipv4.ip_forward (net.ipv6.conf.all.forwarding) has to be 1, and \
    rp_filter not to refuse the sender";

/// The device by which the route has to lead.
fn expected(facts: &Snapshot) -> Option<(u32, String)> {
    match &facts.destination {
        // Routes of others may lead where they want.
        Location::Peer(peer) if peer.entry.is_routed() && !is_by_tunnel(facts, &peer.entry) => None,
        Location::Peer(peer) if is_direct(&peer.entry) => {
            Some((peer.entry.oif, format!("device {}", peer.entry.oif)))
        }
        Location::Peer(_) => {
            let tunnel = facts.tunnel.as_ref()?;
            let config = facts.config()?;
            Some((
                config.tunnel_ifindex,
                tunnel
                    .device
                    .as_ref()
                    .map_or("the tunnel device", |link| &link.name)
                    .to_owned(),
            ))
        }
        Location::Pod(pod) => {
            let link = pod.bridge.as_ref().unwrap_or(&pod.veth);
            Some((link.index, link.name.clone()))
        }
        _ => None,
    }
}

fn device(tunnel: &Tunnel) -> Step {
    match &tunnel.device {
        None => Step::fail("device", format!("the tunnel device is gone; {REPAIR}")),
        Some(link) if !link.up => Step::fail("device", format!("{} is down; {REPAIR}", link.name)),
        Some(link) => Step::ok("device", format!("{} is up, MTU {}", link.name, link.mtu)),
    }
}

fn neighbour(tunnel: &Tunnel) -> Step {
    let (gateway, wanted) = (tunnel.peer.subnet.addr(), tunnel.peer.entry.mac);
    match tunnel.neighbour {
        Some(mac) if mac == wanted => {
            Step::ok("neighbour", format!("{gateway} is {mac}, the peer's VTEP"))
        }
        Some(mac) => Step::fail(
            "neighbour",
            format!("{gateway} is {mac}, and the peer's VTEP is {wanted}; {REPAIR}"),
        ),
        None => Step::fail(
            "neighbour",
            format!("there is no entry for {gateway}, the peer's gateway; {REPAIR}"),
        ),
    }
}

fn fdb(tunnel: &Tunnel) -> Step {
    let (mac, wanted) = (tunnel.peer.entry.mac, IpAddr::from(tunnel.peer.entry.vtep));
    match tunnel.fdb {
        Some(vtep) if vtep == wanted => Step::ok("fdb", format!("{mac} is behind {vtep}")),
        Some(vtep) => Step::fail(
            "fdb",
            format!("{mac} is behind {vtep}, and the peer is {wanted}; {REPAIR}"),
        ),
        None => Step::fail(
            "fdb",
            format!("there is no entry for {mac}, so frames to the peer end here; {REPAIR}"),
        ),
    }
}

fn underlay(tunnel: &Tunnel) -> Step {
    let vtep = tunnel.peer.entry.vtep;
    let answer = match &tunnel.outer {
        Ok(answer) => answer,
        Err(error) => {
            return Step::fail(
                "underlay",
                format!("outer packets to {vtep} have no way: {error}"),
            );
        }
    };
    let device = tunnel.outlets.first();
    let names: Vec<_> = tunnel
        .outlets
        .iter()
        .map(|link| link.name.as_str())
        .collect();
    let name = if names.is_empty() {
        "a device that is gone".to_owned()
    } else {
        names.join(" or ")
    };
    let by = answer
        .gateway
        .map_or_else(String::new, |gateway| format!(" via {gateway}"));
    let text = format!("outer packets to {vtep} leave by {name}{by}");
    match (answer.kind, device) {
        (RouteType::Unicast, Some(_)) if !tunnel.outlets.iter().any(|link| link.running) => {
            Step::fail("underlay", format!("{text}, which is down"))
        }
        (RouteType::Unicast, _) if is_silent(tunnel) => Step::fail(
            "underlay",
            format!("{text}, and the next hop does not answer: it is down, or not on that segment"),
        ),
        (RouteType::Unicast, _) if answer.is_multipath() => Step::ok(
            "underlay",
            format!("{text}: the kernel chooses among several next hops"),
        ),
        (RouteType::Unicast, _) => Step::ok("underlay", text),
        (RouteType::Local, _) => Step::fail(
            "underlay",
            format!("{vtep} is an address of this very host"),
        ),
        (kind, _) => Step::fail(
            "underlay",
            format!("outer packets to {vtep} have no way: {kind:?}"),
        ),
    }
}

/// Returns true if the peer is reached by the tunnel device.
fn is_by_tunnel(facts: &Snapshot, entry: &PeerEntry) -> bool {
    facts
        .config()
        .is_some_and(|config| config.tunnel_ifindex == entry.oif)
}

/// The device of a peer that is reached by the tunnel device, or by routes of others; none for one
/// behind commands whose packets follow the default route.
fn by_device(facts: &Snapshot, tunnel: &Tunnel) -> Option<Step> {
    let vtep = tunnel.peer.entry.vtep;
    if is_by_tunnel(facts, &tunnel.peer.entry) {
        return Some(device(tunnel));
    }
    match &tunnel.external {
        Some(link) if !link.running => {
            Some(Step::fail("underlay", format!("{} is down", link.name)))
        }
        _ if commands::is_by_default_route(facts) => None,
        _ => Some(Step::ok(
            "underlay",
            format!("routes that the agent does not make lead to the node {vtep}"),
        )),
    }
}

/// A peer on our own link is the next hop itself.
fn on_link(tunnel: &Tunnel) -> Step {
    let vtep = tunnel.peer.entry.vtep;
    match &tunnel.external {
        Some(link) if !link.running => Step::fail("underlay", format!("{} is down", link.name)),
        _ if is_silent(tunnel) => Step::fail(
            "underlay",
            format!(
                "the node {vtep} does not answer on our link: it is down, or not on that segment"
            ),
        ),
        _ => Step::ok("underlay", format!("the node {vtep} is on our own link")),
    }
}

/// Returns true if the kernel asked for the next hop and got no answer.
fn is_silent(tunnel: &Tunnel) -> bool {
    tunnel
        .next_hop
        .as_ref()
        .is_some_and(|neighbour| neighbour.failed && neighbour.mac.is_none())
}

fn path(facts: &Snapshot, tunnel: &Tunnel) -> Step {
    let entry = &tunnel.peer.entry;
    if !entry.word.has(EntryState::PLAIN) {
        let said = facts.status.iter().flat_map(|status| &status.peers);
        let why = said
            .filter(|peer| peer.subnet == tunnel.peer.subnet.to_string())
            .find_map(|peer| peer.reason.clone());
        let why = why.unwrap_or_else(|| "a running agent's status says why".to_owned());
        return Step::warn(
            "path",
            format!("not plain, so the vxlan device carries all packets: {why}"),
        );
    }
    if entry.word.has(EntryState::ECMP) {
        return by_ecmp_paths(facts, tunnel);
    }
    if entry.path_is_validated(facts.now_ns) {
        let left =
            i64::try_from((entry.seen.until_ns - facts.now_ns) / 1_000_000).unwrap_or_default();
        let len = entry.seen.max_len;
        return Step::ok(
            "path",
            format!(
                "plain: the kernel's own packets of up to {len} bytes left as ours would; good for \
                 {}",
                seconds(left)
            ),
        );
    }
    if facts.now_ns < entry.seen.hold_ns && entry.seen.word == entry.word {
        return Step::warn(
            "path",
            "a packet of the kernel's own left otherwise than ours would: the vxlan device carries \
             all packets for now",
        );
    }
    Step::ok(
        "path",
        "plain, and not validated by a recent packet of the kernel: the next packet takes the \
         vxlan device and is the probe",
    )
}

/// The path of a peer with ECMP paths: the kernel chooses one for each flow.
fn by_ecmp_paths(facts: &Snapshot, tunnel: &Tunnel) -> Step {
    let entry = &tunnel.peer.entry;
    let name = |index| {
        let link = tunnel.outlets.iter().find(|link| link.index == index);
        link.map_or_else(|| format!("interface {index}"), |link| link.name.clone())
    };
    let said = tunnel.ecmp_paths.iter().map(|(index, ecmp_path)| {
        let seen = ecmp_paths::seen(entry, ecmp_path, facts.now_ns);
        let what = if seen.is_validated(entry.word, facts.now_ns) {
            let left =
                i64::try_from((seen.until_ns - facts.now_ns) / 1_000_000).unwrap_or_default();
            format!(
                "packets of up to {} bytes left as ours would, good for {}",
                seen.max_len,
                seconds(left)
            )
        } else if seen.is_held_down(entry.word, facts.now_ns) {
            "a packet of the kernel's own left otherwise than ours would".to_owned()
        } else {
            "no recent packet of the kernel's own".to_owned()
        };
        format!("by {}: {what}", name(*index))
    });
    let said: Vec<_> = said.collect();
    if said.is_empty() {
        return Step::warn(
            "path",
            "the peer has no device in the map ECMP_PATHS: the vxlan device carries all packets",
        );
    }
    Step::ok(
        "path",
        format!(
            "plain, and the kernel chooses the next hop for each flow; {}",
            said.join("; ")
        ),
    )
}

/// Compares the MTUs of the tunnel device, the external interface and the pod's veth.
fn size(facts: &Snapshot, tunnel: &Tunnel) -> Option<Step> {
    let (external, device) = (tunnel.external.as_ref()?, tunnel.device.as_ref()?);
    let overhead = if facts.question.destination.is_ipv4() {
        50
    } else {
        70
    };
    let pods = [&facts.source, &facts.destination]
        .into_iter()
        .find_map(|place| match place {
            Location::Pod(pod) => Some(&pod.veth),
            _ => None,
        });
    let text = format!(
        "packets of up to {} bytes fit into {}, and with {overhead} more into {} ({})",
        device.mtu, device.name, external.name, external.mtu
    );
    if device.mtu + overhead > external.mtu {
        return Some(Step::warn(
            "size",
            format!("{text}: they do not; outer packets are fragmented, or lost. Set Backend.MTU"),
        ));
    }
    Some(match pods.filter(|veth| veth.mtu > device.mtu) {
        Some(veth) => Step::warn(
            "size",
            format!(
                "{text}; the pod at {} has MTU {}, so its large packets depend on path MTU \
                 discovery",
                veth.name, veth.mtu
            ),
        ),
        None => Step::ok("size", text),
    })
}
