//! Waiting for a file, or for the end.

use std::{io, os::fd::AsFd, sync::Arc};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::{EfdFlags, EventFd},
};

/// A signal that stays once it is given. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Signal(Arc<EventFd>);

impl Signal {
    /// Not given.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(EventFd::from_flags(
            EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK,
        )?)))
    }

    /// Gives it.
    pub(crate) fn give(&self) {
        // It can only fail at the largest count, and then it is given.
        let _ = self.0.write(1);
    }
}

/// The reason for which waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The file is ready, or has an error to be read.
    File,
    /// The signal is given.
    Signal,
}

/// Waits until a file can be read.
pub(crate) fn await_readable(file: &impl AsFd, signal: &Signal) -> io::Result<Awaited> {
    let fds = &mut [
        PollFd::new(file.as_fd(), PollFlags::POLLIN),
        PollFd::new(signal.0.as_fd(), PollFlags::POLLIN),
    ];
    wait(fds, PollTimeout::NONE)?;
    Ok(if fds[1].any() == Some(true) {
        Awaited::Signal
    } else {
        Awaited::File
    })
}

/// Waits until a file can be written, for at most `milliseconds`. Returns false if it still cannot.
pub(crate) fn await_writable(file: &impl AsFd, milliseconds: u16) -> io::Result<bool> {
    wait(
        &mut [PollFd::new(file.as_fd(), PollFlags::POLLOUT)],
        PollTimeout::from(milliseconds),
    )
}

/// Returns false if the time is over.
fn wait(fds: &mut [PollFd<'_>], timeout: PollTimeout) -> io::Result<bool> {
    loop {
        match poll(fds, timeout) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
