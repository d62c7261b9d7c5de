//! The one task that follows a store: all leases by a listing and a watch, our own lease by the
//! tasks of the store.
//!
//! A listing, then the watch from the position of the listing. A watch that ends is resumed at the
//! position it reached, with delays that grow ([`Reconnect`]). The leases are listed again when the
//! store no longer has the changes after that position, or when it is not the store it was.
//!
//! The receiver of events is informed of each change, of the loss of the stream
//! ([`StoreEvent::OutOfSync`]) and of its return. While the stream is away, the same problem is
//! logged once a minute.
//!
//! The loop is the same for all stores. What they differ in is behind [`Source`]: requests, the
//! form of a position, the meaning of messages and errors, and our own lease.

mod event_sender;
mod feed;
mod reconnect;
mod source;
#[cfg(test)]
mod tests;

use std::time::Instant;

use flannel_host::clock::until;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

pub(crate) use self::{
    event_sender::{EventSender, Gone},
    feed::{Feed, FeedEvent, MessageStream},
    reconnect::Reconnect,
    source::{Listing, MessageOf, Recovery, Source, Verdict},
};
use crate::{LeaseAttrs, LogThrottle, StoreCounts, StoreEvent};

/// The next thing to handle.
enum Step<S: Source> {
    Feed(FeedEvent<MessageOf<S>>),
    VerificationDue,
    Task(S::Task),
    NewAttrs(LeaseAttrs),
}

/// Follows a store.
pub(crate) struct Watcher<S: Source> {
    source: S,
    counts: StoreCounts,
    attrs: watch::Receiver<LeaseAttrs>,
    events: EventSender,
    feed: Feed<S::Stream>,
    /// `None` before the first listing, and when a new one is needed.
    position: Option<S::Position>,
    in_sync: bool,
    retry: Reconnect,
    complaint: LogThrottle,
}

impl<S: Source> Watcher<S> {
    pub(crate) fn new(
        source: S,
        counts: StoreCounts,
        attrs: watch::Receiver<LeaseAttrs>,
        events: mpsc::Sender<StoreEvent>,
    ) -> Self {
        Self {
            source,
            counts,
            attrs,
            events: EventSender::new(events),
            feed: Feed::reopen_now(),
            position: None,
            in_sync: false,
            retry: Reconnect::new(),
            complaint: LogThrottle::default(),
        }
    }

    /// Runs until the receiver of events is gone.
    pub(crate) async fn run(mut self) {
        while let Some(step) = self.next_step().await {
            if let Err(Gone) = self.take_step(step).await {
                return;
            }
        }
    }

    async fn next_step(&mut self) -> Option<Step<S>> {
        let verify_at = if self.feed.is_open() {
            self.source.verify_at()
        } else {
            None
        };
        tokio::select! {
            () = self.events.closed() => None,
            event = self.feed.next_event() => Some(Step::Feed(event)),
            () = until(verify_at) => Some(Step::VerificationDue),
            task = self.source.next_task() => Some(Step::Task(task)),
            attrs = next_attrs(&mut self.attrs) => Some(Step::NewAttrs(attrs)),
        }
    }

    async fn take_step(&mut self, step: Step<S>) -> Result<(), Gone> {
        match step {
            Step::Feed(FeedEvent::Message(message)) => return self.take_message(message).await,
            Step::Feed(FeedEvent::Reopen) => return self.reopen().await,
            Step::Task(task) => {
                let events = self.source.perform(task).await;
                return self.events.send_all(events).await;
            }
            Step::VerificationDue => self.verify_open_watch().await,
            Step::NewAttrs(attrs) => {
                if self.source.republish(attrs) && self.feed.is_open() {
                    self.feed = Feed::reopen_now();
                }
            }
        }
        Ok(())
    }

    /// Opens the watch: at the position if the store still has it, else after a listing.
    async fn reopen(&mut self) -> Result<(), Gone> {
        if let Err(error) = self.verify().await {
            return self.fail(&error).await;
        }
        // A listing is reported before the watch is opened: it is valid by itself.
        let position = match self.position.clone() {
            Some(position) => position,
            None => match self.source.list().await {
                Ok(listing) => self.take_listing(listing).await?,
                Err(error) => return self.fail(&error).await,
            },
        };
        match self.source.open(&position).await {
            Ok(stream) => {
                self.counts.watches.add();
                self.feed = Feed::open(stream);
                if S::CONFIRMS_WATCHES {
                    Ok(())
                } else {
                    self.resume().await
                }
            }
            Err(error) => self.fail(&error).await,
        }
    }

