//! Tracing packets through the rules of nf_tables: a table of this process begins the trace of the
//! packets of one flow, and the kernel reports the rules that judge them.
//!
//! The table changes no packet and accepts all of them. The socket of this process owns it
//! (`NFT_TABLE_F_OWNER`, Linux 5.12), so it does not outlive the process. A counter in front of the
//! limit has all packets of the flow; the limit bounds the traced ones.
//!
//! Rules of iptables-nft are rules of nf_tables. Rules of the legacy iptables are not traced, and
//! neither are packets before the hooks of the family `inet`: those of devices (`netdev`) and the
//! first ones of a bridge.

mod event;
mod expression;
mod fingerprint;
mod flow;
mod table;

use std::{collections::VecDeque, fmt, io};

use flannel_netlink::{
    Fault, NetlinkError, Verb,
    datagram::{DATAGRAM, Read, arrived, receive},
    open, socket,
};
use netlink_sys::{TokioSocket, protocols::NETLINK_NETFILTER};
use nix::errno::Errno;

use self::{event::decode, table::TraceTable};
pub use self::{
    event::{TraceEvent, TraceJudgement, TraceStep, TraceVerdict},
    fingerprint::HeaderFingerprint,
    flow::{TraceDirection, TracedFlow, TracedTuple},
    table::is_trace_table,
};
use crate::NftablesReader;

/// `NFNLGRP_NFTRACE`.
const GROUP: u32 = 9;

/// A trace that runs. Dropping it ends it.
pub struct PacketTrace {
    events: TokioSocket,
    table: TraceTable,
    reader: NftablesReader,
    buffer: Vec<u8>,
    waiting: VecDeque<TraceEvent>,
}

/// The packets of a flow that began their way while a trace ran, traced or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchedPackets {
    /// As the flow was asked for.
    pub original: u64,
    /// Back.
    pub reply: u64,
}

impl fmt::Debug for PacketTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacketTrace")
            .field("table", &self.table.table)
            .finish_non_exhaustive()
    }
}

impl PacketTrace {
    /// Begins to trace a flow in the network namespace of the calling thread; `None` if the kernel
    /// has no nf_tables. Blocks for a moment. Call inside a Tokio runtime.
    ///
    /// # Errors
    /// The kernel refuses: this process has no `CAP_NET_ADMIN`, or the kernel has no owned tables
    /// (then [`has_no_owned_tables`]).
    pub fn start(flow: &TracedFlow) -> Result<Option<Self>, NetlinkError> {
        let Some(reader) = NftablesReader::open()? else {
            return Ok(None);
        };
        // In front of the table, so that no event is missed.
        let events = open("the NFNLGRP_NFTRACE socket", || {
            socket::for_events(NETLINK_NETFILTER, &[GROUP])
        })?;
        let table = TraceTable::create(flow)?;
        let buffer = Vec::with_capacity(DATAGRAM);
        Ok(Some(Self {
            events,
            table,
            reader,
            buffer,
            waiting: VecDeque::new(),
        }))
    }

    /// Waits for the next event. Cancel-safe.
    ///
    /// # Errors
    /// The socket failed.
    pub async fn next(&mut self) -> Result<TraceEvent, NetlinkError> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Ok(event);
            }
            match receive(&self.events, &mut self.buffer).await {
                Ok(Read::Datagram) => self.waiting.extend(decode(&self.buffer, &self.table.table)),
                Ok(Read::Lost) => self.waiting.push_back(TraceEvent::Lost),
                Err(error) => return Err(unreadable(error)),
            }
        }
    }

    /// Ends the trace. Returns the packets of the flow, and the events that have arrived and were
    /// not read.
    ///
    /// # Errors
    /// The kernel does not say how many packets there were, or the socket failed.
    pub fn finish(mut self) -> Result<(MatchedPackets, Vec<TraceEvent>), NetlinkError> {
        let original = self
            .table
            .matched(&mut self.reader, TraceDirection::Original)?;
        let reply = self
            .table
            .matched(&mut self.reader, TraceDirection::Reply)?;
        let mut events = Vec::from(self.waiting);
        while let Some(read) = arrived(&self.events, &mut self.buffer).map_err(unreadable)? {
            match read {
                Read::Datagram => events.extend(decode(&self.buffer, &self.table.table)),
                Read::Lost => events.push(TraceEvent::Lost),
            }
        }
        Ok((MatchedPackets { original, reply }, events))
    }
}

fn unreadable(error: io::Error) -> NetlinkError {
    Fault::Socket(error).on(Verb::Read, "the events of a trace")
}

/// True if a trace did not begin because the kernel has no tables with an owner: Linux before 5.12
/// refuses the flag (`nf_tables_newtable()` in [net/netfilter/nf_tables_api.c, Linux
/// 5.10](https://elixir.bootlin.com/linux/v5.10/source/net/netfilter/nf_tables_api.c)).
pub fn has_no_owned_tables(error: &NetlinkError) -> bool {
    error.verb == Verb::Create && matches!(error.errno(), Some(Errno::EINVAL | Errno::EOPNOTSUPP))
}
