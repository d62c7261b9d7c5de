//! The question: the flow of the packet to explain.

use std::net::IpAddr;

use flannel_common::packet::{PROTO_TCP, PROTO_UDP};

/// A packet in the middle of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// From whom, before any translation.
    pub source: IpAddr,
    /// To whom, of the same family.
    pub destination: IpAddr,
    /// By which protocol.
    pub transport: Transport,
    /// Source port; any if not given.
    pub sport: Option<u16>,
    /// Destination port; any if not given.
    pub dport: Option<u16>,
}

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    /// Its name, in every output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    /// Its number.
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::Tcp => PROTO_TCP,
            Self::Udp => PROTO_UDP,
        }
    }
}
