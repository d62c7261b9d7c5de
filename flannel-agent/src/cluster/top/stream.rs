//! The documents of one node: one command in its agent's pod that runs on, and is started again
//! after its end.

use std::{sync::Arc, time::Duration};

use flannel_host::error_chain::chain;
use flannel_store::Backoff;
use tokio::{
    select,
    sync::{Notify, mpsc, watch},
    time::sleep,
};

use crate::{
    cluster::{
        client::ClusterClient,
        error::ExecError,
        exec::{Container, Executed, LineLimits},
    },
    top::document::TopDocument,
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
/// Before another start after a failure.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30), 20).expect("valid");
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
        Self { interval, rows, silence, listing: LISTING }
    }

    fn command(self) -> Vec<String> {
        let seconds = self.interval.as_secs().max(1);
        let count = LIFE.as_secs().div_ceil(seconds);
        let words = ["flannel-agent", "top", "--output=json"].map(str::to_owned);
        let flags = [format!("--interval={seconds}"), format!("--rows={}", self.rows), format!("--count={count}")];
        words.into_iter().chain(flags).collect()
    }

    const fn limits(self) -> LineLimits {
        LineLimits { bytes: LONGEST, silence: self.silence }
    }
}

/// The documents of one node.
pub(super) struct NodeStream {
    pub(super) client: ClusterClient,
    pub(super) container: Container,
    pub(super) settings: StreamSettings,
    /// Only the last state is kept.
    pub(super) state: watch::Sender<StreamState>,
    /// Notified when the state changes.
    pub(super) changed: Arc<Notify>,
}

impl NodeStream {
    /// Runs the command again and again. Ends when this future is dropped.
    pub(super) async fn follow(self) {
        let mut delays = RETRY.delays();
        loop {
            let (answered, state) = self.run().await;
            if answered {
                delays.reset();
            }
            if let Some(state) = state {
                self.publish(state);
                sleep(delays.next_delay()).await;
            }
        }
    }

    /// Runs the command once. Returns true if a document came, and the state after the end; `None`
    /// if the command ended as it was asked to.
    async fn run(&self) -> (bool, Option<StreamState>) {
        let (sender, mut lines) = mpsc::channel(1);
        let command = self.settings.command();
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let running = self.client.exec_lines(&self.container, &words, self.settings.limits(), sender);
        let mut running = std::pin::pin!(running);
        let mut answered = false;
        let ended = loop {
            select! {
                biased;
                Some(line) = lines.recv() => match self.read(&line) {
                    Ok(()) => answered = true,
                    Err(silent) => return (answered, Some(silent)),
                },
                ended = &mut running => break ended,
            }
        };
        // The last line and the end may come at once.
        if let Ok(line) = lines.try_recv() {
            match self.read(&line) {
                Ok(()) => answered = true,
                Err(silent) => return (answered, Some(silent)),
            }
        }
        (answered, after(ended, answered))
    }

    /// Publishes the document on a line.
    fn read(&self, line: &[u8]) -> Result<(), StreamState> {
        let document = serde_json::from_slice(line);
        let document = document.map_err(|error| StreamState::Silent(format!("its output cannot be read: {error}")))?;
        self.publish(StreamState::Live(Box::new(Reading::new(document, self.settings.rows))));
        Ok(())
    }

    fn publish(&self, state: StreamState) {
        self.state.send_replace(state);
        self.changed.notify_one();
    }
}

/// The state after the end of a command.
fn after(ended: Result<Executed, ExecError>, answered: bool) -> Option<StreamState> {
    match ended {
        Ok(Executed { code: 0, .. }) if answered => None,
        Ok(Executed { code, stderr, .. }) => {
            let said = stderr.lines().next().map(|line| line.trim_start_matches("error: ").to_owned());
            Some(StreamState::Silent(said.unwrap_or_else(|| format!("`flannel-agent top` ended with {code}"))))
        }
        Err(error) if error.lacks_program() => Some(StreamState::StockFlannel),
        Err(error) => Some(StreamState::Silent(chain(&error))),
    }
}
