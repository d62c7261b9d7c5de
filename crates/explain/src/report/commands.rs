//! The steps that are not known where commands of the backend extension carry packets. Pure.

use std::net::IpAddr;

use flannel_backends::unmanaged::EXTENSION;
use flannel_status::{EchoState, PeerStatus};
use ipnet::IpNet;

use super::step::Step;
use crate::{
    location::Location,
    snapshot::{CommandsRoute, Snapshot},
};

/// Returns true if packets to the peer follow the default route.
pub(super) fn is_by_default_route(facts: &Snapshot) -> bool {
    matches!(facts.commands, Some(CommandsRoute { is_default: true }))
}

/// The route of a packet that follows the default route; `None` if it follows another one.
pub(super) fn default_route(facts: &Snapshot, by: &str) -> Option<Step> {
    if !is_by_default_route(facts) {
        return None;
    }
    let Location::Peer(peer) = &facts.destination else {
        return None;
    };
    let destination = facts.onward.address;
    let subnet = peer.subnet.to_string();
    let mut reported = facts.status.iter().flat_map(|status| &status.peers);
    if reported.any(|known| known.subnet == subnet && pods_answer(known) == Some(true)) {
        return Some(Step::ok(
            "route",
            format!("{destination} is routed {by}, the default route, and {subnet} answers"),
        ));
    }
    let text = format!(
        "{destination} is routed {by}, and that is the default route: what SubnetAddCommand made \
         for {subnet} may be \
         gone. Compare with `ip route get {destination}` on a node that reaches it, and run the \
         command again"
    );
    Some(Step::unknown("route", text))
}

/// The step for a peer of which only the node answers; `None` for other answers.
pub(super) fn echo_of_node(peer: &PeerStatus) -> Option<Step> {
    if pods_answer(peer)? {
        return None;
    }
    let PeerStatus {
        public_ip, subnet, ..
    } = peer;
    let text = format!(
        "the node {public_ip} answers the agent's echo requests, and no address in {subnet} has \
         answered one since the \
         agent started: it is not known if what the commands made carries packets"
    );
    Some(Step::unknown("echo", text))
}

/// Returns true if an address in the peer's subnet answers, and false if only its node does; `None`
/// for a peer that does not answer, and with another backend.
fn pods_answer(peer: &PeerStatus) -> Option<bool> {
    let echo = peer
        .echo
        .as_ref()
        .filter(|echo| echo.state == EchoState::Answering)?;
    let (subnet, address): (IpNet, IpAddr) =
        (peer.subnet.parse().ok()?, echo.address.parse().ok()?);
    (peer.way == EXTENSION.name).then(|| subnet.contains(&address))
}
