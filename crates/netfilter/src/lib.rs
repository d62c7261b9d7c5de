//! The kernel's netfilter by netlink, as bytes: conntrack's table (`conntrack`), a reader of
//! nf_tables (`nftables`), and the rules that judge the packets of one flow (`trace`).
//!
//! Everything here applies to one network namespace, the one of the thread that called. It changes
//! only the marks of connections and the table of a trace, which ends with its process.

#![forbid(unsafe_code)]

mod conntrack;
mod nfnetlink;
mod nftables;
mod trace;

pub use self::{
    conntrack::ConntrackTable,
    nftables::{Attributes, BaseChain, Expression, NftablesReader, NftablesSet, NftablesTable},
    trace::{
        HeaderFingerprint, MatchedPackets, PacketTrace, TraceDirection, TraceEvent, TraceJudgement,
        TraceStep, TraceVerdict, TracedFlow, TracedTuple, has_no_owned_tables, is_trace_table,
    },
};
