//! The lock on a pin root, for agents of other network namespaces with the same BPF filesystem.
//!
//! The names of sockets are those of one network namespace; a
//! [flock(2)](https://man7.org/linux/man-pages/man2/flock.2.html) on the directory holds in all.
//! The owner's identity is the target of a symbolic link below the pin root, because a BPF
//! filesystem has directories, links and pins, and no files to write (`bpf_dir_iops` in
//! [kernel/bpf/inode.c](https://elixir.bootlin.com/linux/v6.1/source/kernel/bpf/inode.c), 4.10 to
//! 6.18). The link stays when the agent ends; without the lock it means nothing.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, symlink},
    path::{Path, PathBuf},
};

use flannel_datapath::PinRoot;
use flannel_host::lock_holder::LockHolder;
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
    libc,
};

use super::{Claimant, Identity};

/// A lock that could not be taken.
#[derive(Debug)]
pub(super) enum PinLockError {
    /// Another agent has it.
    Held(Claimant),
    /// The directory could not be opened or locked.
    Io(io::Error),
}

impl From<io::Error> for PinLockError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Takes the lock on a pin root. `None` where the directory does not exist: no pin is shared.
pub(super) fn take(root: &Path, identity: &Identity) -> Result<Option<Flock<File>>, PinLockError> {
    loop {
        let Some(lock) = try_lock(root)? else {
            return Ok(None);
        };
        // `cleanup` may have removed the directory before it was locked.
        if is_at(&lock, root) {
            if let Err(error) = write_identity(root, identity) {
                tracing::debug!(%error, root = %root.display(), "another agent would not learn who \
                    has these pins");
            }
            return Ok(Some(lock));
        }
    }
}

/// Returns the agent that has the lock on a pin root.
pub(super) fn holder(root: &Path) -> Option<Claimant> {
    match try_lock(root) {
        Err(PinLockError::Held(owner)) => Some(owner),
        Ok(_) | Err(PinLockError::Io(_)) => None,
    }
}

fn try_lock(root: &Path) -> Result<Option<Flock<File>>, PinLockError> {
    let dir = match OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY)
        .open(root)
    {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        dir => dir?,
    };
    match Flock::lock(dir, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((dir, Errno::EWOULDBLOCK)) => Err(PinLockError::Held(owner(&dir, root))),
        Err((_, errno)) => Err(io::Error::from(errno).into()),
    }
}

fn is_at(dir: &File, path: &Path) -> bool {
    let place = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    dir.metadata().ok().map(place) == path.metadata().ok().map(place)
}

/// The owner by its own words, and by its process where that can be seen from here.
fn owner(dir: &File, root: &Path) -> Claimant {
    let pid = match LockHolder::of(dir) {
        LockHolder::Process { pid, .. } => Some(pid),
        LockHolder::Unseen => None,
    };
    // The owner may be of a version with another schema, and removes the pins of all others.
    let target = PinRoot::of_all_schemas(root)
        .iter()
        .find_map(|pins| fs::read_link(link(pins)).ok());
    let identity = target.and_then(|target| serde_json::from_str(target.to_str()?).ok());
    Claimant { pid, identity }
}

/// Replaces the link of a former owner.
fn write_identity(root: &Path, identity: &Identity) -> io::Result<()> {
    let link = link(&PinRoot::new(root));
    match fs::remove_file(&link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    symlink(identity.answer().trim_end(), link)
}

/// The link is among the pins of one schema, which a cleanup removes together.
fn link(pins: &PinRoot) -> PathBuf {
    pins.dir().join("owner")
}
