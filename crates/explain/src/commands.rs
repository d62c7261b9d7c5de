//! The route to a peer of the backend extension. Its commands make a route, or routing rules,
//! policies or a router elsewhere, so no device is known by which the packet has to leave.

use std::path::Path;

use flannel_backends::unmanaged::EXTENSION;
use flannel_netlink::{MatchedRoute, NetlinkError};
use ipnet::IpNet;

use super::{
    location::{Context, Location},
    snapshot::{CommandsRoute, Snapshot},
};

/// Reads the route of a packet to a peer; `None` with another backend, or if the kernel does not
/// say.
pub(super) async fn read(
    around: &Context<'_>,
    facts: &Snapshot,
    state_dir: &Path,
) -> Option<CommandsRoute> {
    let Location::Peer(peer) = &facts.destination else {
        return None;
    };
    if !peer.entry.is_routed() || !is_behind_commands(facts, peer.subnet, state_dir) {
        return None;
    }
    let entry = entry(around, facts).await?.ok()?;
    Some(CommandsRoute {
        is_default: entry.is_default(),
    })
}

/// Without an agent the record of the commands names the peers.
fn is_behind_commands(facts: &Snapshot, subnet: IpNet, state_dir: &Path) -> bool {
    let reported = facts.status.iter().flat_map(|status| &status.peers);
    let subnet = subnet.to_string();
    match reported.into_iter().find(|peer| peer.subnet == subnet) {
        Some(peer) => peer.way == EXTENSION.name,
        None => flannel_extension::recorded(state_dir).is_ok_and(|(peers, _)| {
            peers
                .iter()
                .any(|peer| peer.subnets().split(" and ").any(|known| known == subnet))
        }),
    }
}

async fn entry(
    around: &Context<'_>,
    facts: &Snapshot,
) -> Option<Result<MatchedRoute, NetlinkError>> {
    let (source, destination) = (facts.question.source, facts.onward.address);
    match &facts.source {
        Location::Pod(pod) => Some(
            around
                .netlink
                .forwarding_entry(destination, source, pod.routed_by())
                .await,
        ),
        Location::Node(_) => Some(around.netlink.entry_from_here(destination).await),
        _ => None,
    }
}
