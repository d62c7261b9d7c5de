//! Kubernetes as a [`Source`]: all Nodes by one watch, our own through [`Holder`], our condition by
//! [`Condition`]. Where the backend has no peers, the watch covers only our own Node.
//!
//! A list in pages, then [the watch](https://kubernetes.io/docs/reference/using-api/api-concepts/)
//! from the list's version. A position is no longer valid when it is compacted away, or when the
//! server went back in its history. A restarted server usually has no changes from before its
//! restart. That does not count as an outage, and costs one listing without delay.
//!
//! Nodes change every few seconds without a change of their lease. The entries already reported are
//! kept, and a change that leads to the same entry is not reported.
//!
//! `kube::runtime::watcher` (5.0) is not used. A pruned type would keep its memory bounded as well,
//! but:
//!
//! * It adopts each version that arrives, older ones too, so a server that was restored from a
//!   backup is not noticed.
//! * It cannot be started at a version. After a refused token or a dead connection the client is
//!   made again, and each node would list all Nodes.
//! * A version that is refused with status 410 before the stream begins is requested forever.
//! * A change that cannot be read is passed over, and the entry stays outdated until its next
//!   change.
//! * Silence is noticed after the duration of a whole watch, by a clock that stands still while the
//!   machine is suspended.

use std::{collections::BTreeMap, sync::Arc};

use tracing::debug;

use super::{
    condition::Condition,
    entry::{Annotations, Families, entry_of},
    error::{KubeError, Problem},
    listing::{NodeListing, Scope, list},
    manager::KubeManager,
    position::Position,
    record::NodeRecord,
    renewal::Holder,
    settings::settings,
    stream::{Change, WatchMessage, WatchStream},
};
use crate::{
    Entry, LeaseAttrs, LeaseRequest, StoreEvent,
    backoff::until,
    kube::connection::requests::{self, ListFrom},
    watcher::{EventSender, Gone, Listing, Recovery, Source, Verdict},
};

const WATCHING: &str = "watching the nodes";

/// The Nodes of a cluster.
pub(super) struct KubeSource {
    manager: KubeManager,
    scope: Scope,
    holder: Holder,
    condition: Condition,
    /// The state of the Nodes that the next list is to have.
    from: ListFrom,
    /// The entries reported of other Nodes, by name.
    reported: BTreeMap<Arc<str>, Arc<Entry>>,
}

/// Something to do at its time.
pub(super) enum NodeTask {
    /// Write our annotations.
    Annotations,
    /// Write our condition.
    Condition,
}

impl KubeSource {
    pub(super) fn new(mut manager: KubeManager, own: String, request: LeaseRequest) -> Self {
        let liveness = manager.client.liveness();
        let LeaseRequest { config, .. } = &request;
        let peers = config.backend.properties().has_peers;
        Self {
            scope: Scope {
                own,
                peers,
                families: Families::of(config),
            },
            holder: Holder::new(&manager, request),
            condition: Condition::new(manager.available.take(), liveness),
            manager,
            from: ListFrom::Cache,
            reported: BTreeMap::new(),
        }
    }

    /// The settings of our Node, if they are others than those last reported.
    fn see_settings(&mut self, node: &NodeRecord) -> Option<StoreEvent> {
        let now = settings(&Annotations {
            node,
            prefix: &self.manager.client.options().prefix,
        });
        let before = std::mem::replace(&mut self.manager.settings, now.clone());
        (before != now).then_some(StoreEvent::Settings(now))
    }

    fn see_peer(&mut self, node: &NodeRecord) -> Vec<StoreEvent> {
        let Some(entry) = entry_of(
            node,
            &self.manager.client.options().prefix,
            self.scope.families,
        ) else {
            return self.forget_peer(&node.name);
        };
        if self
            .reported
            .get(&entry.name)
            .is_some_and(|reported| **reported == entry)
        {
            return Vec::new();
        }
        let entry = Arc::new(entry);
        self.reported
            .insert(Arc::clone(&entry.name), Arc::clone(&entry));
        vec![StoreEvent::Put(entry)]
    }

    fn forget_peer(&mut self, name: &str) -> Vec<StoreEvent> {
        self.reported
            .remove(name)
            .map(|entry| StoreEvent::Delete {
                name: Arc::clone(&entry.name),
            })
            .into_iter()
            .collect()
    }
}

impl Source for KubeSource {
    type Position = Position;
    type Stream = WatchStream<NodeRecord>;
    type Changes = Change<NodeRecord>;
    type Own = Option<NodeRecord>;
    type Task = NodeTask;
    type Error = KubeError;

