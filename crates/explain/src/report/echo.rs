//! The step about the answers of the node at the other end to echo requests.

use flannel_host::duration;
use flannel_status::{EchoState, PeerEchoStatus};

use super::{commands, step::Step};
use crate::{location::Location, snapshot::Snapshot};

/// Returns what the running agent knows of the peer at one end; `None` without an agent or a peer.
pub(super) fn step(facts: &Snapshot) -> Option<Step> {
    let ((Location::Peer(peer), _) | (_, Location::Peer(peer))) =
        (&facts.destination, &facts.source)
    else {
        return None;
    };
    let subnet = peer.subnet.to_string();
    let reported = facts
        .status
        .as_ref()?
        .peers
        .iter()
        .find(|reported| reported.subnet == subnet)?;
    let PeerEchoStatus {
        state,
        last_reply,
        address,
        ..
    } = reported.echo.as_ref()?;
    let node = &reported.public_ip;
    if let Some(step) = commands::echo_of_node(reported) {
        return Some(step);
    }
    match (state, last_reply) {
        (EchoState::Answering, _) => Some(Step::ok(
            "echo",
            format!("the node {node} answers the agent's echo requests to {address}"),
        )),
        (EchoState::Silent, Some(at)) => {
            let silence = duration::format(facts.now_unix.saturating_sub(*at));
            let text = format!(
                "the node {node} has not answered echo requests to {address} for {silence}: it is \
                 down, or packets to \
                 it or from it are lost on the way. Run `flannel-agent explain` and `flannel-agent \
                 check` there"
            );
            Some(Step::fail("echo", text))
        }
        (EchoState::Silent | EchoState::Never, _) => {
            let text = format!(
                "the node {node} has not answered an echo request to {address} since the agent \
                 started: it is down, \
                 packets are lost on the way, or a firewall drops ICMP"
            );
            Some(Step::unknown("echo", text))
        }
        (EchoState::Unknown, _) => None,
    }
}
