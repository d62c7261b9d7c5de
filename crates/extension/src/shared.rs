//! The state of the commands, for the status and the metrics.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flannel_status::{ExtensionStatus, UnroutedPeer};

/// Failures, and peers without a route, that are listed.
pub(super) const LISTED: usize = 100;

/// The known state. Clones share it. Without the backend extension it is empty.
#[derive(Clone, Debug, Default)]
pub struct SharedExtensionStatus(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    commands: Option<ExtensionStatus>,
    unrouted: Unrouted,
}

/// The peers to which no route leads that commands could have made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Unrouted {
    total: u64,
    first: Vec<UnroutedPeer>,
}

impl Unrouted {
    /// Counts a peer, and lists it if there is room.
    pub(super) fn push(&mut self, peer: impl FnOnce() -> UnroutedPeer) {
        self.total += 1;
        if self.first.len() < LISTED {
            self.first.push(peer());
        }
    }
}

impl SharedExtensionStatus {
    pub(super) fn set_commands(&self, status: ExtensionStatus) {
        self.lock().commands = Some(status);
    }

    pub(super) fn set_unrouted(&self, unrouted: Unrouted) {
        self.lock().unrouted = unrouted;
    }

    /// Returns the state; `None` where the backend is another.
    pub fn status(&self) -> Option<ExtensionStatus> {
        let known = self.lock();
        let Unrouted { total, first } = known.unrouted.clone();
        let commands = known.commands.clone()?;
        Some(ExtensionStatus {
            unrouted: total,
            unrouted_peers: first,
            ..commands
        })
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
