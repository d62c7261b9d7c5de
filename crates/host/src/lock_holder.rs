//! The process that has a `flock(2)` on a file or a directory.

use std::{
    fmt,
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
};

use nix::sys::stat::{major, minor};

/// The locks of all processes of this PID namespace, and of those below it.
const LOCKS: &str = "/proc/locks";

/// The process that has a lock, as this process sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockHolder {
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

impl LockHolder {
    /// Returns the process that has the lock on an open file or directory.
    pub fn of(file: &File) -> Self {
        let pid = file.metadata().ok().and_then(|file| {
            let locks = fs::read_to_string(LOCKS).ok()?;
            holder_in(
                &locks,
                &format!(
                    "{:02x}:{:02x}:{}",
                    major(file.dev()),
                    minor(file.dev()),
                    file.ino()
                ),
            )
        });
        pid.map_or(Self::Unseen, Self::process)
    }

    /// Returns the process with this number.
    pub fn process(pid: i32) -> Self {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Self::Process {
            pid,
            name: name.trim_end().to_owned(),
        }
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, name } if name.is_empty() => write!(f, "process {pid}"),
            Self::Process { pid, name } => write!(f, "process {pid} ({})", name.escape_debug()),
            Self::Unseen => f.write_str(
                "a process that cannot be seen from here, such as one of another container",
            ),
        }
    }
}

/// Finds the holder of a `flock` on `inode`, which is `<major>:<minor>:<number>`, in the text of
/// [`LOCKS`].
fn holder_in(locks: &str, inode: &str) -> Option<i32> {
    locks.lines().find_map(
        |line| match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
            // A line of one that waits has `->` in the second place.
            [_, "FLOCK", _, _, pid, of, ..] if of == inode => {
                pid.parse().ok().filter(|pid| *pid > 0)
            }
            _ => None,
        },
    )
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
        let named = |name: &str| {
            LockHolder::Process {
                pid: 7,
                name: name.to_owned(),
            }
            .to_string()
        };
        assert_eq!(named("flannel-agent"), "process 7 (flannel-agent)");
        assert_eq!(named("\u{1b}[2Jx\n"), "process 7 (\\u{1b}[2Jx\\n)");
        assert_eq!(named(""), "process 7");
    }
}
