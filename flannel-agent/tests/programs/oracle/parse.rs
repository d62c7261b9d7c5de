//! Packets as the documentation speaks of them, read byte by byte.

use flannel_common::abi::reason::Reason;

use super::{
    sums::checksum,
    world::{Tuple, address},
};
use crate::packets::Net;

/// Offsets and lengths in the headers of one family.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) is_v6: bool,
    pub(super) header: usize,
    pub(super) addresses: usize,
    pub(super) address: usize,
    pub(super) ttl: usize,
    pub(super) protocol: usize,
}

pub(super) const ETHERNET: usize = 14;
/// UDP, VXLAN and inner Ethernet header.
pub(super) const TUNNEL: usize = 8 + 8 + ETHERNET;

impl Layout {
    pub(super) const fn of(net: Net) -> Self {
        if net.our_vtep.is_ipv4() {
            Self {
                is_v6: false,
                header: 20,
                addresses: 12,
                address: 4,
                ttl: 8,
                protocol: 9,
            }
        } else {
            Self {
                is_v6: true,
                header: 40,
                addresses: 8,
                address: 16,
                ttl: 7,
                protocol: 6,
            }
        }
    }

    /// Returns the number of bytes that encapsulation adds to an IP packet.
    pub(super) const fn overhead(self) -> usize {
        self.header + TUNNEL
    }

    pub(super) fn source(self, ip: &[u8]) -> std::net::IpAddr {
        address(&ip[self.addresses..self.addresses + self.address])
    }

    pub(super) fn destination(self, ip: &[u8]) -> std::net::IpAddr {
        address(&ip[self.addresses + self.address..self.header])
    }

    /// TOS or traffic class.
    pub(super) fn tos(self, ip: &[u8]) -> u8 {
        if self.is_v6 {
            ip[0] << 4 | ip[1] >> 4
        } else {
            ip[1]
        }
    }

    /// The IPv6 flow label; zero over IPv4.
    pub(super) fn flow_label(self, ip: &[u8]) -> [u8; 3] {
        if self.is_v6 {
            [ip[1] & 0x0f, ip[2], ip[3]]
        } else {
            [0; 3]
        }
    }

    /// The length the header claims for the whole packet.
    pub(super) fn total(self, ip: &[u8]) -> usize {
        if self.is_v6 {
            usize::from(word(ip, 4)) + 40
        } else {
            usize::from(word(ip, 2))
        }
    }
}

/// The reason for which an IP packet is not plain.
fn not_plain(layout: Layout, ip: &[u8]) -> Reason {
    let is_fragment = if layout.is_v6 {
        ip[6] == 44
    } else {
        word(ip, 6) & 0x3fff != 0
    };
    match ip[layout.protocol] {
        _ if is_fragment => Reason::Fragment,
        6 | 17 => Reason::NotPlain,
        _ => Reason::OtherTransport,
    }
}

/// The packet's EtherType.
pub(super) fn ethertype(frame: &[u8]) -> u16 {
    word(frame, 12)
}

pub(super) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// A whole TCP or UDP packet in the middle of everything.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a question of its own"
)]
pub(super) struct Plain {
    pub(super) tuple: Tuple,
    pub(super) frame: [u8; 12],
    /// Length of the IP packet, and of its headers.
    pub(super) length: usize,
    pub(super) headers: usize,
    pub(super) tos: u8,
    pub(super) ttl: u8,
    /// Zero over IPv4.
    pub(super) flow_label: [u8; 3],
    pub(super) is_control: bool,
    pub(super) is_opening: bool,
    /// SYN and ACK, without FIN and RST.
    pub(super) is_answer: bool,
    /// A gibibyte and more of TCP behind the packet from which its flow was learned, whose sequence
    /// number is zero.
    pub(super) is_due: bool,
}

impl Plain {
    /// Reads a frame of a pod, or says why it is the kernel's: fragments, options, a header with a
    /// wrong checksum, another protocol than TCP and UDP, TCP that conntrack calls invalid, the end
    /// of the TTL, lengths that disagree.
    pub(super) fn read(layout: Layout, frame: &[u8], wanted: u16) -> Result<Self, Reason> {
        if frame.len() < ETHERNET + layout.header + 8 {
            return Err(Reason::Malformed);
        }
        if ethertype(frame) != wanted {
            return Err(Reason::OtherProtocol);
        }
        let ip = &frame[ETHERNET..];
        let is_whole = if layout.is_v6 {
            ip[0] >> 4 == 6
        } else {
            ip[0] == 0x45 && word(ip, 6) & !0x4000 == 0
        };
        let is_damaged = !layout.is_v6 && checksum(&ip[..layout.header]) != 0;
        let total = layout.total(ip);
        let has_length = if layout.is_v6 {
            u16::try_from(total).is_ok()
        } else {
            total >= layout.header
        };
        if !is_whole || is_damaged || ip[layout.ttl] < 2 || !has_length {
            return Err(not_plain(layout, ip));
        }
        if total != ip.len() {
            return Err(Reason::NotPlain);
        }
        let transport = &ip[layout.header..];
        let (header, flags) =
            transport_header(ip[layout.protocol], transport).ok_or(not_plain(layout, ip))?;
        let tuple = Tuple {
            source: layout.source(ip),
            destination: layout.destination(ip),
            ports: [word(transport, 0), word(transport, 2)],
            protocol: ip[layout.protocol],
        };
        Ok(Self {
            tuple,
            frame: frame[..12].try_into().expect("twelve bytes"),
            length: ip.len(),
            headers: layout.header + header,
            tos: layout.tos(ip),
            ttl: ip[layout.ttl],
            flow_label: layout.flow_label(ip),
            is_control: flags & 0b111 != 0,
            is_opening: flags & 0b010 != 0,
            is_answer: flags & 0b1_0111 == 0b1_0010,
            is_due: ip[layout.protocol] == 6 && is_due(transport),
        })
    }

    /// The size of the largest IP packet it becomes.
    pub(super) const fn segment(&self, gso: usize) -> usize {
        if gso == 0 {
            self.length
        } else {
            self.headers + gso
        }
    }
}

fn is_due(tcp: &[u8]) -> bool {
    let [high, low] = [word(tcp, 4), word(tcp, 6)].map(u32::from);
    (0x4000_0001..=0xbfff_ffff).contains(&(high << 16 | low))
}

/// Length of the transport header and the flags of TCP.
fn transport_header(protocol: u8, transport: &[u8]) -> Option<(usize, u8)> {
    match protocol {
        6 => {
            let header = usize::from(*transport.get(12)? >> 4) * 4;
            let flags = transport[13];
            // Each segment of a connection has one of FIN, SYN, RST and ACK.
            (header >= 20 && header <= transport.len() && flags & 0b1_0111 != 0)
                .then_some((header, flags))
        }
        17 => (usize::from(word(transport, 4)) == transport.len()).then_some((8, 0)),
        _ => None,
    }
}
