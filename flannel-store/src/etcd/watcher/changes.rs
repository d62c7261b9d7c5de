//! Handles the responses of the watch: changes, and signs that it has to be opened again, from a
//! new listing where its position is no longer valid.

use std::time::Instant;

use etcd_client::{Event, EventType, WatchResponse};
use tracing::warn;

use super::{
    super::{
        error::Problem,
        feed::{Feed, Position},
        listing::Stored,
    },
    Follower, Gone, WATCHING,
};
use crate::StoreEvent;

impl Follower {
    pub(super) async fn take_response(&mut self, response: Result<WatchResponse, Problem>) -> Result<(), Gone> {
        let response = match response {
            Ok(response) => response,
            Err(problem) => return self.broken_watch(problem).await,
        };
        if response.compact_revision() != 0 {
            warn!("the store compacted changes we have not seen; listing all leases again");
            self.position = None;
        }
        if response.canceled() || self.position.is_none() {
            return self.broken_watch(Problem::Cancelled(response.cancel_reason().to_owned())).await;
        }
        let is_known = |position: Position| response.header().is_none_or(|header| position.is_continued_by(header));
        if response.created() && !self.position.is_some_and(is_known) {
            warn!("the store is another one, or older than it was; listing all leases again");
            self.position = None;
            self.feed = Feed::Closed { retry_at: Instant::now() + self.delays.next_delay() };
            return Ok(());
        }
        if response.created() {
            self.connected().await?;
        }
        for event in response.events() {
            self.take_event(event).await?;
        }
        if let Some(position) = &mut self.position {
            position.advance(&response);
        }
        Ok(())
    }

    async fn connected(&mut self) -> Result<(), Gone> {
        self.delays.reset();
        self.holder.retry_now(&self.manager);
        self.recovered();
        if std::mem::replace(&mut self.in_sync, true) { Ok(()) } else { self.send(StoreEvent::Resumed).await }
    }

    async fn take_event(&mut self, event: &Event) -> Result<(), Gone> {
        let Some(kv) = event.kv() else { return Ok(()) };
        let Some(stored) = Stored::read(&self.manager.keys, kv) else { return Ok(()) };
        let is_own = self.own_name().as_ref() == Some(&stored.entry.name);
        // Our own writes come back as events, and what preceded them may come after them.
        let is_news = self.manager.held.as_ref().is_some_and(|held| stored.entry.modified > held.modified);
        let found = match event.event_type() {
            EventType::Put => {
                self.send(StoreEvent::Put(stored.entry.clone())).await?;
                Some(stored)
            }
            EventType::Delete => {
                self.send(StoreEvent::Delete { name: stored.entry.name }).await?;
                None
            }
        };
        if !is_own || !is_news {
            return Ok(());
        }
        let events = self.holder.see(&mut self.manager, found.as_ref()).await;
        self.send_all(events).await
    }

    async fn broken_watch(&mut self, problem: Problem) -> Result<(), Gone> {
        let error = self.manager.client.failed(WATCHING, problem);
        self.broken(&error).await
    }
}
