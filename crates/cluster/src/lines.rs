//! The lines of one node: a command in its agent's pod that runs on, and is started again after its
//! end.

use std::{pin::pin, time::Duration};

use flannel_host::error_chain::chain;
use flannel_store::Backoff;
use tokio::{select, sync::mpsc, time::sleep};

use super::{
    client::ClusterClient,
    error::ExecError,
    exec::{Container, Executed, LineLimits},
};

/// Before another start after a failure.
const RETRY: Backoff =
    Backoff::new(Duration::from_secs(1), Duration::from_secs(30), 20).expect("valid");

/// The command, and the container in which it runs.
pub struct LineStream {
    /// The API server.
    pub client: ClusterClient,
    /// The container of the agent.
    pub container: Container,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The bounds of a line, in bytes and in time.
    pub limits: LineLimits,
}

/// The reason why no line comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoLines {
    /// In words.
    Silent(String),
    /// The pod has no such program.
    StockFlannel,
}

/// The reader of the lines of a node.
pub trait LineReader: Send {
    /// Reads a line. The error is the reason why that is not possible, and ends the command.
    fn read(&mut self, line: &[u8]) -> Result<(), String>;
    /// Publishes the reason why no line comes until the command has been started again.
    fn stop(&mut self, reason: NoLines);
}

impl LineStream {
    /// Runs the command again and again. Ends when this future is dropped.
    pub async fn follow(self, mut reader: impl LineReader) {
        let mut delays = RETRY.delays();
        loop {
            let (has_answered, end) = self.run(&mut reader).await;
            if has_answered {
                delays.reset();
            }
            if let Some(reason) = end {
                reader.stop(reason);
                sleep(delays.next_delay()).await;
            }
        }
    }

    /// Runs the command once. Returns true if a line came, and the reason of the end; `None` if the
    /// command ended as it was asked to.
    async fn run(&self, reader: &mut impl LineReader) -> (bool, Option<NoLines>) {
        let (sender, mut lines) = mpsc::channel(1);
        let words: Vec<&str> = self.command.iter().map(String::as_str).collect();
        let mut running =
            pin!(
                self.client
                    .exec_lines(&self.container, &words, self.limits, sender)
            );
        let mut has_answered = false;
        let ended = loop {
            select! {
                biased;
                Some(line) = lines.recv() => match read(reader, &line) {
                    Ok(()) => has_answered = true,
                    Err(reason) => return (has_answered, Some(reason)),
                },
                ended = &mut running => break ended,
            }
        };
        // The last line and the end may come at once.
        if let Ok(line) = lines.try_recv() {
            match read(reader, &line) {
                Ok(()) => has_answered = true,
                Err(reason) => return (has_answered, Some(reason)),
            }
        }
        (has_answered, self.reason(ended, has_answered))
    }

    /// The reason after the end of a command.
    fn reason(&self, ended: Result<Executed, ExecError>, has_answered: bool) -> Option<NoLines> {
        match ended {
            Ok(Executed { code: 0, .. }) if has_answered => None,
            Ok(Executed { code, stderr, .. }) => {
                let said = stderr
                    .lines()
                    .find_map(|line| line.strip_prefix("error: "))
                    .or_else(|| stderr.lines().next());
                let command = self.command.get(..2).unwrap_or(&self.command).join(" ");
                let said =
                    said.map_or_else(|| format!("`{command}` ended with {code}"), str::to_owned);
                Some(NoLines::Silent(said))
            }
            Err(error) if error.lacks_program() => Some(NoLines::StockFlannel),
            Err(error) => Some(NoLines::Silent(chain(&error))),
        }
    }
}

fn read(reader: &mut impl LineReader, line: &[u8]) -> Result<(), NoLines> {
    reader
        .read(line)
        .map_err(|error| NoLines::Silent(format!("its output cannot be read: {error}")))
}
