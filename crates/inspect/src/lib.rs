//! A look at a node: the abilities of its host (`check`), and the differences from the desired
//! state (`diff`).
//!
//! Needs no agent. Other nodes are for the crate `cluster`, and the way of one packet for
//! `explain`.

pub mod check;
pub mod diff;
pub mod reported_cluster;
