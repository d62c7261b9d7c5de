//! Problems of peers as `status` lists them, whatever they are about.

use flannel_status::{LISTED, PeerStatus};

/// A line for each of the first [`LISTED`], and one with the number of all others, which ends with
/// `of_more`.
pub(super) fn lines<'a, T>(
    peers: impl Iterator<Item = (&'a PeerStatus, T)>,
    line: impl Fn(&PeerStatus, T) -> String,
    of_more: &str,
) -> Vec<String> {
    let all: Vec<_> = peers.collect();
    let more = all.len().saturating_sub(LISTED);
    let listed = all.into_iter().take(LISTED).map(|(peer, problem)| line(peer, problem));
    listed.chain((more > 0).then(|| format!("{more} more peers {of_more}"))).collect()
}

/// A peer by its Node, where that is known, and its subnet.
pub(super) fn name(peer: &PeerStatus) -> String {
    let node = peer.node.as_ref().map(|node| format!("{node} ")).unwrap_or_default();
    format!("peer {node}{}", peer.subnet)
}
