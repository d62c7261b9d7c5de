//! The state directory: one agent at a time, held by a lock that dies with the process.
//!
//! The directory itself has mode 0755 where `subnet.env` is in it, as it is by default, for every
//! user may read that file. The agent's own files have 0600, and only its user may write into the
//! directory.

mod files;
mod lock;
mod rights;

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use flannel_datapath::attach::Ledger;
use flannel_host::{lock_holder::LockHolder, sysctl_record};
use nix::{fcntl::Flock, libc};
use thiserror::Error;

pub use self::files::{lease_record, lock, lock_in_making, status_socket};
use self::{
    lock::LockError,
    rights::{OF_OTHERS, STICKY, WRITABLE_BY_OTHERS},
};

/// The lock on a state directory.
#[derive(Debug)]
pub struct StateDir {
    _lock: Flock<File>,
}

/// A state directory that could not be taken.
#[derive(Debug, Error)]
pub enum StateDirError {
    /// Another agent has it, or another command of this program.
    #[error("the state directory {} is in use by {holder}; stop it first, or choose another \
        --state-dir", path.display())]
    Taken {
        /// The directory.
        path: PathBuf,
        /// The process that has the lock.
        holder: LockHolder,
    },
    /// All users may create files in it.
    #[error(
        "all users may create files in the state directory {} (mode {mode:04o}); choose another \
         --state-dir, or chmod go-w,-t it",
        path.display()
    )]
    Shared {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The directory or a file in it could not be made or changed.
    #[error("cannot use the state directory {}: {source}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl StateDir {
    /// Makes the directory if it is missing, corrects rights that are too wide, and takes it.
    ///
    /// A new directory has mode 0700 if `subnet_file` is known and lies elsewhere, else 0755.
    pub fn claim(path: &Path, subnet_file: Option<&Path>) -> Result<Self, StateDirError> {
        let failed = |source| StateDirError::Io {
            path: path.to_owned(),
            source,
        };
        let is_private = subnet_file.is_some_and(|file| !file.starts_with(path));
        create(path, if is_private { 0o700 } else { 0o755 }).map_err(failed)?;
        keep_others_from(path)?;
        let lock = lock::acquire(path).map_err(|error| match error {
            LockError::Held(holder) => StateDirError::Taken {
                path: path.to_owned(),
                holder,
            },
            LockError::Io(source) => failed(source),
        })?;
        for file in [
            Ledger::new(path).path(),
            &sysctl_record::path(path),
            &lease_record(path),
        ] {
            make_private(file).map_err(failed)?;
        }
        Ok(Self { _lock: lock })
    }
}

/// Parents are for everybody: they may lead to other directories as well.
fn create(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    path.parent().map_or(Ok(()), |parent| {
        DirBuilder::new().recursive(true).mode(0o755).create(parent)
    })?;
    DirBuilder::new().recursive(true).mode(mode).create(path)?;
    // Whatever the umask.
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Takes the right to write from other users: with it they could replace each file of the
/// directory.
fn keep_others_from(path: &Path) -> Result<(), StateDirError> {
    let failed = |source| StateDirError::Io {
        path: path.to_owned(),
        source,
    };
    let dir = File::open(path).map_err(failed)?;
    let mode = dir.metadata().map_err(failed)?.permissions().mode() & 0o7777;
    if mode & WRITABLE_BY_OTHERS == 0 {
        return Ok(());
    }
    if mode & STICKY != 0 {
        return Err(StateDirError::Shared {
            path: path.to_owned(),
            mode,
        });
    }
    let corrected = mode & !WRITABLE_BY_OTHERS;
    tracing::warn!(
        path = %path.display(),
        "other users could write into the state directory: mode {mode:04o} is now {corrected:04o}"
    );
    dir.set_permissions(Permissions::from_mode(corrected))
        .map_err(failed)
}

/// Corrects a file of an earlier version.
fn make_private(path: &Path) -> io::Result<()> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let mode = file.metadata()?.permissions().mode();
    if mode & OF_OTHERS == 0 {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(0o600))
}

#[cfg(test)]
mod tests;
