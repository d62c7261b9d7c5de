//! The stream of changes, and where in the server's history we are.

use std::time::{Duration, Instant};

use flannel_host::clock::{BootTime, until};
use futures::StreamExt as _;
use kube::core::WatchEvent;
use tokio::time::sleep_until;

use super::{client::WatchStream, error::Problem};

/// A point in the server's history of one kind of object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Position(String);

impl Position {
    pub(super) fn new(version: String) -> Self {
        Self(version)
    }

    pub(super) fn version(&self) -> &str {
        &self.0
    }

    /// Moves on. A server that is behind us has lost history, and would let us wait for changes
    /// that were.
    pub(super) fn advance(&mut self, version: &str) -> Result<(), Problem> {
        if is_older(version, &self.0) {
            return Err(Problem::WentBack { from: self.0.clone(), to: version.to_owned() });
        }
        if !version.is_empty() {
            version.clone_into(&mut self.0);
        }
        Ok(())
    }
}

/// Returns true if `version` precedes `than`. Versions are numbers on every server seen so far;
/// returns false for any other form.
pub(super) fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u64>(), than.parse::<u64>()), (Ok(version), Ok(than)) if version < than)
}

/// The state of the stream of changes of such objects.
pub(super) enum Feed<T> {
    /// Changes arrive. The last one arrived at `heard`, by a clock that continues while the machine
    /// is suspended.
    Open { stream: WatchStream<T>, opened: Instant, heard: BootTime },
    /// No changes arrive; open the stream again at `retry_at`.
    Closed { retry_at: Instant },
}

/// An event of a feed.
pub(super) enum FeedEvent<T> {
    /// A change that the server sent.
    Change(WatchEvent<T>),
    /// The watch is over, as all are in the end; take it up again.
    Ended,
    /// The watch broke.
    Broken(Problem),
    /// It is time to try again.
    Reconnect,
}

impl<T> Feed<T> {
    pub(super) fn open(stream: WatchStream<T>) -> Self {
        Self::Open { stream, opened: Instant::now(), heard: BootTime::now() }
    }

    /// The time since the stream was opened; none while it is closed.
    pub(super) fn age(&self) -> Duration {
        match self {
            Self::Open { opened, .. } => opened.elapsed(),
            Self::Closed { .. } => Duration::ZERO,
        }
    }

    /// The next event. Nothing is lost when the future is dropped early.
    pub(super) async fn next_event(&mut self, silence: Duration) -> FeedEvent<T> {
        match self {
            Self::Open { stream, heard, .. } => {
                let next = tokio::select! {
                    next = stream.next() => next,
                    () = until(Some(*heard + silence)) => return FeedEvent::Broken(Problem::Silent(silence)),
                };
                *heard = BootTime::now();
                match next {
                    Some(Ok(WatchEvent::Error(status))) => FeedEvent::Broken(Problem::Status(status)),
                    Some(Ok(change)) => FeedEvent::Change(change),
                    Some(Err(error)) => FeedEvent::Broken(error.into()),
                    None => FeedEvent::Ended,
                }
            }
            Self::Closed { retry_at } => {
                sleep_until((*retry_at).into()).await;
                FeedEvent::Reconnect
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_goes_forward() {
        let mut position = Position::new("9".to_owned());
        for version in ["10", "", "10", "11"] {
            position.advance(version).expect("forward");
        }
        assert_eq!(position.version(), "11");
        let back = position.advance("9").expect_err("back");
        assert!(back.is_outdated(), "{back}");
        position.advance("opaque").expect("who knows");
        position.advance("1").expect("who knows");
    }
}
