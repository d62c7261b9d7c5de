//! The one task that follows the Nodes: all by one watch, our own through [`Holder`], our condition
//! by [`Condition`]. Where the backend has no peers the watch is for our own alone.
//!
//! A list in pages, then the watch from the list's version. A watch that ends is taken up where it
//! was. The Nodes are listed again when that point is compacted away, or when the server went back
//! in its history. A restarted server usually has no changes from before its restart: that alone is
//! no outage, and costs one listing without delay.
//!
//! Nodes change every few seconds without a change of their lease. The entries already reported are
//! kept, and a change that leads to the same entry is not reported.

use std::{collections::BTreeMap, time::Instant};

use kube::core::WatchEvent;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use super::{
    KubeManager,
    condition::Condition,
    entry::{Families, entry_of},
    error::{KubeError, Problem},
    feed::{Feed, FeedEvent, Position},
    listing::{Listing, Scope, list},
    reconnect::Reconnect,
    record::NodeRecord,
    renewal::Holder,
    requests,
};
use crate::{Entry, LeaseAttrs, LeaseRequest, LogThrottle, StoreEvent, backoff::until, manager::next_attrs};

const WATCHING: &str = "watching the nodes";

/// The receiver of events is gone.
struct Gone;

/// The next thing to handle.
enum Step {
    Feed(FeedEvent<NodeRecord>),
    OwnLeaseDue,
    Availability,
    ConditionDue,
    NewAttrs(LeaseAttrs),
}

pub(super) struct Follower {
    manager: KubeManager,
    scope: Scope,
    holder: Holder,
    condition: Condition,
    attrs: watch::Receiver<LeaseAttrs>,
    events: mpsc::Sender<StoreEvent>,
    feed: Feed<NodeRecord>,
    /// `None` before the first listing, and when a new one is needed.
    position: Option<Position>,
    /// The entries reported of other Nodes, by name.
    reported: BTreeMap<String, Entry>,
    in_sync: bool,
    retry: Reconnect,
    complaint: LogThrottle,
}

impl Follower {
    pub(super) fn new(
        mut manager: KubeManager,
        own: String,
        request: LeaseRequest,
        attrs: watch::Receiver<LeaseAttrs>,
        events: mpsc::Sender<StoreEvent>,
    ) -> Self {
        let grace = manager.client.liveness().grace;
        let LeaseRequest { config, .. } = &request;
        let peers = config.backend.properties().has_peers;
        Self {
            scope: Scope { own, peers, families: Families::of(config) },
            holder: Holder::new(&manager, request),
            condition: Condition::new(manager.available.take(), grace),
            manager,
            attrs,
            events,
            feed: Feed::Closed { retry_at: Instant::now() },
            position: None,
            reported: BTreeMap::new(),
            in_sync: false,
            retry: Reconnect::new(),
            complaint: LogThrottle::default(),
        }
    }

    /// Until the receiver of events is gone.
    pub(super) async fn run(mut self) {
        while let Some(step) = self.next_step().await {
            let going_on = match step {
                Step::Feed(event) => self.take(event).await,
                Step::OwnLeaseDue => {
                    let events = self.holder.act(&mut self.manager).await;
                    self.send_all(events).await
                }
                Step::Availability => Ok(()),
                Step::ConditionDue => {
                    self.condition.act(&mut self.manager).await;
                    Ok(())
                }
                Step::NewAttrs(attrs) => {
                    self.holder.republish(attrs);
                    Ok(())
                }
            };
            if going_on.is_err() {
                return;
            }
        }
    }

    async fn next_step(&mut self) -> Option<Step> {
        let (own_due, condition_due) = (self.holder.due(), self.condition.due());
        let silence = self.manager.client.liveness().silence;
        tokio::select! {
            () = self.events.closed() => None,
            event = self.feed.next_event(silence) => Some(Step::Feed(event)),
            () = until(own_due) => Some(Step::OwnLeaseDue),
            () = self.condition.changed() => Some(Step::Availability),
            () = until(condition_due) => Some(Step::ConditionDue),
            attrs = next_attrs(&mut self.attrs) => Some(Step::NewAttrs(attrs)),
        }
    }

    async fn take(&mut self, event: FeedEvent<NodeRecord>) -> Result<(), Gone> {
        if matches!(event, FeedEvent::Ended | FeedEvent::Broken(_)) {
            self.retry.note_end(self.feed.age());
        }
        match event {
            FeedEvent::Change(change) => self.take_change(change).await,
            FeedEvent::Reconnect => self.reconnect().await,
            FeedEvent::Ended => {
                self.retry_later();
                Ok(())
            }
            FeedEvent::Broken(problem) => {
                let quiet = matches!(problem, Problem::Silent(_));
                let error = self.manager.client.failed(WATCHING, problem);
                if quiet {
                    debug!("{error}");
                    self.retry_later();
                    return Ok(());
                }
                self.broken(&error).await
            }
        }
    }

