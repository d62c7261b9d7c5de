//! The packets that are traced.

use std::net::IpAddr;

/// A flow: one protocol, the ends of its packets, and those of the replies to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedFlow {
    /// The number of the protocol in IP headers.
    pub protocol: u8,
    /// The ends as packets come in, before any translation.
    pub original: TracedTuple,
    /// The ends of replies, likewise. Several for a Service with several endpoints.
    pub replies: Vec<TracedTuple>,
}

/// The ends of a packet, both of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedTuple {
    /// From this address.
    pub source: IpAddr,
    /// To this one.
    pub destination: IpAddr,
    /// From this port; any if there is none.
    pub source_port: Option<u16>,
    /// To this port, likewise.
    pub destination_port: Option<u16>,
}

impl TracedTuple {
    /// The same from the other end.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
        }
    }
}

/// The direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TraceDirection {
    /// As the flow was asked for.
    Original,
    /// Back.
    Reply,
}
