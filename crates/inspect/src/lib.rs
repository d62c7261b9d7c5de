//! What a host can do (`check`), and what differs from the desired state (`diff`).
//!
//! Needs no agent. What other nodes say of theirs is for the crate `cluster`, and what would happen
//! to one packet for `explain`.

pub mod check;
pub mod diff;
pub mod reported_cluster;
