//! The BPF side of the datapath, seen from the agent: the embedded object, its pins, its maps and
//! where its programs are attached.
//!
//! Invariants: a pin is adopted only after its shape was compared with ours; nothing here detaches
//! a program because a process ends; every function works on the pins, so an agent that is dead and
//! a CLI that is alive see the same. What should be in the maps and where programs should be
//! attached is decided by the reconciler.

pub mod attach;
mod error;
pub mod kernel;
pub mod load;
pub mod maps;
pub mod monitor;
pub mod pins;
pub mod policy;
#[cfg(any(test, feature = "testing"))]
#[expect(
    missing_docs,
    reason = "the macro that composes values drops the documentation"
)]
pub mod testing;

use std::path::Path;

pub use attach::{AttachKind, Attachments, Hook};
pub use error::DatapathError;
pub use kernel::judges::{JudgeFinder, Judges};
pub use load::{
    Loaded, Shape,
    capacities::Subnets,
    flow_table::{FlowTable, memory_is_ample},
    load,
    retired::Successor,
};
pub use maps::{Maps, announcements::Announcements};
pub use pins::PinRoot;

/// Ensures that the pin root is on a bpf filesystem, and mounts one if it is not. A failure is only
/// logged here; loading reports it. Does nothing in a build without programs.
pub fn mount_for(pin_root: &Path) {
    if load::object::bytes().is_ok()
        && let Err(error) = kernel::bpffs::ensure_mounted(pin_root)
    {
        tracing::debug!(%error, "no bpf filesystem yet");
    }
}
