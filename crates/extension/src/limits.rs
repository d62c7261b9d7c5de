//! The limits of a command: its time, and its output.

use std::time::Duration;

/// The longest time that a command may take.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);
/// The bytes that are kept of what a command prints. A lease, which has this of one, is small.
pub(super) const LIMIT: usize = 16 << 10;
