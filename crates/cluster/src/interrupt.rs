//! The end that the user asks for: ctrl-c, or SIGTERM of a supervisor.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT and SIGTERM, which no longer end the process once this exists.
#[derive(Debug)]
pub struct Interrupt {
    int: Signal,
    term: Signal,
}

impl Interrupt {
    /// From now on.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal; one that came before is not lost.
    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.int.recv() => {}
            _ = self.term.recv() => {}
        }
    }
}
