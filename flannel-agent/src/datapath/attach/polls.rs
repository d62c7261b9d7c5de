//! The program behind NAPI polls, by which a packet that waited for userspace is told from one that did not.
//!
//! It is attached for as long as mode `fast` is in force, whether anybody queues packets or not: a listener may appear at any
//! moment, and the link must outlive the agent.

use std::fs;

use aya::programs::{RawTracePoint, links::FdLink};
use flannel_common::program::COUNT_POLLS;

use crate::datapath::{DatapathError, PinRoot, attach::tcx};

/// What is behind every poll.
pub const TRACEPOINT: &str = "napi_poll";

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
