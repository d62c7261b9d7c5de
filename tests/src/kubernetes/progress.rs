//! Lines about the start of a cluster, which takes a minute.

use std::time::Instant;

/// Says how long it took so far.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    start: Instant,
}

impl Progress {
    /// From now on.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// Prints that something is so now.
    pub fn say(&self, what: &str) {
        println!(
            "cluster: {what} ({:.0} s)",
            self.start.elapsed().as_secs_f32()
        );
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}
