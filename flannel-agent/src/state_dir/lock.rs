//! The lock on a state directory: `flock(2)` on a file that no other user was ever able to open.
//!
//! Reading is enough for a lock, and a descriptor outlives a change of the mode. Versions up to
//! 0.1.0 created the file with mode
//! 0644. So a file that others may have open is not corrected: a new one, private from its creation
//!       and locked, is renamed over it. An agent of such a version holds its lock on the file
//!       replaced; it is known by its status socket, which others cannot bind.

use std::{
    fmt,
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::unix::{
        fs::{MetadataExt as _, OpenOptionsExt as _},
        net::UnixStream,
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
    libc,
    sys::{
        socket::{getsockopt, sockopt::PeerCredentials},
        stat::{major, minor},
    },
    unistd::geteuid,
};

use super::OF_OTHERS;
use crate::observe::socket;

/// A lock that could not be taken.
#[derive(Debug)]
pub(super) enum LockError {
    /// Another process has it.
    Held(Holder),
    /// The file could not be made or locked.
    Io(io::Error),
}

impl From<io::Error> for LockError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The process that has a lock, as this process sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A process of this PID namespace.
    Process {
        /// Its number.
        pid: i32,
        /// The name of its program; empty once it has ended.
        name: String,
    },
    /// The kernel does not name it here.
    Unseen,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, name } if name.is_empty() => write!(f, "process {pid}"),
            Self::Process { pid, name } => write!(f, "process {pid} ({})", name.escape_debug()),
            Self::Unseen => f.write_str("a process that cannot be seen from here, such as one of another container"),
        }
    }
}

/// The lock file.
pub fn lock(dir: &Path) -> PathBuf {
    dir.join("agent.lock")
}

/// The file that becomes the lock file in the place of one that others may have open.
pub fn lock_in_making(dir: &Path) -> PathBuf {
    dir.join("agent.lock.new")
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
        let lock = try_lock(file)?.map_err(|file| LockError::Held(holder_of(&file)))?;
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
    let stranger = exposed.as_ref().err().map(holder_of);
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
    let lock = try_lock(file)?.map_err(|file| LockError::Held(holder_of(&file)))?;
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
        tracing::warn!(path = %path.display(), "replaced the lock file, which was locked by {holder}: no agent answers");
    }
    Ok(Some(lock))
}

/// Opens for writing: what is no regular file is none that others cannot open, and replaced.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
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
fn listener(dir: &Path) -> io::Result<Option<Holder>> {
    let stream = match UnixStream::connect(socket::path(dir)) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let pid = getsockopt(&stream, PeerCredentials)?.pid();
    Ok(Some(if pid > 0 { process(pid) } else { Holder::Unseen }))
}

/// The process that has the `flock` on a file. The kernel lists those of this PID namespace and
/// below.
fn holder_of(file: &File) -> Holder {
    let pid = file.metadata().ok().and_then(|file| {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        holder_in(&locks, &format!("{:02x}:{:02x}:{}", major(file.dev()), minor(file.dev()), file.ino()))
    });
    pid.map_or(Holder::Unseen, process)
}

fn process(pid: i32) -> Holder {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Holder::Process { pid, name: name.trim_end().to_owned() }
}

/// Finds the holder of a `flock` on `inode`, which is `<major>:<minor>:<number>`, in the text of
/// `/proc/locks`.
fn holder_in(locks: &str, inode: &str) -> Option<i32> {
    locks.lines().find_map(|line| match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
        // A line of one that waits has `->` in the second place.
        [_, "FLOCK", _, _, pid, of, ..] if of == inode => pid.parse().ok().filter(|pid| *pid > 0),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_the_one_that_does_not_wait() {
        let locks = "1: POSIX  ADVISORY  WRITE 10 00:19:7 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 20 00:19:70 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 30 00:19:7 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 40 00:19:7 0 EOF\n\
                     4: OFDLCK ADVISORY  READ -1 00:19:8 0 EOF\n";
        assert_eq!(holder_in(locks, "00:19:7"), Some(40));
        assert_eq!(holder_in(locks, "00:19:8"), None);
        assert_eq!(holder_in("", "00:19:7"), None);
    }

    #[test]
    fn a_holder_is_named_and_its_name_is_no_escape_sequence() {
        let named = |name: &str| Holder::Process { pid: 7, name: name.to_owned() }.to_string();
        assert_eq!(named("flannel-agent"), "process 7 (flannel-agent)");
        assert_eq!(named("\u{1b}[2Jx\n"), "process 7 (\\u{1b}[2Jx\\n)");
        assert_eq!(named(""), "process 7");
    }
}
