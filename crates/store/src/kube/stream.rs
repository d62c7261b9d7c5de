//! The messages of a watch, with a deadline for silence.

use std::{pin::Pin, time::Duration};

use flannel_host::clock::{BootTime, until};
use futures::{Stream, StreamExt as _};
use kube::core::WatchEvent;

use super::error::Problem;
use crate::watcher::MessageStream;

/// The client's stream of changes of one kind of object.
type Inner<T> = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<T>>> + Send>>;

/// A watch of one kind of object.
pub(super) struct WatchStream<T> {
    inner: Inner<T>,
    silence: Duration,
    /// The time of the last message, by a clock that continues while the machine is suspended.
    heard: BootTime,
}

/// A message of a watch.
pub(super) enum WatchMessage<T> {
    /// A change that the server sent.
    Change(Change<T>),
    /// The watch is over, as all are in the end.
    Ended,
    /// The watch broke.
    Broken(Problem),
}

/// A change of objects of one kind.
pub(super) enum Change<T> {
    /// A new or changed object.
    Put(T),
    /// An object is gone.
    Deleted(T),
    /// Nothing changed up to here.
    Bookmark {
        /// The version reached.
        version: String,
    },
}

impl<T> WatchStream<T> {
    /// Returns a watch that breaks after `silence` without a message.
    pub(super) fn new(
        inner: impl Stream<Item = kube::Result<WatchEvent<T>>> + Send + 'static,
        silence: Duration,
    ) -> Self {
        Self {
            inner: Box::pin(inner),
            silence,
            heard: BootTime::now(),
        }
    }
}

impl<T: Send> MessageStream for WatchStream<T> {
    type Message = WatchMessage<T>;

    async fn next_message(&mut self) -> WatchMessage<T> {
        let next = tokio::select! {
            next = self.inner.next() => next,
            () = until(Some(self.heard + self.silence)) => {
                return WatchMessage::Broken(Problem::Silent(self.silence));
            }
        };
        self.heard = BootTime::now();
        match next {
            Some(Ok(event)) => message_of(event),
            Some(Err(error)) => WatchMessage::Broken(error.into()),
            None => WatchMessage::Ended,
        }
    }
}

fn message_of<T>(event: WatchEvent<T>) -> WatchMessage<T> {
    WatchMessage::Change(match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => Change::Put(object),
        WatchEvent::Deleted(object) => Change::Deleted(object),
        WatchEvent::Bookmark(bookmark) => Change::Bookmark {
            version: bookmark.metadata.resource_version,
        },
        WatchEvent::Error(status) => return WatchMessage::Broken(Problem::Status(status)),
    })
}
