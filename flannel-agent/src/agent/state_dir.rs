//! The state directory: one agent at a time, held by a lock that dies with the process.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};
use thiserror::Error;

/// The lock on a state directory.
#[derive(Debug)]
pub struct StateDir {
    _lock: Flock<File>,
}

/// Why a state directory could not be taken.
#[derive(Debug, Error)]
pub enum StateDirError {
    /// Another agent has it.
    #[error("another agent runs with the state directory {}; stop it first, or choose another --state-dir", .0.display())]
    Taken(PathBuf),
    /// The directory or its lock could not be made.
    #[error("cannot use the state directory {}: {source}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl StateDir {
    /// Makes the directory if it is missing, and takes it.
    pub fn claim(path: &Path) -> Result<Self, StateDirError> {
        let failed = |source| StateDirError::Io { path: path.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(failed)?;
        let file = File::options().create(true).append(true).open(lock(path)).map_err(failed)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self { _lock: lock }),
            Err((_, Errno::EWOULDBLOCK)) => Err(StateDirError::Taken(path.to_owned())),
            Err((_, errno)) => Err(failed(errno.into())),
        }
    }
}

/// The lock file.
pub fn lock(path: &Path) -> PathBuf {
    path.join("agent.lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_agent_at_a_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let state = dir.path().join("state");
        let first = StateDir::claim(&state).expect("free");
        assert!(matches!(StateDir::claim(&state), Err(StateDirError::Taken(path)) if path == state));
        drop(first);
        StateDir::claim(&state).expect("free again");
    }
}
