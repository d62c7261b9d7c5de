//! The stream of changes, and where in etcd's history we are.

use std::time::Instant;

use etcd_client::{Event, KeyValue, ResponseHeader, WatchResponse, WatchStream};
use tokio::time::sleep_until;

use super::error::Problem;

/// A point in etcd's history, and whose history it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// The next revision we have not seen.
    pub(super) next: i64,
    /// The cluster's id.
    pub(super) cluster: u64,
}

impl Position {
    /// Moves on to what this response leaves unseen. The revision in its header is the store's:
    /// events up to it may still be on their way, unless the response has none and is not the
    /// watch's first.
    pub(super) fn advance(&mut self, response: &WatchResponse) {
        let last_event = response.events().iter().filter_map(Event::kv).map(KeyValue::mod_revision).max();
        let progress = response.header().filter(|_| !response.created()).map(ResponseHeader::revision);
        if let Some(seen) = last_event.or(progress) {
            self.next = self.next.max(seen + 1);
        }
    }

    /// Returns true if the store that sent this header may continue the history we know: the same
    /// cluster, at a revision that is not before the position.
    pub(super) fn is_continued_by(&self, header: &ResponseHeader) -> bool {
        header.cluster_id() == self.cluster && header.revision() + 1 >= self.next
    }
}

/// The state of the stream of changes.
pub(super) enum Feed {
    /// Changes arrive here.
    Open(Box<WatchStream>),
    /// No changes arrive; open the stream again at `retry_at`.
    Closed { retry_at: Instant },
}

/// An event of a feed.
pub(super) enum FeedEvent {
    /// A message of the server, or the end of the stream.
    Response(Result<WatchResponse, Problem>),
    /// It is time to try again.
    Reconnect,
}

impl Feed {
    /// The next event. Nothing is lost when the future is dropped early.
    pub(super) async fn next_event(&mut self) -> FeedEvent {
        match self {
            Self::Open(stream) => FeedEvent::Response(match stream.message().await {
                Ok(Some(response)) => Ok(response),
                Ok(None) => Err(Problem::Ended),
                Err(error) => Err(error.into()),
            }),
            Self::Closed { retry_at } => {
                sleep_until((*retry_at).into()).await;
                FeedEvent::Reconnect
            }
        }
    }
}
