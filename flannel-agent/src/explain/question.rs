//! The question: the flow of the packet to explain.

use std::net::IpAddr;

use flannel_common::packet::{PROTO_ICMP, PROTO_ICMPV6, PROTO_TCP, PROTO_UDP};
use flannel_host::family::Family;

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

impl Question {
    /// The number of the protocol in the packet's IP header.
    pub(super) fn protocol(&self) -> u8 {
        self.transport.number(Family::of(self.destination))
    }
}

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP or ICMPv6: an echo request.
    Icmp,
}

impl Transport {
    /// Its name, in every output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
        }
    }

    /// Its number in an IP header of the family.
    const fn number(self, family: Family) -> u8 {
        match self {
            Self::Tcp => PROTO_TCP,
            Self::Udp => PROTO_UDP,
            Self::Icmp => match family {
                Family::V4 => PROTO_ICMP,
                Family::V6 => PROTO_ICMPV6,
            },
        }
    }
}
