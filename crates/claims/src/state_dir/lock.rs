//! The lock on a state directory: `flock(2)` on a file that no other user was ever able to open.
//!
//! Reading is enough for a lock, and a descriptor outlives a change of the mode. Versions up to
//! 0.1.0 created the file with mode
//! 0644. So a file that others may have open is not corrected: a new one, private from its creation
//!       and locked, is renamed over it. An agent of such a version holds its lock on the file
//!       replaced; it is known by its status socket, which others cannot bind.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::unix::{
        fs::{MetadataExt as _, OpenOptionsExt as _},
        net::UnixStream,
    },
    path::Path,
};

use flannel_host::lock_holder::LockHolder;
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
    libc,
    sys::socket::{getsockopt, sockopt::PeerCredentials},
    unistd::geteuid,
};

use super::{
    files::{lock, lock_in_making, status_socket},
    rights::OF_OTHERS,
};

/// A lock that could not be taken.
#[derive(Debug)]
pub(super) enum LockError {
    /// Another process has it.
    Held(LockHolder),
    /// The file could not be made or locked.
    Io(io::Error),
}

impl From<io::Error> for LockError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Takes the lock, or says at once who has it.
pub(super) fn acquire(dir: &Path) -> Result<Flock<File>, LockError> {
    let path = lock(dir);
    loop {
        let file = open(&path)?;
        if !is_private(&file.metadata()?) {
            if let Some(lock) = replace(dir, file)? {
                return Ok(lock);
            }
            continue;
        }
        let lock = try_lock(file)?.map_err(|file| LockError::Held(LockHolder::of(&file)))?;
        // `cleanup` may have removed the file before we had the lock on it.
        if is_at(&lock, &path)? {
            return Ok(lock);
        }
    }
}

/// Replaces a lock file that others may have open. `None` if another process was faster.
///
/// Only who has the lock on the new file may rename it, so of two processes that do this one gets
/// the lock.
fn replace(dir: &Path, exposed: File) -> Result<Option<Flock<File>>, LockError> {
    let (path, new) = (lock(dir), lock_in_making(dir));
    let exposed = try_lock(exposed)?;
    let stranger = exposed.as_ref().err().map(LockHolder::of);
    if stranger.is_some()
        && let Some(agent) = listener(dir)?
    {
        return Err(LockError::Held(agent));
    }
    let file = open(&new)?;
    if !is_private(&file.metadata()?) {
        // From a time when others could write into the directory.
        fs::remove_file(&new)?;
        return Ok(None);
    }
    let lock = try_lock(file)?.map_err(|file| LockError::Held(LockHolder::of(&file)))?;
    if !is_at(&lock, &new)? {
        return Ok(None);
    }
    match path.symlink_metadata() {
        Ok(current) if !is_private(&current) => fs::rename(&new, &path)?,
        _ => {
            fs::remove_file(&new)?;
            return Ok(None);
        }
    }
    if !is_at(&lock, &path)? {
        return Ok(None);
    }
    if let Some(holder) = stranger {
        tracing::warn!(path = %path.display(), "replaced the lock file, which was locked by \
            {holder}: no agent answers");
    }
    Ok(Some(lock))
}

/// Opens for writing. Anything but a regular file counts as one that others may have open, and is
/// replaced.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    options
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
}

/// Returns true for a file that other users cannot open.
fn is_private(file: &Metadata) -> bool {
    file.is_file() && file.uid() == geteuid().as_raw() && file.mode() & OF_OTHERS == 0
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let file = file.metadata()?;
    match path.symlink_metadata() {
        Ok(there) => Ok((there.dev(), there.ino()) == (file.dev(), file.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The lock, or the file if another process has it.
fn try_lock(file: File) -> io::Result<Result<Flock<File>, File>> {
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Ok(lock)),
        Err((file, Errno::EWOULDBLOCK)) => Ok(Err(file)),
        Err((_, errno)) => Err(errno.into()),
    }
}

/// The agent that listens on the status socket. Every version has it, and only the directory's
/// owner can bind it.
fn listener(dir: &Path) -> io::Result<Option<LockHolder>> {
    let stream = match UnixStream::connect(status_socket(dir)) {
        Ok(stream) => stream,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let pid = getsockopt(&stream, PeerCredentials)?.pid();
    Ok(Some(if pid > 0 {
        LockHolder::process(pid)
    } else {
        LockHolder::Unseen
    }))
}
