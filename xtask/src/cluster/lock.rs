//! The lock of a cache: one checkout builds at a time, and others wait for it.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::Write as _,
    path::Path,
    process,
};

use anyhow::Context as _;

use crate::files;

/// A lock that is held. The kernel releases it at the latest when this process ends.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of a file, which contains the process number of its holder. If another
    /// process holds it, prints that and waits.
    pub(super) fn take(path: &Path) -> anyhow::Result<Self> {
        files::make_parent(path)?;
        let failed = || format!("cannot lock {}", path.display());
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                println!(
                    "cluster: another checkout builds it (pid {}); waiting",
                    holder(path)
                );
                file.lock().with_context(failed)?;
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(failed),
        }
        file.set_len(0).with_context(failed)?;
        write!(file, "{}", process::id()).with_context(failed)?;
        Ok(Self { _file: file })
    }
}

/// The process number in a lock's file; empty in the moment before it is written.
fn holder(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::{env, fs, sync::mpsc, thread, time::Duration};

    use super::*;

    #[test]
    fn the_second_waits_for_the_first() {
        let dir = env::temp_dir().join(format!("xtask-lock-{}", process::id()));
        let path = dir.join("kubernetes.lock");
        let first = Lock::take(&path).expect("a free lock");
        assert_eq!(holder(&path), process::id().to_string());
        thread::scope(|scope| {
            let (taken, is_taken) = mpsc::channel();
            let path = &path;
            scope.spawn(move || {
                let second = Lock::take(path).expect("a lock after the first");
                taken.send(()).expect("a test that waits");
                second
            });
            assert!(is_taken.recv_timeout(Duration::from_millis(100)).is_err());
            drop(first);
            is_taken.recv().expect("the second lock");
        });
        fs::remove_dir_all(&dir).expect("removed");
    }
}
