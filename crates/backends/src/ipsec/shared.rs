//! The state of the tunnels, for the status and the metrics.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use flannel_status::{IpsecPeerState, IpsecPeerStatus, IpsecStatus};
use flannel_store::Peer;
use ipnet::{IpNet, Ipv4Net};

/// The known state. Clones share it. Without the backend ipsec it is empty.
#[derive(Clone, Debug, Default)]
pub struct SharedIpsecStatus(Arc<Mutex<KnownTunnels>>);

#[derive(Debug, Default)]
struct KnownTunnels {
    process: Option<IpsecStatus>,
    peers: BTreeMap<Ipv4Net, IpsecPeerStatus>,
}

impl SharedIpsecStatus {
    pub(super) fn set_process(&self, status: IpsecStatus) {
        self.lock().process = Some(status);
    }

    pub(super) fn set_peers(&self, peers: BTreeMap<Ipv4Net, IpsecPeerStatus>) {
        self.lock().peers = peers;
    }

    /// Returns the state of the process; `None` where the backend is another.
    pub fn status(&self) -> Option<IpsecStatus> {
        self.lock().process.clone()
    }

    /// Returns the known state of the tunnel to a peer.
    pub fn of_peer(&self, peer: &Peer) -> Option<IpsecPeerStatus> {
        let IpNet::V4(subnet) = peer.subnet else {
            return None;
        };
        self.lock().peers.get(&subnet).cloned()
    }

    /// The number of peers of each state.
    pub fn states(&self) -> BTreeMap<IpsecPeerState, usize> {
        let mut states = BTreeMap::new();
        for peer in self.lock().peers.values() {
            *states.entry(peer.state).or_default() += 1;
        }
        states
    }

    /// The number of peers without associations, where the reason is known.
    pub fn refused(&self) -> usize {
        let is_refused = |peer: &&IpsecPeerStatus| {
            peer.state != IpsecPeerState::Installed && peer.error.is_some()
        };
        self.lock().peers.values().filter(is_refused).count()
    }

    fn lock(&self) -> MutexGuard<'_, KnownTunnels> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
