//! The documents of one node.

use std::{sync::Arc, time::Duration};

use flannel_top::document::TopDocument;
use tokio::sync::{Notify, watch};

use crate::{
    exec::LineLimits,
    lines::{LineReader, NoLines},
};

/// The longest document. Its rows are limited, the problems in it are not.
const LONGEST: u64 = 4 << 20;
/// In addition to the intervals that a document takes: the command starts, and the node is busy.
const SLACK: Duration = Duration::from_secs(10);
/// Between two listings of the nodes.
const LISTING: Duration = Duration::from_secs(10);
/// After this time the command ends by itself: one whose connection is lost is not stopped by every
/// container runtime.
const LIFE: Duration = Duration::from_mins(10);
/// Problems of a document that are kept.
const PROBLEMS: usize = 20;

/// The command to run on each node.
#[derive(Clone, Copy, Debug)]
pub struct StreamSettings {
    /// The time between two documents: whole seconds, at least one.
    pub interval: Duration,
    /// The most peers and flows in a document.
    pub rows: usize,
    /// The time without a document after which a node does not answer.
    pub silence: Duration,
    /// The time between two listings of the nodes.
    pub listing: Duration,
}

/// The last that is known of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum StreamState {
    /// No document came yet.
    #[default]
    Asked,
    /// Its last document.
    Live(Box<Reading>),
    /// No document comes, for this reason.
    Silent(String),
    /// Its pod has no such program.
    StockFlannel,
}

/// A document, cut to what is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The document.
    pub document: TopDocument,
    /// The number of problems; the document has the first of them.
    pub problems: usize,
}

impl Reading {
    /// Keeps a part of a document.
    pub fn new(mut document: TopDocument, rows: usize) -> Self {
        let problems = document.problems.len();
        document.problems.truncate(PROBLEMS);
        document.peers.truncate(rows);
        document.flows.truncate(rows);
        document.kernel.clear();
        Self { document, problems }
    }

    /// Returns true if an agent answered on the node: without one its problems are not known.
    pub(super) fn has_agent(&self) -> bool {
        self.document.ready.is_some()
    }
}

impl StreamSettings {
    /// The usual settings with this interval and number of rows.
    pub const fn new(interval: Duration, rows: usize) -> Self {
        let silence = interval.saturating_mul(2).saturating_add(SLACK);
        Self {
            interval,
            rows,
            silence,
            listing: LISTING,
        }
    }

    pub(super) fn command(self) -> Vec<String> {
        let seconds = self.interval.as_secs().max(1);
        let count = LIFE.as_secs().div_ceil(seconds);
        let words = ["flannel-agent", "top", "--output=json"].map(str::to_owned);
        let flags = [
            format!("--interval={seconds}"),
            format!("--rows={}", self.rows),
            format!("--count={count}"),
        ];
        words.into_iter().chain(flags).collect()
    }

    pub(super) const fn limits(self) -> LineLimits {
        LineLimits {
            bytes: LONGEST,
            silence: self.silence,
        }
    }
}

/// The reader of the documents of one node.
pub(super) struct DocumentReader {
    /// The most peers and flows of a document.
    pub(super) rows: usize,
    /// Only the last state is kept.
    pub(super) state: watch::Sender<StreamState>,
    /// Notified when the state changes.
    pub(super) changed: Arc<Notify>,
}

impl DocumentReader {
    fn publish(&self, state: StreamState) {
        self.state.send_replace(state);
        self.changed.notify_one();
    }
}

impl LineReader for DocumentReader {
    fn read(&mut self, line: &[u8]) -> Result<(), String> {
        let document = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        self.publish(StreamState::Live(Box::new(Reading::new(
            document, self.rows,
        ))));
        Ok(())
    }

    fn stop(&mut self, reason: NoLines) {
        self.publish(match reason {
            NoLines::Silent(reason) => StreamState::Silent(reason),
            NoLines::StockFlannel => StreamState::StockFlannel,
        });
    }
}
