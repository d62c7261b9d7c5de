//! One line on a terminal about work that takes more than two seconds.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::{Duration, Instant},
};

/// Work of less time passes without a line.
const SILENT: Duration = Duration::from_secs(2);

/// The line. It goes to standard error, and is taken away when this is dropped.
#[derive(Debug)]
pub struct Progress {
    start: Instant,
    is_terminal: bool,
    is_shown: bool,
}

impl Progress {
    /// Starts the clock. The line appears only on a terminal.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            is_terminal: io::stderr().is_terminal(),
            is_shown: false,
        }
    }

    /// Replaces the line.
    pub fn show(&mut self, text: &str) {
        if !self.is_terminal || self.start.elapsed() < SILENT {
            return;
        }
        self.is_shown = true;
        let seconds = self.start.elapsed().as_secs();
        // A terminal that has gone away does not count as an error.
        let _ = write!(io::stderr(), "\r\x1b[K{text} ({seconds} s)")
            .and_then(|()| io::stderr().flush());
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
