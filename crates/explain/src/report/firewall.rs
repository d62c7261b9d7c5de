//! The step about rules that may drop the packet. They are not followed one by one, so what they do
//! to it is open.

use flannel_host::words::first;

use super::step::Step;
use crate::{
    location::Location,
    snapshot::{FirewallAnswer, Snapshot},
};

/// Chains that are named.
const NAMED: usize = 3;

/// Returns the step; none for a packet that no rule of this kind concerns.
pub(super) fn step(facts: &Snapshot) -> Option<Step> {
    let FirewallAnswer {
        closed,
        at_port,
        errors,
    } = facts.firewall.as_ref()?;
    if !closed.is_empty() && super::trace::has_passed(facts) {
        let text = format!(
            "forwarded packets are dropped in {}, and those of this flow passed",
            first(closed, NAMED)
        );
        return Some(Step::ok("firewall", text));
    }
    if !closed.is_empty() {
        return Some(Step::unknown(
            "firewall",
            format!(
                "forwarded packets are dropped in {}: packets pass only if a rule in front accepts \
                 them. A running \
                 agent makes such rules (FLANNEL-FWD) behind those of others, unless \
                 --iptables-forward-rules=false",
                first(closed, NAMED)
            ),
        ));
    }
    if !at_port.is_empty() && is_tunnelled(facts) {
        return Some(Step::unknown(
            "firewall",
            format!(
                "a rule drops packets of the tunnel's UDP port in {}: packets pass only if it \
                 spares the peer",
                first(at_port, NAMED)
            ),
        ));
    }
    let error = errors.first()?;
    Some(Step::warn(
        "firewall",
        format!("not all rules could be read: {error}"),
    ))
}

/// True if the packet travels in a datagram of the tunnel.
fn is_tunnelled(facts: &Snapshot) -> bool {
    let is_peer = |place: &Location| {
        matches!(
            place,
            Location::Peer(peer) if !super::kernel::is_direct(&peer.entry),
        )
    };
    is_peer(&facts.source) || is_peer(&facts.destination)
}
