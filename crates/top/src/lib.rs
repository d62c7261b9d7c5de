//! The dashboard of `flannel-agent top`: rates of packets by program, peer, flow and reason.
//!
//! [`sample`] reads the pinned maps, [`board`] compares two samples, and [`view`] draws the result;
//! the latter two are pure. [`document`] is the result for programs. The command (`cli::top`) owns
//! terminal and time. No agent is needed; where one answers, its problems are shown too.
//!
//! The bytes of a single peer or flow are not known: the programs count bytes only by program and
//! reason.

pub mod board;
pub mod document;
pub mod sample;
pub mod view;

pub use board::{Board, SortKey};
pub use sample::TopSample;
pub use view::View;

#[cfg(test)]
mod tests;
