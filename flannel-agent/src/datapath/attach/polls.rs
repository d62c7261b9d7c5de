//! The program behind NAPI polls, by which a packet that waited for userspace is told from one that did not.
//!
//! Every poll of every device pays for it, so it is attached where somebody listens to a queue and nowhere else. Once it is, it stays
//! for as long as mode `fast` is in force, and outlives the agent: who listened once may be back at any moment.

use std::{fs, io};

use aya::programs::{RawTracePoint, links::FdLink};
use flannel_common::program::COUNT_POLLS;

use crate::datapath::{DatapathError, PinRoot, attach::tcx};

/// What is behind every poll.
pub const TRACEPOINT: &str = "napi_poll";

/// The listeners of this network namespace; not there where the kernel queues no packets.
const LISTENERS: &str = "/proc/net/netfilter/nfnetlink_queue";

/// Whether packets of this network namespace may be queued to userspace. Where that cannot be told they may.
pub fn are_needed() -> bool {
    match fs::read(LISTENERS) {
        Ok(listeners) => !listeners.is_empty(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Whether an agent attached the program, this one or one before.
pub fn are_counted(pins: &PinRoot) -> bool {
    pins.links().join(COUNT_POLLS).exists()
}

/// Attaches the pinned program, in place of the one an earlier agent may have left, without a moment in which there is none.
pub fn attach(pins: &PinRoot) -> Result<(), DatapathError> {
    let mut program = RawTracePoint::from_pin(pins.poll_counter()).map_err(DatapathError::program(COUNT_POLLS))?;
    let link = program.attach(TRACEPOINT).and_then(|id| program.take_link(id));
    let link = link.map_err(DatapathError::program(COUNT_POLLS))?;
    let (fresh, path) = (pins.links().join(format!("{COUNT_POLLS}-new")), pins.links().join(COUNT_POLLS));
    tcx::detach(&fresh)?;
    FdLink::from(link).pin(&fresh).map_err(|source| DatapathError::Pin { path: fresh.clone(), source })?;
    fs::rename(&fresh, &path).map_err(|source| DatapathError::ChangePin { action: "rename", path: fresh, source })
}

/// Takes it off, if it is there.
pub fn detach(pins: &PinRoot) -> Result<(), DatapathError> {
    tcx::detach(&pins.links().join(COUNT_POLLS))
}
