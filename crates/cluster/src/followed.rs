//! The nodes of a cluster, each followed by a task as long as it has the same agent.

use std::{collections::BTreeMap, time::Duration};

use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::sleep,
};

use super::{
    client::ClusterClient,
    error::ClusterError,
    exec::Container,
    members::{AgentPods, ClusterNode},
};

/// The nodes that the API server lists.
pub type NodeListing = Result<Vec<ClusterNode>, ClusterError>;

/// The nodes, with the state `S` of each.
pub struct FollowedNodes<S> {
    client: ClusterClient,
    pods: AgentPods,
    nodes: BTreeMap<String, FollowedNode<S>>,
    /// The listings after the first.
    listings: mpsc::Receiver<NodeListing>,
    /// All end when this is dropped.
    tasks: JoinSet<()>,
}

/// One node.
struct FollowedNode<S> {
    /// The container of its agent, or the reason why there is none.
    agent: Result<Container, String>,
    state: S,
    task: Option<AbortHandle>,
}

impl<S> Drop for FollowedNode<S> {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl<S> FollowedNodes<S> {
    /// Lists the nodes, now and at intervals. Returns the first listing, of which no node is
    /// followed yet.
    pub async fn list(
        client: ClusterClient,
        pods: AgentPods,
        period: Duration,
    ) -> Result<(Self, Vec<ClusterNode>), ClusterError> {
        let members = client.nodes(&pods).await?;
        let (sender, listings) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        tasks.spawn(list(client.clone(), pods.clone(), period, sender));
        Ok((
            Self {
                client,
                pods,
                nodes: BTreeMap::new(),
                listings,
                tasks,
            },
            members,
        ))
    }

    /// Waits for the next listing. A future that is dropped loses none.
    pub async fn listing(&mut self) -> Option<NodeListing> {
        self.listings.recv().await
    }

    /// The nodes by name.
    pub fn states(&self) -> impl Iterator<Item = (&str, &S)> {
        self.nodes
            .iter()
            .map(|(name, node)| (name.as_str(), &node.state))
    }

    /// The nodes by name, whose states may be changed.
    pub fn states_mut(&mut self) -> impl Iterator<Item = (&str, &mut S)> {
        self.nodes
            .iter_mut()
            .map(|(name, node)| (name.as_str(), &mut node.state))
    }

    /// Follows these nodes, and no others. Calls `follow` for one that is new, or whose agent has
    /// another container: with its name, and the container or the reason why there is none. The
    /// result is its state, and its task.
    pub fn update<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        members: &[ClusterNode],
        mut follow: impl FnMut(&str, &ClusterClient, &Result<Container, String>) -> (S, Option<F>),
    ) {
        // Tasks of nodes that have left.
        while self.tasks.try_join_next().is_some() {}
        self.nodes
            .retain(|name, _| members.iter().any(|member| member.name() == name));
        for member in members {
            let agent = member
                .running_agent(&self.pods)
                .map_err(|absence| absence.to_string());
            if self
                .nodes
                .get(member.name())
                .is_none_or(|node| node.agent != agent)
            {
                let (state, task) = follow(member.name(), &self.client, &agent);
                let task = task.map(|task| self.tasks.spawn(task));
                self.nodes.insert(
                    member.name().to_owned(),
                    FollowedNode { agent, state, task },
                );
            }
        }
    }
}

/// Lists the nodes at intervals, until the receiver is dropped.
async fn list(
    client: ClusterClient,
    pods: AgentPods,
    period: Duration,
    listings: mpsc::Sender<NodeListing>,
) {
    loop {
        sleep(period).await;
        if listings.send(client.nodes(&pods).await).await.is_err() {
            return;
        }
    }
}
