//! The program behind NAPI polls. It distinguishes packets that waited for userspace from packets
//! that did not.
//!
//! It costs time in every poll of every device, so it is attached only where a process listens to a
//! queue. Once attached, it stays as long as mode `fast` is in force, and outlives the agent: a
//! listener that is gone may return at any moment.

use std::{fs, io};

use aya::programs::{RawTracePoint, links::FdLink};
use flannel_common::program::COUNT_POLLS;

use crate::datapath::{DatapathError, PinRoot, attach::tcx};

/// The raw tracepoint that runs after every NAPI poll.
pub const TRACEPOINT: &str = "napi_poll";

/// The listeners of this network namespace; not there where the kernel queues no packets.
const LISTENERS: &str = "/proc/net/netfilter/nfnetlink_queue";

/// Returns true if packets of this network namespace may be queued to userspace, also if the list
/// of listeners cannot be read.
pub fn are_needed() -> bool {
    match fs::read(LISTENERS) {
        Ok(listeners) => !listeners.is_empty(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Returns true if an agent has attached the program: this process or a previous one.
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
