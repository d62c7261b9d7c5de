//! The agent's files in a state directory.

use std::path::{Path, PathBuf};

/// The path of the status socket in a state directory.
pub fn status_socket(dir: &Path) -> PathBuf {
    dir.join("agent.sock")
}

/// The record of the lease that this node published last.
pub fn lease_record(state_dir: &Path) -> PathBuf {
    state_dir.join("lease")
}

/// The lock file.
pub fn lock(dir: &Path) -> PathBuf {
    dir.join("agent.lock")
}

/// The file that becomes the lock file in the place of one that others may have open.
pub fn lock_in_making(dir: &Path) -> PathBuf {
    dir.join("agent.lock.new")
}
