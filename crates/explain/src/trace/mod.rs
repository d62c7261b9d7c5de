//! The trace of a flow: which rules of nf_tables judge its packets, for some seconds.
//!
//! `run` begins the trace, collects its events and reads the texts of the rules. `collect`,
//! `summary` and `replies` are pure. The rules that begin the trace are in a table that this
//! process owns, so it is gone with the process ([`flannel_netfilter::PacketTrace`]).

mod collect;
mod document;
mod replies;
mod run;
mod summary;
mod texts;

pub use self::{
    document::{PacketDirection, TraceDrop, TraceOutcome, TracePath, TraceReport, TracedRule},
    run::{TraceError, trace},
};
