//! The last known state of each peer, as the devices reported it, for the status and the metrics.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use flannel_host::wireguard_key::PublicKey;
use flannel_netlink::WireguardPeerState;
use flannel_status::{PeerState, WireguardPeerStatus};
use flannel_store::{Peer, TunnelEnd};

/// A session ends so long after its handshake, by the protocol: a peer that is sent packets makes a
/// new one before.
pub(super) const SESSION: Duration = Duration::from_mins(3);

/// The known state of all peers. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SharedWireguardPeers(Arc<Mutex<BTreeMap<PublicKey, WireguardPeerStatus>>>);

impl SharedWireguardPeers {
    /// Takes in what a device says of its peers.
    pub fn read(&self, peers: &BTreeMap<PublicKey, WireguardPeerState>, now: SystemTime) {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, state) in peers {
            let entry = status(key, state, shared.get(key), now);
            shared.insert(*key, entry);
        }
    }

    /// A peer is gone.
    pub fn forget(&self, key: &PublicKey) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
    }

    /// Returns the known state of the device of a peer.
    pub fn of_peer(&self, peer: &Peer) -> Option<WireguardPeerStatus> {
        let Some(TunnelEnd::Wireguard(end)) = &peer.end else {
            return None;
        };
        self.of(&end.key)
    }

    /// Returns the known state of a peer.
    pub fn of(&self, key: &PublicKey) -> Option<WireguardPeerStatus> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(key)
            .cloned()
    }

    /// The number of peers of each state.
    pub fn states(&self) -> BTreeMap<PeerState, usize> {
        let mut states = BTreeMap::new();
        for peer in self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
        {
            *states.entry(peer.state).or_default() += 1;
        }
        states
    }
}

fn status(
    key: &PublicKey,
    state: &WireguardPeerState,
    before: Option<&WireguardPeerStatus>,
    now: SystemTime,
) -> WireguardPeerStatus {
    let has_sent = before.is_some_and(|before| state.sent > before.sent);
    // A peer that is sent nothing more is as it was.
    let was_unanswered = before.is_some_and(|before| before.state == PeerState::Unanswered);
    let by_handshake = match has_session(state, now) {
        true => PeerState::Session,
        false if has_sent || was_unanswered => PeerState::Unanswered,
        false => PeerState::Idle,
    };
    WireguardPeerStatus {
        public_key: key.to_string(),
        endpoint: state.peer.endpoint.map(|endpoint| endpoint.to_string()),
        last_handshake: state
            .last_handshake
            .and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok())
            .map(|since| since.as_secs()),
        received: state.received,
        sent: state.sent,
        state: by_handshake,
    }
}

/// Returns true if packets go both ways by a handshake that is still good.
pub fn has_session(state: &WireguardPeerState, now: SystemTime) -> bool {
    state
        .last_handshake
        .is_some_and(|at| now.duration_since(at).unwrap_or_default() < SESSION)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use flannel_netlink::WireguardPeer;

    use super::*;

    const KEY: PublicKey = PublicKey([1; 32]);

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    fn state(
        shared: &SharedWireguardPeers,
        now: u64,
        handshake: Option<u64>,
        sent: u64,
    ) -> PeerState {
        let peer = WireguardPeer {
            endpoint: None,
            allowed: BTreeSet::new(),
            preshared_key: None,
            keepalive: None,
        };
        let state = WireguardPeerState {
            peer,
            last_handshake: handshake.map(at),
            received: 0,
            sent,
        };
        shared.read(&BTreeMap::from([(KEY, state)]), at(now));
        shared.of(&KEY).expect("a peer").state
    }

    #[test]
    fn a_peer_that_is_sent_packets_and_makes_no_handshake_does_not_answer() {
        let shared = SharedWireguardPeers::default();
        assert_eq!(
            state(&shared, 0, None, 148),
            PeerState::Idle,
            "one look is not enough"
        );
        assert_eq!(state(&shared, 30, None, 296), PeerState::Unanswered);
        assert_eq!(
            state(&shared, 60, None, 296),
            PeerState::Unanswered,
            "nothing more was sent"
        );
        assert_eq!(state(&shared, 90, Some(80), 500), PeerState::Session);
        assert_eq!(state(&shared, 300, Some(80), 500), PeerState::Idle);
        assert_eq!(state(&shared, 330, Some(80), 648), PeerState::Unanswered);
        assert_eq!(
            shared.states(),
            BTreeMap::from([(PeerState::Unanswered, 1)])
        );
        shared.forget(&KEY);
        assert_eq!(shared.of(&KEY), None);
    }
}
