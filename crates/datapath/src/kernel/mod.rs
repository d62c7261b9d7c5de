//! The kernel as the datapath finds it: the bpf filesystem, the clock, the log of programs, and who
//! else judges packets.

pub mod bpffs;
pub(crate) mod classifier;
pub mod clock;
pub mod debug_log;
pub(crate) mod interrupted;
pub(crate) mod judges;
pub(crate) mod lock_wait;
