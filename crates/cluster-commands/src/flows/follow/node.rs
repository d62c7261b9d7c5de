//! The lines of one node: events go into the queue, heartbeats into its state.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use flannel_cluster::lines::{LineReader, NoLines};
use flannel_node_commands::flows::{Heartbeat, RemoteLine};
use tokio::sync::{
    Notify,
    mpsc::{Sender, error::TrySendError},
    watch,
};

use super::print::ClusterFlowEvent;

/// The last that is known of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum FollowedNodeState {
    /// No line came yet.
    #[default]
    Asked,
    /// Lines come.
    Live(Heartbeat),
    /// No line comes.
    Ended(NoLines),
}

/// The counts of events and packets that are not shown.
#[derive(Debug, Default)]
pub(super) struct NotShown {
    /// Events that found the queue full.
    pub(super) left_out: AtomicU64,
    /// Packets that nodes report no event for.
    pub(super) missed: AtomicU64,
}

/// The reader of one node.
pub(super) struct EventReader {
    pub(super) node: Arc<str>,
    pub(super) events: Sender<ClusterFlowEvent>,
    pub(super) not_shown: Arc<NotShown>,
    /// Only the last state is kept.
    pub(super) state: watch::Sender<FollowedNodeState>,
    /// Notified when the state changes.
    pub(super) changed: Arc<Notify>,
}

impl EventReader {
    /// Publishes a state that differs from the last.
    fn publish(&self, state: FollowedNodeState) {
        let is_new = self.state.send_if_modified(|last| {
            let differs = *last != state;
            *last = state;
            differs
        });
        if is_new {
            self.changed.notify_one();
        }
    }

    /// Adds the packets that the node has missed since its last heartbeat. Its count begins with
    /// the command.
    fn add_missed(&self, missed: u64) {
        let before = match &*self.state.borrow() {
            FollowedNodeState::Live(last) if last.missed <= missed => last.missed,
            FollowedNodeState::Live(_) | FollowedNodeState::Asked | FollowedNodeState::Ended(_) => {
                0
            }
        };
        self.not_shown
            .missed
            .fetch_add(missed - before, Ordering::Relaxed);
    }
}

impl LineReader for EventReader {
    fn read(&mut self, line: &[u8]) -> Result<(), String> {
        match serde_json::from_slice(line).map_err(|error| error.to_string())? {
            RemoteLine::Heartbeat { heartbeat } => {
                self.add_missed(heartbeat.missed);
                self.publish(FollowedNodeState::Live(heartbeat));
            }
            RemoteLine::Event(event) => {
                let event = ClusterFlowEvent {
                    node: self.node.to_string(),
                    event: *event,
                };
                if let Err(TrySendError::Full(_)) = self.events.try_send(event) {
                    self.not_shown.left_out.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    fn stop(&mut self, reason: NoLines) {
        self.publish(FollowedNodeState::Ended(reason));
    }
}
