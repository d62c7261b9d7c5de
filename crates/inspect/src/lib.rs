//! What a host can do (`check`), what differs from the desired state (`diff`), and what an agent
//! leaves when it is removed (`cleanup`).
//!
//! Needs no agent. What other nodes say of theirs is for the crate `cluster`, and what would happen
//! to one packet for `explain`.

pub mod check;
pub mod cleanup;
pub mod diff;
pub mod reported_cluster;
