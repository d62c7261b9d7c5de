//! The wait for the lock on a word that several processes write.

use std::time::Duration;

/// The longest wait for another writer. Only one that was stopped between two system calls needs
/// more.
pub const PATIENCE: Duration = Duration::from_secs(1);
