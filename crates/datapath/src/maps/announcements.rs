//! Connections that the programs announce (see `flannel_common::flow::connection`): conntrack is to
//! check their windows no longer.
//!
//! A separate thread reads the ring buffer, because a flow waits for it and the main loop may be
//! busy. Announcements that come while it works are done together. One that is lost, or refused,
//! leaves the connection to the kernel, and the programs announce it again.

use std::{
    io::{self, PipeWriter, pipe},
    os::fd::AsFd as _,
    thread::JoinHandle,
};

use aya::maps::{MapData, RingBuf};
use flannel_common::{abi::maps::CONNECTIONS, flow::connection::Connection};
use flannel_netfilter::ConntrackTable;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

use crate::{DatapathError, PinRoot, maps::pinned_map::from_pin};

/// Connections handled at once.
const BATCH: usize = 256;

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub struct Announcements {
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Announcements {
    /// Handles announcements from now on, in the network namespace of the calling thread.
    pub fn start(pins: &PinRoot) -> Result<Self, DatapathError> {
        let ring = RingBuf::try_from(from_pin(pins, CONNECTIONS)?)
            .map_err(DatapathError::map(CONNECTIONS))?;
        Self::spawn(ring).map_err(|source| DatapathError::Announcements { source })
    }

    fn spawn(ring: RingBuf<MapData>) -> io::Result<Self> {
        let mut handler = Handler {
            ring,
            table: ConntrackTable::open()?,
            is_refused: false,
        };
        let (stopped, stop) = pipe()?;
        let handling = move || {
            loop {
                let ready = PollFlags::POLLIN;
                let mut sources = [
                    PollFd::new(handler.ring.as_fd(), ready),
                    PollFd::new(stopped.as_fd(), ready),
                ];
                match poll(&mut sources, PollTimeout::NONE) {
                    Err(Errno::EINTR) => continue,
                    Err(error) => {
                        tracing::warn!(%error, "TCP flows take the kernel's path: no announcement \
                            is read");
                        return;
                    }
                    Ok(_) => {}
                }
                if sources[1].any() != Some(false) {
                    return;
                }
                handler.handle();
            }
        };
        let thread = std::thread::Builder::new()
            .name("connections".to_owned())
            .spawn(handling)?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Announcements {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that reads announced connections panicked");
        }
    }
}

struct Handler {
    ring: RingBuf<MapData>,
    table: ConntrackTable,
    is_refused: bool,
}

impl Handler {
    /// Handles all that is announced.
    fn handle(&mut self) {
        let mut announced = Vec::with_capacity(BATCH);
        loop {
            while announced.len() < BATCH
                && let Some(item) = self.ring.next()
            {
                announced.extend(Connection::from_bytes(&item));
            }
            if announced.is_empty() {
                return;
            }
            let done = self.table.stop_checking_windows(&announced);
            if let Err(error) = &done
                && !self.is_refused
            {
                tracing::warn!(%error, "TCP flows take the kernel's path: conntrack refuses to \
                    stop checking windows");
            }
            self.is_refused = done.is_err();
            announced.clear();
        }
    }
}
