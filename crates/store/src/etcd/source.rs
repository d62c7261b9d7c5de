//! etcd as a [`Source`]: all leases by one watch, and our own through [`Holder`].
//!
//! A listing at revision R, then the [watch](https://etcd.io/docs/v3.5/learning/api/#watch-api)
//! from R+1. A position is no longer valid when it is compacted away, or when the store is not the
//! one it was: another cluster, or another state of this one (wiped, restored from a backup), whose
//! changes would never arrive. This is checked whenever a watch is opened and every few minutes
//! ([`verify`]), because behind a proxy a watch may outlive its store.

use std::sync::Arc;

use etcd_client::{Event, EventType, WatchOptions, WatchResponse, WatchStream};
use flannel_host::clock::{BootTime, until};
use tracing::warn;

use super::{
    error::{EtcdError, Problem},
    listing::{Stored, list},
    manager::EtcdManager,
    position::Position,
    verify,
};
use crate::{
    LeaseAttrs, LeaseRequest, StoreEvent,
    etcd::lease::renewal::Holder,
    watcher::{EventSender, Gone, Listing, MessageStream, Recovery, Source, Verdict},
};

/// The largest message of a watch, in bytes. The server sends the changes of up to 1,000 revisions
/// in one (`watchBatchMaxRevs` in server/storage/mvcc/watcher_group.go), which a listing reads page
/// by page if they are larger.
const MAX_RESPONSE: usize = 64 << 20;
const WATCHING: &str = "watching the leases";

/// The leases in etcd.
pub(super) struct EtcdSource {
    manager: EtcdManager,
    holder: Holder,
    verify_at: BootTime,
}

impl EtcdSource {
    pub(super) fn new(manager: EtcdManager, request: LeaseRequest) -> Self {
        let verify_at = BootTime::now() + manager.client.liveness().verify;
        Self {
            holder: Holder::new(&manager, request),
            manager,
            verify_at,
        }
    }

    /// The name of the entry we hold.
    fn own_name(&self) -> Option<Arc<str>> {
        let held = self.manager.held.as_ref()?;
        self.manager
            .keys
            .name_of(held.path.as_bytes())
            .map(Into::into)
    }

    fn plan_verification(&mut self) {
        self.verify_at = BootTime::now() + self.manager.client.liveness().verify;
    }

    fn failure(&mut self, problem: Problem) -> Verdict<Self> {
        Verdict::Failure(self.manager.client.failed(WATCHING, problem))
    }

    async fn apply_event(&mut self, event: &Event, events: &EventSender) -> Result<(), Gone> {
        let Some(kv) = event.kv() else { return Ok(()) };
        let Some(stored) = Stored::read(&self.manager.keys, kv) else {
            return Ok(());
        };
        let is_own = self.own_name().as_ref() == Some(&stored.entry.name);
        // Our own writes come back as events, and what preceded them may come after them.
        let is_news = self
            .manager
            .held
            .as_ref()
            .is_some_and(|held| stored.entry.modified > held.modified);
        let found = match event.event_type() {
            EventType::Put => {
                events
                    .send(StoreEvent::Put(Arc::clone(&stored.entry)))
                    .await?;
                Some(stored)
            }
            EventType::Delete => {
                events
                    .send(StoreEvent::Delete {
                        name: Arc::clone(&stored.entry.name),
                    })
                    .await?;
                None
            }
        };
        if !is_own || !is_news {
            return Ok(());
        }
        let own_events = self.see_own(found).await;
        events.send_all(own_events).await
    }
}

impl Source for EtcdSource {
    type Position = Position;
    type Stream = WatchStream;
    type Changes = WatchResponse;
    type Own = Option<Stored>;
    /// To renew our lease, or to acquire one.
    type Task = ();
    type Error = EtcdError;

    const NAME: &'static str = "etcd";
    const OBJECTS: &'static str = "all leases";
    const CONFIRMS_WATCHES: bool = true;

