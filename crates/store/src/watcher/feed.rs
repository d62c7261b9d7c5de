//! The stream of changes, open or closed.

use std::time::{Duration, Instant};

use tokio::time::sleep_until;

/// The messages of a watch.
pub(crate) trait MessageStream: Send {
    /// A message of the server, or the end of the stream.
    type Message: Send;

    /// Returns the next message. Cancel-safe: no message is lost when the future is dropped early.
    fn next_message(&mut self) -> impl Future<Output = Self::Message> + Send;
}

/// The state of the stream of changes.
pub(crate) enum Feed<T> {
    /// Changes arrive here.
    Open {
        /// The watch.
        stream: T,
        /// The time at which it was opened.
        opened: Instant,
    },
    /// No changes arrive; open the stream again at `reopen_at`.
    Closed {
        /// The time of the next attempt.
        reopen_at: Instant,
    },
}

/// An event of a feed.
pub(crate) enum FeedEvent<M> {
    /// A message of the stream.
    Message(M),
    /// It is time to open the stream again.
    Reopen,
}

impl<T: MessageStream> Feed<T> {
    pub(crate) fn open(stream: T) -> Self {
        Self::Open {
            stream,
            opened: Instant::now(),
        }
    }

    /// A closed stream that is opened without delay.
    pub(crate) fn reopen_now() -> Self {
        Self::Closed {
            reopen_at: Instant::now(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Open { .. })
    }

    /// The time since the stream was opened; none while it is closed.
    pub(crate) fn age(&self) -> Duration {
        match self {
            Self::Open { opened, .. } => opened.elapsed(),
            Self::Closed { .. } => Duration::ZERO,
        }
    }

    /// Returns the next event. Cancel-safe: no event is lost when the future is dropped early.
    pub(crate) async fn next_event(&mut self) -> FeedEvent<T::Message> {
        match self {
            Self::Open { stream, .. } => FeedEvent::Message(stream.next_message().await),
            Self::Closed { reopen_at } => {
                sleep_until((*reopen_at).into()).await;
                FeedEvent::Reopen
            }
        }
    }
}
