//! Who talks to whom.

use std::net::IpAddr;

use flannel_common::fast::PodEntry;

use super::Step;
use crate::explain::{
    facts::Facts,
    place::{Place, Pod},
};

const TOPICS: [&str; 2] = ["source", "destination"];

/// A step for each end, and one where neither is this node's business.
pub(super) fn steps(facts: &Facts) -> Vec<Step> {
    let ends = [(&facts.source, facts.question.source), (&facts.destination, facts.question.destination)];
    let mut steps: Vec<Step> =
        TOPICS.into_iter().zip(ends).map(|(topic, (place, address))| step(topic, place, address)).collect();
    if let (Place::Peer(peer), Place::Peer(_) | Place::Unleased(_) | Place::Outside) =
        (&facts.source, &facts.destination)
    {
        let text = format!("neither end is on this node: ask on the node {}, where the packet begins", peer.entry.vtep);
        steps.push(Step::fail("node", text));
    }
    steps
}

fn step(topic: &'static str, place: &Place, address: IpAddr) -> Step {
    match place {
        Place::Pod(pod) => self::pod(topic, pod, address),
        Place::Node(device) => Step::ok(topic, format!("{address} is an address of this node, on {device}")),
        Place::Vacant(subnet) => Step::fail(
            topic,
            format!(
                "{address} is in this node's own subnet {subnet}, and no pod here has it: it is gone, or not up yet"
            ),
        ),
        Place::Peer(peer) => {
            Step::ok(topic, format!("{address} is in {}, the subnet of the node {}", peer.subnet, peer.entry.vtep))
        }
        Place::Unleased(subnet) => Step::fail(
            topic,
            format!(
                "{address} is in {subnet}, and no node is known to have that subnet: look for its lease in the store, and at \
                 `refused lease` in `flannel-agent status`"
            ),
        ),
        Place::Outside => Step::ok(
            topic,
            format!(
                "{address} is neither in the pod network nor on this node. Of a Service, ask about a pod behind it"
            ),
        ),
    }
}

fn pod(topic: &'static str, pod: &Pod, address: IpAddr) -> Step {
    let Pod { veth, bridge, mac, entry } = pod;
    let on = bridge.as_ref().map(|bridge| format!(" on {}", bridge.name)).unwrap_or_default();
    let mac = mac.map(|mac| format!(", {mac}")).unwrap_or_default();
    let text = format!("{address} is the pod at {} (index {}){on}{mac}, MTU {}", veth.name, veth.index, veth.mtu);
    let down = [Some(veth), bridge.as_ref()].into_iter().flatten().find(|link| !link.up);
    match (down, entry) {
        (Some(link), _) => Step::fail(topic, format!("{text}; {} is down", link.name)),
        (None, Some(entry)) => {
            let parts = match (entry.has(PodEntry::SENDS), entry.has(PodEntry::RECEIVES)) {
                (true, true) => "",
                (true, false) => "; mode fast leaves what it receives to the kernel",
                (false, true) => "; mode fast leaves what it sends to the kernel",
                (false, false) => "; mode fast leaves it alone",
            };
            Step::ok(topic, format!("{text}{parts}"))
        }
        (None, None) => Step::ok(topic, text),
    }
}
