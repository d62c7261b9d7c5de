//! The work on the peers of one family, some at a time.

use flannel_backend_api::{Backend, Desired, Node, PeerWay, underlay::Underlay};
use flannel_netlink::Netlink;
use flannel_store::Peer;

use super::{
    peers::{Peers, Turn},
    uplinks::UplinkSet,
};

/// Peers worked in at once. Small enough that what the kernel announces of them fits into the event
/// socket's buffer many times over.
const TURN: usize = 1024;

/// The change of the desired state that a turn asks for.
pub(super) struct TurnChange {
    /// The desired state of the peers of the turn before it.
    pub(super) before: Desired,
    /// Their desired state now.
    pub(super) after: Desired,
}

/// The peers of one family, and the turn that is being worked in.
pub(super) struct Turns {
    pub(super) peers: Peers,
    uplinks: UplinkSet,
    /// True while the former desired state is discarded and some peers are not yet in the new one.
    rebuilding: bool,
    /// The peers of the turn: before, and now.
    current: (Vec<PeerWay>, Vec<PeerWay>),
}

impl Turns {
    pub(super) fn new(peers: Peers) -> Self {
        Self {
            peers,
            uplinks: UplinkSet::default(),
            rebuilding: false,
            current: (Vec::new(), Vec::new()),
        }
    }

    /// Takes in that the desired state was discarded: every peer has to be worked in again.
    pub(super) fn rebuild(&mut self) {
        self.peers.mark_all_stale();
        self.rebuilding = true;
    }

    /// Works the next peers out: their paths, and what they want instead of what they wanted.
    pub(super) async fn next(
        &mut self,
        netlink: &Netlink,
        underlay: &mut Underlay,
        backend: &dyn Backend,
        node: &Node,
    ) -> TurnChange {
        let Turn { before, after } = self.peers.turn(TURN);
        let addresses = after.iter().map(|peer| peer.public_ip).collect();
        underlay.ask(netlink, node.source, addresses).await;
        let way = |peer: Peer| PeerWay {
            way: backend.way(node, underlay, &peer),
            peer,
        };
        let mut ways: Vec<PeerWay> = after.into_iter().map(way).collect();
        self.uplinks.share(&mut ways);
        let change = TurnChange {
            before: if self.rebuilding {
                Desired::default()
            } else {
                backend.desired(node, &before)
            },
            after: backend.desired(node, &ways),
        };
        self.uplinks.change(&before, &ways);
        self.current = (before, ways);
        self.rebuilding &= !self.peers.is_settled();
        change
    }

    /// Shows the peers as the work on them left them.
    pub(super) fn show(&mut self) {
        let (before, ways) = std::mem::take(&mut self.current);
        self.peers.finish(&before, ways);
    }

    /// Returns true if every peer has those of its entries that the kernel accepted.
    pub(super) fn is_complete(&self) -> bool {
        self.peers.is_complete() && !self.rebuilding
    }

    /// The devices by which packets leave to peers.
    pub(super) fn uplinks(&self) -> impl Iterator<Item = (u32, &str)> {
        self.uplinks.devices()
    }

    /// A device by which packets leave to a peer that no packets leave to by `external`.
    pub(super) fn way_past(&self, external: u32) -> Option<String> {
        self.uplinks.way_past(external)
    }
}
