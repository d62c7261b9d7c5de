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

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use flannel_host::{clock::unix_now, error_chain::chain};
use tokio::{
    select,
    sync::{Notify, mpsc, watch},
    task::{AbortHandle, JoinSet},
    time::{Instant, Interval, MissedTickBehavior, interval_at, sleep},
};

use self::{
    board::ClusterBoard,
    names::NodeNames,
    stream::{NodeStream, StreamSettings, StreamState},
};
use super::{
    client::ClusterClient,
    error::ClusterError,
    exec::Container,
    members::{AgentPods, ClusterNode},
};

/// In addition to an interval, for the first documents of all nodes.
const FIRST: Duration = Duration::from_secs(5);

type Listing = Result<Vec<ClusterNode>, ClusterError>;

/// The nodes of a cluster, each followed.
pub struct Follower {
    client: ClusterClient,
    pods: AgentPods,
    settings: StreamSettings,
    nodes: BTreeMap<String, FollowedNode>,
    names: NodeNames,
    /// The listings after the first.
    listings: mpsc::Receiver<Listing>,
    listing_error: Option<String>,
    changed: Arc<Notify>,
    ticks: Interval,
    /// The end of the wait for the first documents; none once it is over.
    first: Option<Instant>,
    /// All end when this is dropped.
    tasks: JoinSet<()>,
}

/// One node.
struct FollowedNode {
    /// The container of its agent, or the reason why there is none.
    agent: Result<Container, String>,
    state: watch::Receiver<StreamState>,
    task: Option<AbortHandle>,
}

impl Drop for FollowedNode {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Follower {
    /// Lists the nodes and begins to follow them.
    pub async fn start(client: ClusterClient, pods: AgentPods, settings: StreamSettings) -> Result<Self, ClusterError> {
        let members = client.nodes(&pods).await?;
        let (sender, listings) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        tasks.spawn(list(client.clone(), pods.clone(), settings.listing, sender));
        let start = Instant::now();
        let mut ticks = interval_at(start + settings.interval, settings.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut follower = Self {
            client,
            pods,
            settings,
            nodes: BTreeMap::new(),
            names: NodeNames::default(),
            listings,
            listing_error: None,
            changed: Arc::new(Notify::new()),
            ticks,
            first: Some(start + settings.interval + FIRST),
            tasks,
        };
        follower.update(Ok(members));
        Ok(follower)
    }

    /// Waits for the next board: the first comes as soon as each node has answered or does not
    /// answer, the others at intervals. A future that is dropped loses no state.
    pub async fn next(&mut self) -> ClusterBoard {
        loop {
            select! {
                Some(listing) = self.listings.recv() => self.update(listing),
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
        let nodes: Vec<_> = self.nodes.iter().map(|(name, node)| (name.clone(), node.state.borrow().clone())).collect();
        let board = ClusterBoard::new(&nodes, &self.names, self.settings.rows);
        ClusterBoard { time: unix_now(), listing_error: self.listing_error.clone(), ..board }
    }

    /// Returns true if the first document of a node is waited for.
    fn is_waiting(&self) -> bool {
        self.nodes.values().any(|node| *node.state.borrow() == StreamState::Asked)
    }

    /// Follows the nodes of a listing, and no others. A node whose agent has another pod is
    /// followed again.
    fn update(&mut self, listing: Listing) {
        // Tasks of nodes that have left.
        while self.tasks.try_join_next().is_some() {}
        let members = match listing {
            Ok(members) => members,
            Err(error) => return self.listing_error = Some(chain(&error)),
        };
        self.listing_error = None;
        self.names = NodeNames::new(&members);
        self.nodes.retain(|name, _| members.iter().any(|member| member.name() == name));
        for member in &members {
            let agent = member.running_agent(&self.pods).map_err(|absence| absence.to_string());
            if self.nodes.get(member.name()).is_none_or(|node| node.agent != agent) {
                let node = self.follow(agent);
                self.nodes.insert(member.name().to_owned(), node);
            }
        }
    }

    /// Follows a node with this agent.
    fn follow(&mut self, agent: Result<Container, String>) -> FollowedNode {
        let initial = agent.as_ref().map_or_else(|reason| StreamState::Silent(reason.clone()), |_| StreamState::Asked);
        let (state, receiver) = watch::channel(initial);
        let task = agent.as_ref().ok().map(|container| {
            let stream = NodeStream {
                client: self.client.clone(),
                container: container.clone(),
                settings: self.settings,
                state,
                changed: self.changed.clone(),
            };
            self.tasks.spawn(stream.follow())
        });
        self.changed.notify_one();
        FollowedNode { agent, state: receiver, task }
    }
}

/// Lists the nodes at intervals, until the receiver is dropped.
async fn list(client: ClusterClient, pods: AgentPods, period: Duration, listings: mpsc::Sender<Listing>) {
    loop {
        sleep(period).await;
        if listings.send(client.nodes(&pods).await).await.is_err() {
            return;
        }
    }
}