    const NAME: &'static str = "the API server";
    const OBJECTS: &'static str = "the nodes";
    const CONFIRMS_WATCHES: bool = false;

    async fn list(&mut self) -> Result<Listing<Self>, KubeError> {
        let result = list(&mut self.manager, &self.scope, &self.from).await;
        self.from = match &result {
            Ok(listing) => listing.position.list_from(),
            // A cache that does not get there: the store was restored from a backup, or changes do
            // not reach the server.
            Err(error) if error.is_too_new() => ListFrom::Store,
            Err(_) => self.from.clone(),
        };
        let NodeListing {
            entries,
            own,
            position,
        } = result?;
        self.reported = entries
            .iter()
            .map(|entry| (Arc::clone(&entry.name), Arc::clone(entry)))
            .collect();
        Ok(Listing {
            entries,
            own,
            position,
        })
    }

    async fn open(&mut self, position: &Position) -> Result<WatchStream<NodeRecord>, KubeError> {
        let request = requests::watch_nodes(self.scope.single_node(), position.version());
        self.manager.client.watch(WATCHING, request).await
    }

    fn inspect(
        &mut self,
        message: WatchMessage<NodeRecord>,
        _position: &Position,
    ) -> Verdict<Self> {
        let problem = match message {
            WatchMessage::Change(change) => return Verdict::Changes(change),
            WatchMessage::Ended => return Verdict::End(Recovery::Resume),
            WatchMessage::Broken(problem) => problem,
        };
        let is_silence = matches!(problem, Problem::Silent(_));
        let error = self.manager.client.failed(WATCHING, problem);
        if is_silence {
            debug!("{error}");
            return Verdict::End(Recovery::Resume);
        }
        Verdict::Failure(error)
    }

    fn advance(
        &mut self,
        position: &mut Position,
        change: &Change<NodeRecord>,
    ) -> Result<(), KubeError> {
        let result = position.advance(change, |node| &node.resource_version);
        self.from = if result.is_ok() {
            position.list_from()
        } else {
            ListFrom::Store
        };
        result.map_err(|problem| self.manager.client.failed(WATCHING, problem))
    }

    async fn apply(
        &mut self,
        change: Change<NodeRecord>,
        events: &EventSender,
    ) -> Result<(), Gone> {
        let is_own = |node: &NodeRecord| node.name == self.scope.own;
        match change {
            Change::Put(node) if is_own(&node) && self.holder.is_newer(&node) => Ok(()),
            Change::Put(node) if is_own(&node) => {
                events.send_all(self.see_own(Some(node)).await).await
            }
            Change::Deleted(node) if is_own(&node) => {
                events.send_all(self.see_own(None).await).await
            }
            Change::Put(node) => events.send_all(self.see_peer(&node)).await,
            Change::Deleted(node) => events.send_all(self.forget_peer(&node.name)).await,
            Change::Bookmark { .. } => Ok(()),
        }
    }

    fn recovery(error: &KubeError) -> Recovery {
        if error.is_expired() {
            Recovery::ListNow
        } else if error.is_outdated() {
            Recovery::List
        } else {
            Recovery::Resume
        }
    }

    async fn see_own(&mut self, own: Option<NodeRecord>) -> Vec<StoreEvent> {
        if own
            .as_ref()
            .is_some_and(|node| self.holder.is_replacement(node))
        {
            self.condition.forget();
        }
        if own.is_some() {
            self.condition.node_changed();
        }
        let settings = own.as_ref().and_then(|node| self.see_settings(node));
        settings.into_iter().chain(self.holder.see(own)).collect()
    }

    async fn next_task(&mut self) -> NodeTask {
        loop {
            let (annotations, condition) = (self.holder.due(), self.condition.due());
            tokio::select! {
                () = until(annotations) => return NodeTask::Annotations,
                () = until(condition) => return NodeTask::Condition,
                // That may move the condition's time.
                () = self.condition.changed() => {}
            }
        }
    }

    async fn perform(&mut self, task: NodeTask) -> Vec<StoreEvent> {
        match task {
            NodeTask::Annotations => self.holder.act(&mut self.manager).await,
            NodeTask::Condition => {
                self.condition.act(&mut self.manager).await;
                Vec::new()
            }
        }
    }

    fn republish(&mut self, attrs: LeaseAttrs) -> bool {
        let moved = self.holder.republish(attrs);
        if moved {
            self.manager.client.forget_connection();
        }
        moved
    }
}
