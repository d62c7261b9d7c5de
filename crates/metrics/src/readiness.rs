//! If the node is ready and its main loop alive, at the time of a request.

use std::time::Duration;

use flannel_status::{Severity, Status};
use tokio::sync::watch;

use crate::{pulse::Pulse, shared::SharedState};

/// A main loop that was not seen to go round for this long hangs. One round may reconcile thousands
/// of peers.
pub const STALE: Duration = Duration::from_secs(30);

/// A main loop that was not seen to go round for this long does not come back by itself.
const DEAD: Duration = Duration::from_mins(1);

/// The readiness of the node at the time of a request.
#[derive(Clone, Debug)]
pub struct Readiness {
    status: watch::Receiver<Status>,
    shared: SharedState,
    pulse: Pulse,
}

impl Readiness {
    /// Takes the readiness from the status, for as long as the pulse is fresh.
    pub fn new(status: watch::Receiver<Status>, shared: SharedState, pulse: Pulse) -> Self {
        Self {
            status,
            shared,
            pulse,
        }
    }

    /// Returns true if the node is ready and the main loop turns.
    pub fn is_ready(&self) -> bool {
        self.status.borrow().ready && self.pulse.age() < STALE
    }

    /// The answer of a node that is not ready, with the first problem that keeps it from being so.
    pub fn refusal(&self) -> String {
        const NOT_READY: &str = "flanneld is not ready yet";
        let status = self.with_problems();
        let problem = status
            .problems
            .iter()
            .find(|problem| problem.severity == Severity::Critical);
        problem.map_or_else(
            || NOT_READY.to_owned(),
            |problem| format!("{NOT_READY}: {}", problem.line()),
        )
    }

    /// The answer of a node that is ready, with its problems: some packets may be lost.
    pub fn consent(&self) -> String {
        const READY: &str = "flanneld is ready";
        let of_peers = self
            .shared
            .peer_problems()
            .into_iter()
            .filter(|(_, peers)| *peers > 0);
        let of_peers =
            of_peers.map(|(code, peers)| code.counted(u64::try_from(peers).unwrap_or(u64::MAX)));
        let problems: Vec<String> = self
            .with_problems()
            .problem_counts()
            .into_iter()
            .chain(of_peers)
            .collect();
        if problems.is_empty() {
            READY.to_owned()
        } else {
            format!("{READY}; problems: {}", problems.join(", "))
        }
    }

    /// The status with the problems that tasks know of, without those of peers.
    pub fn with_problems(&self) -> Status {
        self.shared.complete(&self.status.borrow())
    }

    /// Returns false if the main loop does not come back by itself.
    pub fn is_alive(&self) -> bool {
        self.pulse.age() < DEAD
    }

    /// The status as last published. To be held for a moment only: the main loop waits with the
    /// next one.
    pub fn status(&self) -> watch::Ref<'_, Status> {
        self.status.borrow()
    }

    /// Since the main loop was last seen to go round.
    pub fn silence(&self) -> Duration {
        self.pulse.age()
    }
}
