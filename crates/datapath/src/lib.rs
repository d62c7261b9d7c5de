//! The BPF side of the datapath, seen from the agent: the embedded object, its pins, its maps and
//! where its programs are attached.
//!
//! Invariants: a pin is adopted only after its shape was compared with ours; nothing here detaches
//! a program because a process ends; every function works on the pins, so an agent that is dead and
//! a CLI that is alive see the same. What should be in the maps and where programs should be
//! attached is decided by the reconciler.

mod announcements;
pub mod attach;
mod batch;
pub mod bpffs;
mod capacities;
mod classifier;
pub mod clock;
pub mod debug_log;
pub mod ecmp_paths;
mod error;
pub mod flow_hints;
mod flow_table;
pub mod flows;
pub mod guard;
mod headroom;
mod interrupted;
mod judges;
pub mod kernel_drops;
mod load;
mod load_record;
mod lock_wait;
pub mod maps;
pub mod monitor;
mod object;
pub mod peers;
mod pinned_map;
mod pinned_peer;
pub mod pins;
pub mod policy;
pub mod probe;
mod refusal;
mod retired;
pub mod room;
pub mod schema_takeover;
#[cfg(any(test, feature = "testing"))]
#[expect(
    missing_docs,
    reason = "the macro that composes values drops the documentation"
)]
pub mod testing;
pub mod traffic;
pub mod trial;
pub mod word;

use std::path::Path;

pub use announcements::Announcements;
pub use attach::{AttachKind, Attachments, Hook};
pub use capacities::Subnets;
pub use error::DatapathError;
pub use flow_table::{FlowTable, memory_is_ample};
pub use judges::{JudgeFinder, Judges};
pub use load::{Loaded, Shape, load};
pub use maps::Maps;
pub use pins::PinRoot;
pub use retired::Successor;

/// Ensures that the pin root is on a bpf filesystem, and mounts one if it is not. A failure is only
/// logged here; loading reports it. Does nothing in a build without programs.
pub fn mount_for(pin_root: &Path) {
    if object::bytes().is_ok()
        && let Err(error) = bpffs::ensure_mounted(pin_root)
    {
        tracing::debug!(%error, "no bpf filesystem yet");
    }
}