    async fn list(&mut self) -> Result<Listing<Self>, EtcdError> {
        let listed = list(&mut self.manager.client, &self.manager.keys).await?;
        let own_name = self.own_name();
        let own = listed
            .leases
            .iter()
            .find(|stored| Some(&stored.entry.name) == own_name.as_ref())
            .cloned();
        let entries = listed
            .leases
            .into_iter()
            .map(|stored| stored.entry)
            .collect();
        Ok(Listing {
            entries,
            own,
            position: listed.position,
        })
    }

    async fn open(&mut self, position: &Position) -> Result<WatchStream, EtcdError> {
        self.plan_verification();
        let prefix = self.manager.keys.prefix().to_owned();
        let options = WatchOptions::new()
            .with_prefix()
            .with_start_revision(position.next);
        self.manager
            .client
            .call(WATCHING, |etcd| {
                let (prefix, options) = (prefix.clone(), options.clone());
                let mut watcher = etcd.watch_client().max_decoding_message_size(MAX_RESPONSE);
                async move { watcher.watch(prefix, Some(options)).await }
            })
            .await
    }

    fn inspect(
        &mut self,
        message: Result<WatchResponse, Problem>,
        position: &Position,
    ) -> Verdict<Self> {
        let response = match message {
            Ok(response) => response,
            Err(problem) => return self.failure(problem),
        };
        if response.compact_revision() != 0 {
            warn!("the store compacted changes we have not seen; listing all leases again");
            return self.failure(Problem::Compacted(response.cancel_reason().to_owned()));
        }
        if response.canceled() {
            return self.failure(Problem::Cancelled(response.cancel_reason().to_owned()));
        }
        if response.created() {
            if !response
                .header()
                .is_none_or(|header| position.is_continued_by(header))
            {
                warn!("the store is another one, or older than it was; listing all leases again");
                return Verdict::End(Recovery::List);
            }
            self.holder.retry_now(&self.manager);
        }
        Verdict::Changes(response)
    }

    fn advance(
        &mut self,
        position: &mut Position,
        response: &WatchResponse,
    ) -> Result<(), EtcdError> {
        position.advance(response);
        Ok(())
    }

    async fn apply(&mut self, response: WatchResponse, events: &EventSender) -> Result<(), Gone> {
        for event in response.events() {
            self.apply_event(event, events).await?;
        }
        Ok(())
    }

    fn recovery(error: &EtcdError) -> Recovery {
        if error.is_compacted() || error.is_too_large() {
            Recovery::List
        } else {
            Recovery::Resume
        }
    }

    fn verify_at(&self) -> Option<BootTime> {
        Some(self.verify_at)
    }

    async fn is_known(&mut self, position: &Position) -> Result<bool, EtcdError> {
        self.plan_verification();
        let EtcdManager {
            client, keys, held, ..
        } = &mut self.manager;
        let is_known = verify::is_known(client, keys, held.as_ref(), *position).await?;
        if !is_known {
            warn!(
                "our lease is not as we left it: the store is another one, or another client \
                 changed it; listing all leases again"
            );
        }
        Ok(is_known)
    }

    async fn see_own(&mut self, own: Option<Stored>) -> Vec<StoreEvent> {
        self.holder.see(&mut self.manager, own.as_ref()).await
    }

    async fn next_task(&mut self) {
        until(self.holder.due(&self.manager)).await;
    }

    async fn perform(&mut self, (): ()) -> Vec<StoreEvent> {
        self.holder.act(&mut self.manager).await
    }

    /// Our address may have changed, and the loss of connections from the former one would be
    /// noticed only after many seconds, so they are made again. The watch continues from its
    /// position.
    fn republish(&mut self, attrs: LeaseAttrs) -> bool {
        self.holder.republish(attrs);
        self.manager.client.forget_connection();
        true
    }
}

impl MessageStream for WatchStream {
    type Message = Result<WatchResponse, Problem>;

    async fn next_message(&mut self) -> Self::Message {
        match self.message().await {
            Ok(Some(response)) => Ok(response),
            Ok(None) => Err(Problem::Ended),
            Err(error) => Err(error.into()),
        }
    }
}
