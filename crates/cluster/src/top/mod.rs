//! The busiest nodes, pairs and flows of a cluster, and the problems of its nodes, live.
//!
//! On each node one `flannel-agent top -o json` runs on ([`stream`]); only its last document is
//! kept. [`board`] makes one board of all documents, with the pairs and flows of [`merge`], and
//! [`view`] draws it; all are pure, as is [`names`]. The command owns terminal and keys.

pub mod board;
pub mod merge;
pub mod names;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod view;

use std::{sync::Arc, time::Duration};

use flannel_host::{clock::unix_now, error_chain::chain};
use tokio::{
    select,
    sync::{Notify, watch},
    time::{Instant, Interval, MissedTickBehavior, interval_at},
};

use self::{
    board::ClusterBoard,
    names::NodeNames,
    stream::{DocumentReader, StreamSettings, StreamState},
};
use super::{
    client::ClusterClient,
    error::ClusterError,
    followed::{FollowedNodes, NodeListing},
    lines::LineStream,
    members::AgentPods,
};

/// In addition to an interval, for the first documents of all nodes.
const FIRST: Duration = Duration::from_secs(5);

/// The nodes of a cluster, each followed.
pub struct Follower {
    settings: StreamSettings,
    nodes: FollowedNodes<watch::Receiver<StreamState>>,
    names: NodeNames,
    listing_error: Option<String>,
    changed: Arc<Notify>,
    ticks: Interval,
    /// The end of the wait for the first documents; none once it is over.
    first: Option<Instant>,
}

impl Follower {
    /// Lists the nodes and begins to follow them.
    pub async fn start(
        client: ClusterClient,
        pods: AgentPods,
        settings: StreamSettings,
    ) -> Result<Self, ClusterError> {
        let (nodes, members) = FollowedNodes::list(client, pods, settings.listing).await?;
        let start = Instant::now();
        let mut ticks = interval_at(start + settings.interval, settings.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut follower = Self {
            settings,
            nodes,
            names: NodeNames::default(),
            listing_error: None,
            changed: Arc::new(Notify::new()),
            ticks,
            first: Some(start + settings.interval + FIRST),
        };
        follower.update(Ok(members));
        Ok(follower)
    }

    /// Waits for the next board: the first comes as soon as each node has answered or does not
    /// answer, the others at intervals. A future that is dropped loses no state.
    pub async fn next(&mut self) -> ClusterBoard {
        loop {
            select! {
                Some(listing) = self.nodes.listing() => self.update(listing),
                () = self.changed.notified(), if self.first.is_some() => {
                    if !self.is_waiting() {
                        self.first = None;
                        self.ticks.reset();
                        return self.board();
                    }
                }
                _ = self.ticks.tick() => {
                    if self.first.is_none_or(|end| Instant::now() >= end || !self.is_waiting()) {
                        self.first = None;
                        return self.board();
                    }
                }
            }
        }
    }

    /// The board now.
    pub fn board(&self) -> ClusterBoard {
        let nodes: Vec<_> = self
            .nodes
            .states()
            .map(|(name, state)| (name.to_owned(), state.borrow().clone()))
            .collect();
        let board = ClusterBoard::new(&nodes, &self.names, self.settings.rows);
        ClusterBoard {
            time: unix_now(),
            listing_error: self.listing_error.clone(),
            ..board
        }
    }

    /// Returns true if the first document of a node is waited for.
    fn is_waiting(&self) -> bool {
        self.nodes
            .states()
            .any(|(_, state)| *state.borrow() == StreamState::Asked)
    }

    /// Follows the nodes of a listing, and no others.
    fn update(&mut self, listing: NodeListing) {
        let members = match listing {
            Ok(members) => members,
            Err(error) => return self.listing_error = Some(chain(&error)),
        };
        self.listing_error = None;
        self.names = NodeNames::new(&members);
        let Self {
            nodes,
            settings,
            changed,
            ..
        } = self;
        nodes.update(&members, |_, client, agent| {
            let asked = |_| StreamState::Asked;
            let (state, receiver) = watch::channel(
                agent
                    .as_ref()
                    .map_or_else(|reason| StreamState::Silent(reason.clone()), asked),
            );
            let task = agent.as_ref().ok().map(|container| {
                let (client, container) = (client.clone(), container.clone());
                let stream = LineStream {
                    client,
                    container,
                    command: settings.command(),
                    limits: settings.limits(),
                };
                stream.follow(DocumentReader {
                    rows: settings.rows,
                    state,
                    changed: changed.clone(),
                })
            });
            changed.notify_one();
            (receiver, task)
        });
    }
}
