//! The step about the state behind a route.

use flannel_backends::carrier::{Carrier, CarryingPeer, IpsecWay};
use flannel_host::duration;

use super::{kernel::REPAIR, step::Step};
use crate::snapshot::Snapshot;

/// Returns the step; none where only a route carries the packet.
pub(super) fn step(facts: &Snapshot) -> Option<Step> {
    let destination = facts.onward.address;
    Some(match facts.carrier.as_ref()? {
        Carrier::Wireguard {
            device,
            peer: Err(error),
        } => Step::unknown(
            "wireguard",
            format!("the peers of {device} cannot be read: {error}"),
        ),
        Carrier::Wireguard {
            device,
            peer: Ok(None),
        } => Step::fail(
            "wireguard",
            format!("no peer of {device} has {destination}: packets end there; {REPAIR}"),
        ),
        Carrier::Wireguard {
            device,
            peer: Ok(Some(peer)),
        } => wireguard(device, peer),
        Carrier::Process {
            device,
            is_served: true,
        } => Step::ok(
            "process",
            format!("a process carries the packets of {device}"),
        ),
        Carrier::Process {
            device,
            is_served: false,
        } => Step::fail(
            "process",
            format!("no process has {device} open, so its packets end there; {REPAIR}"),
        ),
        Carrier::Ipsec { policy: None } => Step::fail(
            "policy",
            format!(
                "no IPsec policy covers {destination}: packets leave without a tunnel; {REPAIR}"
            ),
        ),
        Carrier::Ipsec {
            policy: Some(IpsecWay { to, has_keys: true }),
        } => Step::ok("policy", format!("packets are encrypted for the node {to}")),
        Carrier::Ipsec {
            policy:
                Some(IpsecWay {
                    to,
                    has_keys: false,
                }),
        } => Step::fail(
            "policy",
            format!(
                "there are no keys with the node {to}, so the kernel drops packets to it: see the \
                 line ipsec of `flannel-agent status`"
            ),
        ),
    })
}

fn wireguard(device: &str, peer: &CarryingPeer) -> Step {
    let CarryingPeer {
        key,
        endpoint,
        handshake_age,
        sent,
    } = peer;
    let text = format!("{device} sends it to the peer {key} at {endpoint}");
    match handshake_age {
        _ if endpoint.is_empty() => Step::fail(
            "wireguard",
            format!("the peer {key} of {device} has no address; {REPAIR}"),
        ),
        Some(age) => Step::ok(
            "wireguard",
            format!("{text}, last handshake {} ago", duration::format(*age)),
        ),
        None if *sent > 0 => Step::warn(
            "wireguard",
            format!(
                "{text}, which never made a handshake: a firewall may drop UDP there, or its key \
                 or port is another"
            ),
        ),
        None => Step::ok(
            "wireguard",
            format!("{text}; the first packet makes the handshake"),
        ),
    }
}
