//! A map of one word that agent and CLI both write.
//!
//! The next word depends on the one before, and reading and writing are two system calls. Every
//! writer therefore holds an advisory lock (`flock`) on the directory of all pins (`v<SCHEMA>`) in
//! between: each process that can open the map can open that directory, whatever its state
//! directory and its network namespace are, and the kernel releases the lock of a process that
//! dies. Readers need no lock. One lock serves all words, because it is held for microseconds. The
//! directory of the maps is locked by a monitor for as long as it runs.

use std::{
    fs::File,
    io,
    path::PathBuf,
    thread::sleep,
    time::{Duration, Instant},
};

use aya::{
    Pod,
    maps::{Array, MapData},
};
use flannel_common::abi::maps::ONLY;
use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

pub use crate::kernel::lock_wait::PATIENCE;
use crate::{DatapathError, PinRoot, maps::pinned_map::from_pin};

/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// The map.
pub(crate) struct SharedWord<W: Pod> {
    array: Array<MapData, W>,
    name: &'static str,
    path: PathBuf,
    directory: File,
}

impl<W: Pod + PartialEq> SharedWord<W> {
    /// Opens the pin of the map of this name.
    pub(crate) fn open(pins: &PinRoot, name: &'static str) -> Result<Self, DatapathError> {
        let array = Array::try_from(from_pin(pins, name)?).map_err(DatapathError::map(name))?;
        let path = pins.dir().to_owned();
        let directory = File::open(&path).map_err(|source| DatapathError::Lock {
            path: path.clone(),
            source,
        })?;
        Ok(Self {
            array,
            name,
            path,
            directory,
        })
    }

    /// The word.
    pub(crate) fn get(&self) -> Result<W, DatapathError> {
        self.array
            .get(&ONLY, 0)
            .map_err(DatapathError::map(self.name))
    }

    /// Replaces the word by what `next` makes of it, while no other process writes. Returns true if
    /// that is another word.
    pub(crate) fn update(&mut self, next: impl FnOnce(W) -> W) -> Result<bool, DatapathError> {
        let _alone = self.lock()?;
        self.replace(next)
    }

    /// As [`Self::update`], but writes also without the lock, for an operator's emergency. Returns
    /// the reason why another process may overwrite the word, if one may.
    pub(crate) fn update_anyway(
        &mut self,
        next: impl FnOnce(W) -> W,
    ) -> Result<Option<DatapathError>, DatapathError> {
        let alone = self.lock();
        self.replace(next)?;
        Ok(alone.err())
    }

    fn replace(&mut self, next: impl FnOnce(W) -> W) -> Result<bool, DatapathError> {
        let old = self.get()?;
        let new = next(old);
        if new == old {
            return Ok(false);
        }
        self.array
            .set(ONLY, new, 0)
            .map_err(DatapathError::map(self.name))?;
        Ok(true)
    }

    /// The lock, until it is dropped. It belongs to the open directory, of which each value has its
    /// own.
    fn lock(&self) -> Result<Flock<File>, DatapathError> {
        let failed = |source: io::Error| DatapathError::Lock {
            path: self.path.clone(),
            source,
        };
        let mut file = self.directory.try_clone().map_err(failed)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(lock),
                Err((_, Errno::EWOULDBLOCK)) if Instant::now() >= deadline => {
                    return Err(DatapathError::Locked {
                        path: self.path.clone(),
                    });
                }
                Err((file, Errno::EWOULDBLOCK | Errno::EINTR)) => file,
                Err((_, errno)) => return Err(failed(errno.into())),
            };
            sleep(PAUSE);
        }
    }
}
