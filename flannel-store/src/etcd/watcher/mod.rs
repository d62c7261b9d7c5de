//! The one task that follows etcd: all leases by one watch, and our own through [`Holder`].
//!
//! A listing at revision R, then the watch from R+1. A watch that breaks is resumed where it ended.
//! The leases are listed again when that point is compacted away, or when the store is not the one
//! it was: another cluster, or another state of this one (wiped, restored from a backup), whose
//! changes would never arrive. This is checked whenever a watch is opened and every few minutes
//! (`verify`), because behind a proxy a watch may outlive its store.

mod changes;

use std::time::{Duration, Instant};

use etcd_client::{WatchOptions, WatchStream};
use flannel_host::clock::{BootTime, until};
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use super::{
    EtcdManager,
    error::EtcdError,
    feed::{Feed, FeedEvent, Position},
    listing::{Stored, list},
    renewal::Holder,
    verify,
};
use crate::{Backoff, Delays, LeaseAttrs, LeaseRequest, LogThrottle, StoreEvent, manager::next_attrs};

const RECONNECT: Backoff = match Backoff::new(Duration::from_millis(100), Duration::from_secs(5), 20) {
    Some(backoff) => backoff,
    None => panic!("100 ms to 5 s is a valid back-off"),
};
/// A response holds the changes of up to 1,000 revisions; the default of 4 MB is near that.
const MAX_RESPONSE: usize = 64 << 20;
const WATCHING: &str = "watching the leases";

/// The receiver of events is gone.
struct Gone;

/// The next thing to handle.
enum Step {
    Feed(FeedEvent),
    OwnLeaseDue,
    VerifyDue,
    NewAttrs(LeaseAttrs),
}

pub(super) struct Follower {
    manager: EtcdManager,
    holder: Holder,
    attrs: watch::Receiver<LeaseAttrs>,
    events: mpsc::Sender<StoreEvent>,
    feed: Feed,
    /// `None` before the first listing, and when a new one is needed.
    position: Option<Position>,
    in_sync: bool,
    verify_at: BootTime,
    delays: Delays,
    complaint: LogThrottle,
}

impl Follower {
    pub(super) fn new(
        manager: EtcdManager,
        request: LeaseRequest,
        attrs: watch::Receiver<LeaseAttrs>,
        events: mpsc::Sender<StoreEvent>,
    ) -> Self {
        let verify_at = BootTime::now() + manager.client.liveness().verify;
        Self {
            holder: Holder::new(&manager, request),
            manager,
            attrs,
            events,
            feed: Feed::Closed { retry_at: Instant::now() },
            position: None,
            in_sync: false,
            verify_at,
            delays: RECONNECT.delays(),
            complaint: LogThrottle::default(),
        }
    }

    /// Until the receiver of events is gone.
    pub(super) async fn run(mut self) {
        while let Some(step) = self.next_step().await {
            let going_on = match step {
                Step::Feed(FeedEvent::Response(response)) => self.take_response(response).await,
                Step::Feed(FeedEvent::Reconnect) => self.reconnect().await,
                Step::OwnLeaseDue => {
                    let events = self.holder.act(&mut self.manager).await;
                    self.send_all(events).await
                }
                Step::VerifyDue => {
                    self.verify_open_watch().await;
                    Ok(())
                }
                Step::NewAttrs(attrs) => {
                    self.republish(attrs);
                    Ok(())
                }
            };
            if going_on.is_err() {
                return;
            }
        }
    }

    async fn next_step(&mut self) -> Option<Step> {
        let due = self.holder.due();
        let verify_at = matches!(self.feed, Feed::Open(_)).then_some(self.verify_at);
        tokio::select! {
            () = self.events.closed() => None,
            event = self.feed.next_event() => Some(Step::Feed(event)),
            () = until(due) => Some(Step::OwnLeaseDue),
            () = until(verify_at) => Some(Step::VerifyDue),
            attrs = next_attrs(&mut self.attrs) => Some(Step::NewAttrs(attrs)),
        }
    }

    /// Publishes `attrs` from now on. Our address may have changed, and the loss of connections
    /// from the former one would be noticed only after many seconds, so they are made again. The
    /// watch continues from its position.
    fn republish(&mut self, attrs: LeaseAttrs) {
        self.holder.republish(attrs);
        self.manager.client.forget_connection();
        if matches!(self.feed, Feed::Open(_)) {
            self.feed = Feed::Closed { retry_at: Instant::now() };
        }
    }

