//! The half of a watcher in which stores differ.

use std::{fmt::Display, sync::Arc};

use flannel_host::clock::BootTime;

use super::{EventSender, Gone, MessageStream};
use crate::{Entry, LeaseAttrs, StoreEvent};

/// A message of a source's watch.
pub(crate) type MessageOf<S> = <<S as Source>::Stream as MessageStream>::Message;

/// A store to follow: its requests, the meaning of its answers, and our own lease in it.
pub(crate) trait Source: Send + Sized {
    /// A point in the history of the store, from which a watch continues.
    type Position: Clone + Send + Sync;
    /// An open watch.
    type Stream: MessageStream;
    /// The content of a message of a watch that works.
    type Changes: Send;
    /// Our own lease, as the store has it.
    type Own: Send;
    /// Something to do at its time, for our own lease or node.
    type Task: Send;
    /// A failed request.
    type Error: Display + Send + Sync;

    /// The server, in the log.
    const NAME: &'static str;
    /// The objects that are listed, in the log.
    const OBJECTS: &'static str;
    /// True if the first message of a watch says that the server accepted it. Otherwise a watch
    /// counts as accepted once it is open, and as working once it had a change or lasted.
    const CONFIRMS_WATCHES: bool;

    /// Lists all leases.
    fn list(&mut self) -> impl Future<Output = Result<Listing<Self>, Self::Error>> + Send;

    /// Opens a watch of the changes after `position`.
    fn open(
        &mut self,
        position: &Self::Position,
    ) -> impl Future<Output = Result<Self::Stream, Self::Error>> + Send;

    /// Judges a message of the watch, which is at `position`.
    fn inspect(&mut self, message: MessageOf<Self>, position: &Self::Position) -> Verdict<Self>;

    /// Moves `position` behind the changes. Fails if they precede it.
    fn advance(
        &mut self,
        position: &mut Self::Position,
        changes: &Self::Changes,
    ) -> Result<(), Self::Error>;

    /// Reports the changes.
    fn apply(
        &mut self,
        changes: Self::Changes,
        events: &EventSender,
    ) -> impl Future<Output = Result<(), Gone>> + Send;

    /// The consequence of an error for the position.
    fn recovery(error: &Self::Error) -> Recovery;

    /// The time to check that the store behind the open watch is the one we know; `None` if the
    /// watch itself reveals that.
    fn verify_at(&self) -> Option<BootTime> {
        None
    }

    /// Checks that the store has the history up to `position`.
    fn is_known(
        &mut self,
        _position: &Self::Position,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send {
        std::future::ready(Ok(true))
    }

    /// Takes note of this node's lease in a listing.
    fn see_own(&mut self, own: Self::Own) -> impl Future<Output = Vec<StoreEvent>> + Send;

    /// Waits for the next task. Cancel-safe: no task is lost when the future is dropped early.
    fn next_task(&mut self) -> impl Future<Output = Self::Task> + Send;

    /// Performs a task.
    fn perform(&mut self, task: Self::Task) -> impl Future<Output = Vec<StoreEvent>> + Send;

    /// Publishes `attrs` from now on. Returns true if the watch has to be opened again, on a new
    /// connection.
    fn republish(&mut self, attrs: LeaseAttrs) -> bool;
}

/// The result of a listing.
pub(crate) struct Listing<S: Source> {
    /// The leases to report.
    pub(crate) entries: Vec<Arc<Entry>>,
    /// Our own.
    pub(crate) own: S::Own,
    /// The position from which changes to this listing continue.
    pub(crate) position: S::Position,
}

/// The meaning of a message.
pub(crate) enum Verdict<S: Source> {
    /// The watch works, and these are its changes, if any.
    Changes(S::Changes),
    /// The watch is over, without a failure.
    End(Recovery),
    /// The watch failed.
    Failure(S::Error),
}

/// The consequence of the end of a watch for the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// The next watch continues from the position.
    Resume,
    /// The next watch needs a new listing.
    List,
    /// The server dropped the history, as after its restart. That does not count as an outage, and
    /// costs a listing without delay.
    ListNow,
}
