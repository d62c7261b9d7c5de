//! The question: the flow of the packet to explain.

use std::net::IpAddr;

use clap::ValueEnum;
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

    /// The command by which an agent on another node explains this packet.
    pub fn command(&self) -> Vec<String> {
        let Self {
            source,
            destination,
            transport,
            sport,
            dport,
        } = self;
        let words = [
            "flannel-agent".to_owned(),
            "explain".to_owned(),
            source.to_string(),
            destination.to_string(),
        ];
        let mut command = Vec::from(words);
        command.push(format!("--proto={}", transport.name()));
        command.extend(sport.map(|port| format!("--sport={port}")));
        command.extend(dport.map(|port| format!("--dport={port}")));
        command
    }
}

/// A protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// TCP
    #[default]
    Tcp,
    /// UDP
    Udp,
    /// An ICMP echo request, as ping sends it; without ports
    Icmp,
}

impl Transport {
    /// The protocol of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::value_variants()
            .iter()
            .copied()
            .find(|transport| transport.name() == name)
    }

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
