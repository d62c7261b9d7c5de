//! The program behind NAPI polls and softirqs. It distinguishes packets that waited for userspace
//! from packets that did not.
//!
//! The end of a poll is not sufficient: the kernel hands up packets that GRO still holds after the
//! tracepoint (`napi_gro_flush()` and `gro_normal_list()` in `__napi_poll()`, [net/core/dev.c,
//! Linux 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/dev.c); `gro_flush_normal()` in
//! newer kernels). The end of a softirq is not sufficient either: a process that polls a device
//! itself (`SO_BUSY_POLL`) does not run in a softirq.
//!
//! It costs time in every poll of every device, so it is attached only if a process listens to a
//! queue. Once attached, it stays while mode `fast` is active, and outlives the agent: a listener
//! that is gone may return at any moment.

use std::{fs, io, path::Path};

use aya::programs::{RawTracePoint, links::FdLink};
use flannel_common::abi::program::COUNT_POLLS;

use crate::{DatapathError, PinRoot, pins};

/// The raw tracepoints that run after every NAPI poll and after every softirq, each with the name
/// of its link.
pub const TRACEPOINTS: [(&str, &str); 2] = [
    ("napi_poll", COUNT_POLLS),
    ("softirq_exit", "count_softirqs"),
];

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
    TRACEPOINTS
        .iter()
        .all(|(_, link)| pins.links().join(link).exists())
}

/// Attaches the pinned program, in place of the one an earlier agent may have left, without a
/// moment in which there is none.
pub fn attach(pins: &PinRoot) -> Result<(), DatapathError> {
    let mut program = RawTracePoint::from_pin(pins.poll_counter())
        .map_err(DatapathError::program(COUNT_POLLS))?;
    TRACEPOINTS.iter().try_for_each(|(tracepoint, link)| {
        attach_to(&mut program, tracepoint, &pins.links().join(link))
    })
}

fn attach_to(
    program: &mut RawTracePoint,
    tracepoint: &str,
    path: &Path,
) -> Result<(), DatapathError> {
    let link = program
        .attach(tracepoint)
        .and_then(|id| program.take_link(id));
    let link = link.map_err(DatapathError::program(COUNT_POLLS))?;
    pins::replace(path, |path| FdLink::from(link).pin(path).map(drop))
}

/// Detaches it, if it is attached.
pub fn detach(pins: &PinRoot) -> Result<(), DatapathError> {
    TRACEPOINTS
        .iter()
        .try_for_each(|(_, link)| pins::remove(&pins.links().join(link)))
}
