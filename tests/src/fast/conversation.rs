//! Conversations between pods, over either family and by either protocol.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context as _, Result};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::{
    Host, Pod,
    load::{datagrams::Datagrams, rr::Protocol},
    no_agent::Talk,
};

/// The port of a pod that is asked.
pub const PORT: u16 = 8080;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The pod's address of this family.
    pub fn of(self, pod: &Pod) -> Result<IpAddr> {
        match self {
            Self::V4 => Ok(pod.ip4()?.into()),
            Self::V6 => pod
                .ip6()
                .with_context(|| format!("{} has no IPv6 address", pod.name())),
        }
    }

    /// Returns the address and port at which the pod serves.
    pub fn end(self, pod: &Pod) -> Result<SocketAddr> {
        Ok(SocketAddr::new(self.of(pod)?, PORT))
    }

    /// The address of the host with this number on the nodes' first segment: the node `a` is 11.
    pub fn host(self, number: u8) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::new(192, 168, 1, number).into(),
            // The digits are the same, and are read in another base.
            Self::V6 => format!("2001:db8:1::{number}").parse().expect("an address"),
        }
    }

    /// The network of the lab's pods.
    pub const fn pods(self) -> IpNet {
        match self {
            Self::V4 => IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 244, 0, 0), 16)),
            Self::V6 => IpNet::V6(Ipv6Net::new_assert(
                Ipv6Addr::new(0xfd00, 0x10, 0x244, 0, 0, 0, 0, 0),
                48,
            )),
        }
    }

    /// Returns the address and port of the Service with this number.
    pub fn service(self, number: u16) -> SocketAddr {
        let address: IpAddr = match self {
            Self::V4 => Ipv4Addr::from_bits((10 << 24) + (96 << 16) + u32::from(number)).into(),
            Self::V6 => Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, number).into(),
        };
        SocketAddr::new(address, 80)
    }

    /// Returns the family's name in nft.
    pub const fn nft(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }

    /// The command of legacy iptables, with what every call of it needs.
    pub const fn iptables(self) -> &'static str {
        match self {
            Self::V4 => "iptables-legacy -w",
            Self::V6 => "ip6tables-legacy -w",
        }
    }
}

/// A TCP connection or messages of UDP.
#[derive(Debug)]
pub enum Conversation {
    /// A connection.
    Tcp(Talk),
    /// Messages.
    Udp(Datagrams),
}

impl Conversation {
    /// From a host to `at`, an end of another one; `to` is where it is sent instead, such as a
    /// Service.
    pub fn open(
        protocol: Protocol,
        from: &Host,
        host: &Host,
        at: SocketAddr,
        to: Option<SocketAddr>,
    ) -> Result<Self> {
        match protocol {
            Protocol::Tcp => Ok(Self::Tcp(Talk::open(from, host, at, to)?)),
            Protocol::Udp => Ok(Self::Udp(Datagrams::open(from, host, at, to)?)),
        }
    }

    /// Messages there and back, one after the other.
    pub fn exchange(&mut self, messages: u32) -> Result<()> {
        match self {
            Self::Tcp(talk) => talk.exchange(messages),
            Self::Udp(datagrams) => datagrams.exchange(messages),
        }
    }
}
