//! The state that tasks of the agent keep up to date, for the status and the metrics.

use flannel_backends::{
    ipsec::SharedIpsecStatus, udp::SharedUdpStatus, wireguard::SharedWireguardPeers,
};
use flannel_cloud::SharedCloudStatus;
use flannel_echo::SharedEchoes;
use flannel_extension::SharedExtensionStatus;
use flannel_host::clock;
use flannel_reconcile::SharedPeers;
use flannel_status::{PeerState, ProblemCode, Status};

use crate::listener_state::SharedListeners;

/// The shared states. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct SharedState {
    /// The peers and the ways to them.
    pub peers: SharedPeers,
    /// Their answers to echo requests.
    pub echoes: SharedEchoes,
    /// The peers of WireGuard devices.
    pub wireguard: SharedWireguardPeers,
    /// The commands of the backend extension.
    pub extension: SharedExtensionStatus,
    /// The routes in the cloud.
    pub cloud: SharedCloudStatus,
    /// The peers of the backend ipsec.
    pub ipsec: SharedIpsecStatus,
    /// The process of the backend udp.
    pub udp: SharedUdpStatus,
    /// The listeners for health checks and metrics.
    pub listeners: SharedListeners,
}

impl SharedState {
    /// Adds the parts of the status that tasks keep, but for the peers, of which there may be
    /// thousands.
    pub fn add_to(&self, status: &mut Status) {
        status.echo = Some(self.echoes.status());
        status.extension = self.extension.status();
        status.cloud = self.cloud.status();
        status.udp = self.udp.status();
        status.ipsec = self.ipsec.status();
        status.listeners = self.listeners.status();
    }

    /// The published status with these parts, and the problems that are in them.
    pub fn complete(&self, published: &Status) -> Status {
        let mut status = published.clone();
        self.add_to(&mut status);
        status.find_problems(clock::unix_now());
        status
    }

    /// The number of problems of each kind that peers have, from counts that tasks keep: thousands
    /// of peers are not listed for it.
    pub fn peer_problems(&self) -> [(ProblemCode, usize); 3] {
        let echoes = self.echoes.counts();
        let states = echoes.iter().flat_map(|counts| &counts.states);
        let silent = states
            .filter(|(state, _)| state.is_problem())
            .map(|(_, peers)| peers)
            .sum();
        let unanswered = self
            .wireguard
            .states()
            .get(&PeerState::Unanswered)
            .copied()
            .unwrap_or_default();
        [
            (ProblemCode::SilentPeer, silent),
            (ProblemCode::NoHandshake, unanswered),
            (ProblemCode::NoAssociations, self.ipsec.refused()),
        ]
    }
}
