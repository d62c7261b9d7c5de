//! Flows as they happen: new ones, those that go on, those that end, and dropped packets.
//!
//! Two sources are compared with what was seen before. The tables of mode `fast` are read at
//! intervals (`table`); packets that the programs do not replay come from the monitor's ring
//! buffer (`packets`), and packets of one flow within [`INTERVAL`] are one event. [`FlowSource`]
//! joins both. All of it reads the pins and needs no agent.
//!
//! Invariants: what is remembered is bounded; there is one reader of the ring buffer on a node, so
//! without it flows of the tables are still seen.

mod event;
mod packets;
mod source;
mod table;
mod waiting;

use std::time::Duration;

pub use self::{
    event::{Direction, FlowEvent, FlowEventKind, PacketOutcome},
    source::{FlowSource, Polled, SourceOptions},
    waiting::Waiting,
};

/// The least time between two events of a flow that goes on.
pub const INTERVAL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
