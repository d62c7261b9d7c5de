//! One call at a time for an interface of a container, delegates included.
//!
//! The runtime promises as much, but a runtime that gives up an ADD kills us, not the delegate: its
//! DEL then meets a delegate that still adds. So the lock is one that our children inherit, and it
//! lasts until the last of them ends.
//!
//! All locks are on one file, which stays: each key has a byte of it. Two keys may share a byte;
//! then one waits.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, FdFlag, fcntl},
    libc,
};

use crate::{
    error::Error,
    state::{Key, StateDir},
};

/// Longer than a delegate takes, shorter than a runtime waits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

const PAUSE: Duration = Duration::from_millis(10);

/// The lock of an interface. It is held until this value is dropped and every child started while
/// it existed has ended.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for the lock, at most `patience`: [`Error::Busy`].
    pub(crate) fn acquire(state: &StateDir, key: &Key, patience: Duration) -> Result<Self, Error> {
        let path = state.path().join(".lock");
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW);
        let file = options.open(&path);
        let file = file.map_err(Error::io("open", &path))?;
        let start = Instant::now();
        while !try_lock(&file, key).map_err(Error::io("lock", &path))? {
            if start.elapsed() >= patience {
                let (container_id, ifname) = (
                    key.container_id.clone(),
                    key.ifname.clone().unwrap_or_default(),
                );
                return Err(Error::Busy {
                    container_id,
                    ifname,
                });
            }
            thread::sleep(PAUSE);
        }
        fcntl(&file, FcntlArg::F_SETFD(FdFlag::empty()))
            .map_err(|errno| Error::io("pass on", &path)(errno.into()))?;
        Ok(Self { _file: file })
    }
}

/// An open-file-description lock: unlike a process's, it is the children's too.
#[expect(
    clippy::cast_possible_truncation,
    reason = "constants that C's headers declare wider than the field"
)]
fn try_lock(file: &File, key: &Key) -> io::Result<bool> {
    let range = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: byte_of(key),
        l_len: 1,
        l_pid: 0,
    };
    match fcntl(file, FcntlArg::F_OFD_SETLK(&range)) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// FNV-1a: it must be the same in every version of this program.
fn byte_of(key: &Key) -> libc::off_t {
    let hash = key
        .to_string()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    libc::off_t::from((hash >> 33) as u32)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn key(container_id: &str) -> Key {
        Key {
            container_id: container_id.to_owned(),
            ifname: Some("eth0".to_owned()),
            network: None,
        }
    }

    #[test]
    fn a_child_keeps_the_lock_of_one_key() {
        let scratch = tempfile::tempdir().expect("a directory");
        let state = StateDir::create(scratch.path()).expect("a directory");
        let lock = Lock::acquire(&state, &key("a"), Duration::ZERO).expect("free");
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("cat");
        drop(lock);
        let busy = Lock::acquire(&state, &key("a"), Duration::ZERO).expect_err("held by the child");
        assert_eq!(busy.code(), 11, "{busy}");
        Lock::acquire(&state, &key("b"), Duration::ZERO).expect("another key");

        drop(child.stdin.take());
        child.wait().expect("its end");
        Lock::acquire(&state, &key("a"), Duration::ZERO).expect("free again");
    }

    #[test]
    fn the_byte_does_not_change_with_versions() {
        assert_eq!(byte_of(&key("a")), 182_882_718);
    }
}
