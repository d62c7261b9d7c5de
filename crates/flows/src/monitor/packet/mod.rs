//! A summary of a frame's first bytes in the notation of tcpdump.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use flannel_common::packet::{
    ETH_LEN, ETHERTYPE_IPV4, ETHERTYPE_IPV6, IPV4_LEN, IPV6_LEN, PROTO_ICMP, PROTO_ICMPV6,
    PROTO_TCP, PROTO_UDP,
};

const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];

/// The source and the destination address of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketAddresses {
    /// The source.
    pub source: IpAddr,
    /// The destination.
    pub destination: IpAddr,
}

impl fmt::Display for PacketAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}", self.source, self.destination)
    }
}

/// A frame.
#[derive(Clone, Copy, Debug)]
pub enum Packet<'a> {
    /// IPv4 or IPv6.
    Ip(Ip<'a>),
    /// Another EtherType, or a frame too short for its headers.
    Other {
        /// The EtherType, if there is one.
        ethertype: Option<[u8; 2]>,
        /// Length of the frame.
        len: u32,
    },
}

/// An IP packet.
#[derive(Clone, Copy, Debug)]
pub struct Ip<'a> {
    /// Source and destination.
    pub addresses: PacketAddresses,
    /// The IP protocol number of the payload; for IPv6 that of the first Next Header field.
    pub protocol: u8,
    /// A later fragment, which has no transport header.
    is_later_fragment: bool,
    /// Length of what follows the header.
    len: u32,
    /// The first bytes of it.
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads the first bytes of a frame of `len` bytes.
    pub fn read(frame: &'a [u8], len: u32) -> Self {
        let ethertype = frame
            .get(12..ETH_LEN)
            .and_then(|bytes| bytes.first_chunk().copied());
        let ip = match ethertype {
            Some(ETHERTYPE_IPV4) => Ip::read_v4(&frame[ETH_LEN..]),
            Some(ETHERTYPE_IPV6) => Ip::read_v6(&frame[ETH_LEN..]),
            _ => None,
        };
        ip.map_or(Self::Other { ethertype, len }, Self::Ip)
    }

    /// From where to where, if it is IP.
    pub const fn addresses(&self) -> Option<PacketAddresses> {
        match self {
            Self::Ip(ip) => Some(ip.addresses),
            Self::Other { .. } => None,
        }
    }
}

