//! The differential test: the same rules and the same traffic in mode `kernel` and in mode `fast`.
//!
//! A seed makes a [`Scenario`](scenario::Scenario). A suite runs it in both modes and records for
//! each packet whether it arrived and with which header fields. What differs beyond the table of
//! [`allowed`] is a defect. Everything here is pure; the tests `fast::differential` have the lab.

pub mod allowed;
pub mod compare;
pub mod frame;
pub mod generate;
pub mod packets;
pub mod random;
pub mod record;
pub mod render;
pub mod scenario;
pub mod shrink;
pub mod tracked;