    async fn reconnect(&mut self) -> Result<(), Gone> {
        // The listing is reported before the watch is opened: it is valid by itself.
        let position = match self.position.clone() {
            Some(position) => position,
            None => match list(&mut self.manager, &self.scope).await {
                Ok(listing) => self.take_listing(listing).await?,
                Err(error) => return self.broken(&error).await,
            },
        };
        let request = requests::watch_nodes(self.scope.only(), position.version());
        match self.manager.client.watch(WATCHING, request).await {
            Ok(stream) => {
                self.manager.counts.watches.add();
                self.feed = Feed::open(stream);
                self.connected().await
            }
            Err(error) => self.broken(&error).await,
        }
    }

    async fn take_listing(&mut self, Listing { entries, own, position }: Listing) -> Result<Position, Gone> {
        self.manager.counts.listings.add();
        self.position = Some(position.clone());
        self.in_sync = true;
        self.recovered();
        self.reported = entries.iter().map(|entry| (entry.name.clone(), entry.clone())).collect();
        self.send(StoreEvent::InSync { snapshot: entries }).await?;
        self.see_own(own).await?;
        Ok(position)
    }

    async fn take_change(&mut self, change: WatchEvent<NodeRecord>) -> Result<(), Gone> {
        self.retry.note_change();
        let (version, found) = match change {
            WatchEvent::Added(node) | WatchEvent::Modified(node) => (node.resource_version.clone(), Ok(node)),
            WatchEvent::Deleted(node) => (node.resource_version, Err(node.name)),
            WatchEvent::Bookmark(bookmark) => (bookmark.metadata.resource_version, Err(String::new())),
            WatchEvent::Error(_) => return Ok(()),
        };
        if let Some(Err(problem)) = self.position.as_mut().map(|position| position.advance(&version)) {
            let error = self.manager.client.failed(WATCHING, problem);
            return self.broken(&error).await;
        }
        match found {
            Ok(node) if node.name == self.scope.own && self.holder.is_newer(&node) => Ok(()),
            Ok(node) if node.name == self.scope.own => self.see_own(Some(node)).await,
            Ok(node) => match entry_of(&node, &self.manager.client.options().prefix, self.scope.families) {
                Some(entry) => self.put(entry).await,
                None => self.delete(&node.name).await,
            },
            Err(name) if name == self.scope.own => self.see_own(None).await,
            Err(name) => self.delete(&name).await,
        }
    }

    async fn put(&mut self, entry: Entry) -> Result<(), Gone> {
        if self.reported.get(&entry.name) == Some(&entry) {
            return Ok(());
        }
        self.reported.insert(entry.name.clone(), entry.clone());
        self.send(StoreEvent::Put(entry)).await
    }

    async fn delete(&mut self, name: &str) -> Result<(), Gone> {
        match self.reported.remove(name) {
            Some(entry) => self.send(StoreEvent::Delete { name: entry.name }).await,
            None => Ok(()),
        }
    }

    async fn see_own(&mut self, found: Option<NodeRecord>) -> Result<(), Gone> {
        if found.as_ref().is_some_and(|node| self.holder.is_replacement(node)) {
            self.condition.forget();
        }
        let events = self.holder.see(found);
        self.send_all(events).await
    }

    async fn connected(&mut self) -> Result<(), Gone> {
        self.recovered();
        if std::mem::replace(&mut self.in_sync, true) { Ok(()) } else { self.send(StoreEvent::Resumed).await }
    }

    fn recovered(&mut self) {
        if self.complaint.settle() {
            info!("the API server is back");
        }
    }

    fn retry_later(&mut self) {
        self.feed = Feed::Closed { retry_at: self.retry.after_failure() };
    }

    async fn broken(&mut self, error: &KubeError) -> Result<(), Gone> {
        self.manager.counts.failures.add();
        if self.lists_at_once(error) {
            return Ok(());
        }
        if error.is_outdated() {
            self.position = None;
        }
        self.retry_later();
        let reason = error.to_string();
        if self.complaint.is_due(&reason, Instant::now()) {
            warn!("{reason}; peers stay as they are");
        }
        if std::mem::replace(&mut self.in_sync, false) {
            return self.send(StoreEvent::OutOfSync { reason }).await;
        }
        Ok(())
    }

    /// Plans a listing without delay in place of a dropped history. Returns whether it did.
    fn lists_at_once(&mut self, error: &KubeError) -> bool {
        // Without a position it was a listing that failed.
        if !error.is_expired() || self.position.is_none() {
            return false;
        }
        self.position = None;
        let Some(retry_at) = self.retry.after_expiry() else { return false };
        debug!(reason = %error, "the API server dropped the history being watched; listing the nodes again");
        self.feed = Feed::Closed { retry_at };
        true
    }

    async fn send(&mut self, event: StoreEvent) -> Result<(), Gone> {
        self.events.send(event).await.map_err(|_closed| Gone)
    }

    async fn send_all(&mut self, events: Vec<StoreEvent>) -> Result<(), Gone> {
        for event in events {
            self.send(event).await?;
        }
        Ok(())
    }
}