impl<'a> Ip<'a> {
    fn read_v4(packet: &'a [u8]) -> Option<Self> {
        let header: &[u8; IPV4_LEN] = packet.first_chunk()?;
        let header_len = usize::from(header[0] & 0x0f) * 4;
        let total = u16::from_be_bytes([header[2], header[3]]);
        let address = |at: usize| {
            Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]).into()
        };
        Some(Self {
            addresses: PacketAddresses {
                source: address(12),
                destination: address(16),
            },
            protocol: header[9],
            is_later_fragment: u16::from_be_bytes([header[6] & 0x1f, header[7]]) != 0,
            len: u32::from(total).saturating_sub(u32::from(header[0] & 0x0f) * 4),
            payload: packet.get(header_len..).unwrap_or_default(),
        })
    }

    fn read_v6(packet: &'a [u8]) -> Option<Self> {
        let (header, payload) = packet.split_first_chunk::<IPV6_LEN>()?;
        let address = |at: usize| {
            let bytes = header[at..].first_chunk().copied().unwrap_or_default();
            Ipv6Addr::from_octets(bytes).into()
        };
        Some(Self {
            addresses: PacketAddresses {
                source: address(8),
                destination: address(24),
            },
            protocol: header[6],
            is_later_fragment: false,
            len: u16::from_be_bytes([header[4], header[5]]).into(),
            payload,
        })
    }

    /// Source and destination port, if TCP or UDP follows.
    pub fn ports(&self) -> Option<[u16; 2]> {
        match (self.protocol, self.payload) {
            (PROTO_TCP | PROTO_UDP, [a, b, c, d, ..]) if !self.is_later_fragment => {
                Some([u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])])
            }
            _ => None,
        }
    }

    /// The flags of a TCP header: its byte 13.
    pub fn tcp_flags(&self) -> Option<u8> {
        let is_tcp = self.protocol == PROTO_TCP && !self.is_later_fragment;
        self.payload.get(13).copied().filter(|_| is_tcp)
    }

    /// Type and code of an ICMP header.
    pub fn icmp(&self) -> Option<[u8; 2]> {
        let is_icmp = matches!(self.protocol, PROTO_ICMP | PROTO_ICMPV6) && !self.is_later_fragment;
        self.payload.first_chunk().copied().filter(|_| is_icmp)
    }

    /// The protocol's name, or its number.
    pub fn protocol_name(&self) -> String {
        protocol_name(self.protocol)
    }

    fn tcp(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(header) = self.payload.first_chunk::<20>() else {
            return write!(f, "tcp, length {}", self.len);
        };
        let word = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let len = self.len.saturating_sub(u32::from(header[12] >> 4) * 4);
        write!(f, "Flags [{}], seq {}", TcpFlags(header[13]), word(4))?;
        if len > 0 {
            write!(f, ":{}", word(4).wrapping_add(len))?;
        }
        if header[13] & TcpFlags::ACK != 0 {
            write!(f, ", ack {}", word(8))?;
        }
        write!(
            f,
            ", win {}, length {len}",
            u16::from_be_bytes([header[14], header[15]])
        )
    }

    fn write_icmp(&self, f: &mut fmt::Formatter<'_>, name: &str, echo: [u8; 2]) -> fmt::Result {
        let len = self.len;
        let Some(&[kind, code, _, _, id_high, id_low, seq_high, seq_low]) =
            self.payload.first_chunk::<8>()
        else {
            return write!(f, "{name}, length {len}");
        };
        let what = match echo.iter().position(|echo| *echo == kind) {
            Some(0) => "request",
            Some(_) => "reply",
            None => return write!(f, "{name} type {kind} code {code}, length {len}"),
        };
        let (id, seq) = (
            u16::from_be_bytes([id_high, id_low]),
            u16::from_be_bytes([seq_high, seq_low]),
        );
        write!(f, "{name} echo {what}, id {id}, seq {seq}, length {len}")
    }
}

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Other {
                ethertype: Some(ETHERTYPE_ARP),
                len,
            } => write!(f, "ARP, length {len}"),
            Self::Other {
                ethertype: Some([high, low]),
                len,
            } => {
                write!(f, "ethertype 0x{high:02x}{low:02x}, length {len}")
            }
            Self::Other {
                ethertype: None,
                len,
            } => write!(f, "length {len}"),
        }
    }
}

impl fmt::Display for Ip<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PacketAddresses {
            source,
            destination,
        } = self.addresses;
        f.write_str(if source.is_ipv4() { "IP " } else { "IP6 " })?;
        match self.ports() {
            Some([from, to]) => write!(f, "{source}.{from} > {destination}.{to}: ")?,
            None => write!(f, "{source} > {destination}: ")?,
        }
        let len = self.len;
        match self.protocol {
            _ if self.is_later_fragment => write!(f, "{}, length {len}", self.protocol_name()),
            PROTO_TCP => self.tcp(f),
            PROTO_UDP => write!(f, "UDP, length {}", len.saturating_sub(8)),
            PROTO_ICMP => self.write_icmp(f, "ICMP", [8, 0]),
            PROTO_ICMPV6 => self.write_icmp(f, "ICMP6", [128, 129]),
            number => write!(f, "ip-proto-{number}, length {len}"),
        }
    }
}

/// The flags of a TCP header.
struct TcpFlags(u8);

impl TcpFlags {
    const ACK: u8 = 0x10;

    /// In the order in which tcpdump writes them.
    const LETTERS: [(u8, char); 8] = [
        (0x01, 'F'),
        (0x02, 'S'),
        (0x04, 'R'),
        (0x08, 'P'),
        (Self::ACK, '.'),
        (0x20, 'U'),
        (0x40, 'E'),
        (0x80, 'W'),
    ];
}

impl fmt::Display for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("none");
        }
        let letters: String = Self::LETTERS
            .iter()
            .filter(|(bit, _)| self.0 & bit != 0)
            .map(|(_, letter)| letter)
            .collect();
        f.write_str(&letters)
    }
}

/// The name of an IP protocol, or its number.
pub fn protocol_name(protocol: u8) -> String {
    match protocol {
        PROTO_TCP => "tcp".to_owned(),
        PROTO_UDP => "udp".to_owned(),
        PROTO_ICMP => "icmp".to_owned(),
        PROTO_ICMPV6 => "icmp6".to_owned(),
        number => number.to_string(),
    }
}

#[cfg(test)]
mod tests;
