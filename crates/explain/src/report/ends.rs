//! The steps about the two ends of the flow.

use std::net::IpAddr;

use flannel_common::abi::fast::PodEntry;
use flannel_status::Status;

use super::{nat, step::Step};
use crate::{
    location::{LocalPod, Location},
    snapshot::Snapshot,
};

const TOPICS: [&str; 2] = ["source", "destination"];

/// A step for each end, one for a Service between them, and one where neither end is this node's
/// business.
pub(super) fn steps(facts: &Snapshot) -> Vec<Step> {
    let mut steps = vec![step(TOPICS[0], &facts.source, facts.question.source, facts)];
    steps.extend(nat::service(facts));
    steps.push(step(
        TOPICS[1],
        &facts.destination,
        facts.onward.address,
        facts,
    ));
    if let (Location::Peer(peer), Location::Peer(_) | Location::Unleased(_) | Location::Outside) =
        (&facts.source, &facts.destination)
    {
        let text = format!(
            "neither end is on this node: ask on the node {}, where the packet begins",
            peer.entry.vtep
        );
        steps.push(Step::fail("node", text));
    }
    steps
}

fn step(topic: &'static str, place: &Location, address: IpAddr, facts: &Snapshot) -> Step {
    match place {
        Location::Pod(pod) => self::pod(topic, pod, address, facts.status.as_ref()),
        Location::Node(device) => Step::ok(
            topic,
            format!("{address} is an address of this node, on {device}"),
        ),
        Location::Vacant(subnet) => Step::fail(
            topic,
            format!(
                "{address} is in this node's own subnet {subnet}, and no pod here has it: it is \
                 gone, or not up yet"
            ),
        ),
        Location::Peer(peer) => Step::ok(
            topic,
            format!(
                "{address} is in {}, the subnet of the node {}",
                peer.subnet, peer.entry.vtep
            ),
        ),
        Location::Unleased(subnet) => Step::fail(
            topic,
            format!(
                "{address} is in {subnet}, and no node is known to have that subnet: look for its \
                 lease in the store, and at \
                 `refused lease` in `flannel-agent status`"
            ),
        ),
        Location::Outside => Step::ok(
            topic,
            format!("{address} is neither in the pod network nor on this node"),
        ),
        Location::Unknown => Step::unknown(
            topic,
            format!(
                "{address} is not on this node. It may be in the pod network: no agent answers, \
                 and its pins are not \
                 found. Give --state-dir and --bpf-pin-root as the agent has them, or start the \
                 agent"
            ),
        ),
    }
}

fn pod(topic: &'static str, pod: &LocalPod, address: IpAddr, status: Option<&Status>) -> Step {
    let LocalPod {
        veth,
        bridge,
        mac,
        entry,
    } = pod;
    let on = bridge
        .as_ref()
        .map(|bridge| format!(" on {}", bridge.name))
        .unwrap_or_default();
    let mac = mac.map(|mac| format!(", {mac}")).unwrap_or_default();
    let text = format!(
        "{address} is the pod at {} (index {}){on}{mac}, MTU {}",
        veth.name, veth.index, veth.mtu
    );
    let down = [Some(veth), bridge.as_ref()]
        .into_iter()
        .flatten()
        .find(|link| !link.up);
    if let Some(link) = down {
        return Step::fail(topic, format!("{text}; {} is down", link.name));
    }
    let known = status.and_then(|status| {
        status
            .fast
            .as_ref()?
            .pods
            .iter()
            .find(|known| known.index == veth.index)
    });
    let ways = entry.map(|entry| (entry.has(PodEntry::SENDS), entry.has(PodEntry::RECEIVES)));
    let parts = match ways {
        Some((true, false)) => "; mode fast leaves what it receives to the kernel",
        Some((false, true)) => "; mode fast leaves what it sends to the kernel",
        Some((false, false)) => "; mode fast leaves it alone",
        // Unless the agent says that, other modes have no entries either.
        None if known.is_some() => "; mode fast leaves it alone",
        Some((true, true)) | None => "",
    };
    let why = known
        .filter(|known| !known.reasons.is_empty())
        .map(|known| format!(": {}", known.reasons.join("; ")));
    let merged = known.and_then(|known| known.merged_reason.as_ref());
    let merged = merged
        .map(|reason| format!("; mode fast leaves merged packets for it to the kernel: {reason}"));
    Step::ok(
        topic,
        format!(
            "{text}{parts}{}{}",
            why.unwrap_or_default(),
            merged.unwrap_or_default()
        ),
    )
}