    /// Forgets the position if the store does not have that history.
    async fn verify(&mut self) -> Result<(), S::Error> {
        if let Some(position) = &self.position
            && !self.source.is_known(position).await?
        {
            self.position = None;
        }
        Ok(())
    }

    async fn verify_open_watch(&mut self) {
        match self.verify().await {
            Ok(()) if self.position.is_none() => self.feed = Feed::reopen_now(),
            Ok(()) => {}
            // Not a failure of the watch, which detects silence by itself.
            Err(error) => debug!("cannot look whether the store is the one we know: {error}"),
        }
    }

    async fn take_listing(&mut self, listing: Listing<S>) -> Result<S::Position, Gone> {
        let Listing {
            entries,
            own,
            position,
        } = listing;
        self.counts.listings.add();
        self.position = Some(position.clone());
        self.in_sync = true;
        self.settle_complaint();
        self.events
            .send(StoreEvent::InSync { snapshot: entries })
            .await?;
        let events = self.source.see_own(own).await;
        self.events.send_all(events).await?;
        Ok(position)
    }

    async fn take_message(&mut self, message: MessageOf<S>) -> Result<(), Gone> {
        let Some(position) = &self.position else {
            // A watch without a position could not be resumed.
            self.feed = Feed::reopen_now();
            return Ok(());
        };
        match self.source.inspect(message, position) {
            Verdict::Changes(changes) => self.take_changes(changes).await,
            Verdict::End(recovery) => {
                self.note_end();
                self.reopen_later(recovery);
                Ok(())
            }
            Verdict::Failure(error) => {
                self.note_end();
                self.fail(&error).await
            }
        }
    }

    async fn take_changes(&mut self, changes: S::Changes) -> Result<(), Gone> {
        self.retry.note_change();
        self.resume().await?;
        let advanced = self
            .position
            .as_mut()
            .map(|position| self.source.advance(position, &changes));
        match advanced {
            Some(Err(error)) => self.fail(&error).await,
            _ => self.source.apply(changes, &self.events).await,
        }
    }

    /// Reports that changes arrive again, unless they did not cease to.
    async fn resume(&mut self) -> Result<(), Gone> {
        self.settle_complaint();
        if std::mem::replace(&mut self.in_sync, true) {
            Ok(())
        } else {
            self.events.send(StoreEvent::Resumed).await
        }
    }

    fn settle_complaint(&mut self) {
        if self.complaint.clear() {
            info!("{} is back", S::NAME);
        }
    }

    fn reopen_later(&mut self, recovery: Recovery) {
        if recovery != Recovery::Resume {
            self.position = None;
        }
        self.feed = Feed::Closed {
            reopen_at: self.retry.after_failure(),
        };
    }

    /// A watch that lasted has worked. One that was confirmed has started the delays over then.
    fn note_end(&mut self) {
        if !S::CONFIRMS_WATCHES {
            self.retry.note_end(self.feed.age());
        }
    }

    async fn fail(&mut self, error: &S::Error) -> Result<(), Gone> {
        self.counts.failures.add();
        let recovery = S::recovery(error);
        if recovery == Recovery::ListNow && self.lists_now(error) {
            return Ok(());
        }
        self.reopen_later(recovery);
        let reason = error.to_string();
        if self.complaint.is_due(&reason, Instant::now()) {
            warn!("{reason}; peers stay as they are");
        }
        if std::mem::replace(&mut self.in_sync, false) {
            return self.events.send(StoreEvent::OutOfSync { reason }).await;
        }
        Ok(())
    }

    /// Plans a listing without delay in place of a dropped history. Returns whether it did.
    fn lists_now(&mut self, error: &S::Error) -> bool {
        // Without a position it was a listing that failed.
        if self.position.take().is_none() {
            return false;
        }
        let Some(reopen_at) = self.retry.after_expiry() else {
            return false;
        };
        debug!(reason = %error, "{} dropped the history being watched; listing {} \
            again", S::NAME, S::OBJECTS);
        self.feed = Feed::Closed { reopen_at };
        true
    }
}

/// Waits for other attributes to publish, and returns them. Waits forever once the sender is gone.
async fn next_attrs(attrs: &mut watch::Receiver<LeaseAttrs>) -> LeaseAttrs {
    if attrs.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
    attrs.borrow_and_update().clone()
}