    /// Looks whether the store behind the watch is still the one we know.
    async fn verify_open_watch(&mut self) {
        match self.verify().await {
            Ok(()) if self.position.is_none() => self.feed = Feed::Closed { retry_at: Instant::now() },
            Ok(()) => {}
            // The watch has signs of life of its own.
            Err(error) => debug!("cannot look whether the store is the one we know: {error}"),
        }
    }

    /// Forgets the position in a history that this store does not have.
    async fn verify(&mut self) -> Result<(), EtcdError> {
        let EtcdManager { client, keys, held, .. } = &mut self.manager;
        self.verify_at = BootTime::now() + client.liveness().verify;
        if let Some(position) = self.position
            && !verify::is_known(client, keys, held.as_ref(), position).await?
        {
            self.invalidate();
        }
        Ok(())
    }

    fn invalidate(&mut self) {
        warn!(
            "our lease is not as we left it: the store is another one, or another client changed it; listing all leases again"
        );
        self.position = None;
    }

    async fn reconnect(&mut self) -> Result<(), Gone> {
        if let Err(error) = self.verify().await {
            return self.broken(&error).await;
        }
        // A listing is reported before the watch is opened: it is valid by itself.
        let position = match self.position {
            Some(position) => position,
            None => match list(&mut self.manager.client, &self.manager.keys).await {
                Ok(listing) => {
                    self.take_listing(listing.leases, listing.position).await?;
                    listing.position
                }
                Err(error) => return self.broken(&error).await,
            },
        };
        match self.open(position).await {
            Ok(stream) => {
                self.manager.counts.watches.add();
                self.feed = Feed::Open(Box::new(stream));
                Ok(())
            }
            Err(error) => self.broken(&error).await,
        }
    }

    async fn open(&mut self, position: Position) -> Result<WatchStream, EtcdError> {
        let prefix = self.manager.keys.prefix().to_owned();
        let options = WatchOptions::new().with_prefix().with_start_revision(position.next);
        self.manager
            .client
            .call(WATCHING, |etcd| {
                let (prefix, options) = (prefix.clone(), options.clone());
                let mut watcher = etcd.watch_client().max_decoding_message_size(MAX_RESPONSE);
                async move { watcher.watch(prefix, Some(options)).await }
            })
            .await
    }

    async fn take_listing(&mut self, leases: Vec<Stored>, position: Position) -> Result<(), Gone> {
        let own_name = self.own_name();
        let own = leases.iter().find(|stored| Some(&stored.entry.name) == own_name.as_ref()).cloned();
        let snapshot = leases.into_iter().map(|stored| stored.entry).collect();
        self.manager.counts.listings.add();
        self.position = Some(position);
        self.in_sync = true;
        self.recovered();
        self.send(StoreEvent::InSync { snapshot }).await?;
        let events = self.holder.see(&mut self.manager, own.as_ref()).await;
        self.send_all(events).await
    }

    fn recovered(&mut self) {
        if self.complaint.settle() {
            info!("etcd is back");
        }
    }

    /// The name of the entry we hold.
    fn own_name(&self) -> Option<String> {
        let held = self.manager.held.as_ref()?;
        self.manager.keys.name_of(held.path.as_bytes()).map(Into::into)
    }

    async fn broken(&mut self, error: &EtcdError) -> Result<(), Gone> {
        self.manager.counts.failures.add();
        if error.is_compacted() {
            self.position = None;
        }
        self.feed = Feed::Closed { retry_at: Instant::now() + self.delays.next_delay() };
        let reason = error.to_string();
        if self.complaint.is_due(&reason, Instant::now()) {
            warn!("{reason}; peers stay as they are");
        }
        if std::mem::replace(&mut self.in_sync, false) {
            return self.send(StoreEvent::OutOfSync { reason }).await;
        }
        Ok(())
    }

    async fn send(&self, event: StoreEvent) -> Result<(), Gone> {
        self.events.send(event).await.map_err(|_closed| Gone)
    }

    async fn send_all(&self, events: Vec<StoreEvent>) -> Result<(), Gone> {
        for event in events {
            self.send(event).await?;
        }
        Ok(())
    }
}
