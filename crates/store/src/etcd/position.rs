//! Our place in etcd's history.

use etcd_client::{Event, KeyValue, ResponseHeader, WatchResponse};

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
        let last_event = response
            .events()
            .iter()
            .filter_map(Event::kv)
            .map(KeyValue::mod_revision)
            .max();
        let progress = response
            .header()
            .filter(|_| !response.created())
            .map(ResponseHeader::revision);
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
