//! Frames on a device, as packets of flows. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{packets::Key, scenario::CLIENT_PORTS};
use crate::packet::{
    self, TCP, UDP,
    v6::{self, FRAGMENT, ICMPV6},
};

/// The header fields of a packet as it was seen on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Ethernet addresses, destination first.
    pub ethernet: [u8; 12],
    /// Source.
    pub source: SocketAddr,
    /// Destination.
    pub destination: SocketAddr,
    /// DSCP and ECN.
    pub tos: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// DF, in IPv4.
    pub df: bool,
    /// Identification, in IPv4.
    pub id: u16,
    /// The flow label, in IPv6.
    pub label: u32,
    /// Bytes of the IP packet.
    pub length: usize,
    /// The checksum of UDP.
    pub checksum: u16,
    /// True for TCP.
    pub is_tcp: bool,
}

impl Header {
    /// Its fields by name. Those a socket chooses at random for a connection are left out.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![
            ("ethernet", format!("{:02x?}", self.ethernet)),
            ("source", self.source.to_string()),
            ("destination", self.destination.to_string()),
            ("dscp", (self.tos >> 2).to_string()),
            ("ecn", (self.tos & 3).to_string()),
            ("ttl", self.ttl.to_string()),
            ("df", self.df.to_string()),
        ];
        if !self.is_tcp {
            fields.extend([
                ("id", self.id.to_string()),
                ("label", format!("{:#x}", self.label)),
                ("length", self.length.to_string()),
                ("checksum", format!("{:#06x}", self.checksum)),
            ]);
        }
        fields
    }
}

/// The outer header of a tunnel packet. Its source port and identification are the node's own
/// choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outer {
    /// DSCP and ECN.
    pub tos: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// DF, in IPv4.
    pub df: bool,
    /// Identification, in IPv4.
    pub id: u16,
}

impl Outer {
    /// Its fields by name.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        vec![
            ("outer dscp", (self.tos >> 2).to_string()),
            ("outer ecn", (self.tos & 3).to_string()),
            ("outer ttl", self.ttl.to_string()),
            ("outer df", self.df.to_string()),
        ]
    }
}

/// An error of ICMP about a packet of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IcmpError {
    /// The client's port of the packet it is about, from which the flow follows.
    pub client_port: u16,
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
}

/// A frame of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A packet of a flow, with its outer header if it is in a tunnel.
    Packet(Key, Header, Option<Outer>),
    /// An error about one.
    Error(IcmpError),
}

/// Reads a frame; `None` for what is no packet of a flow, and for later fragments.
pub fn read(frame: &[u8]) -> Option<Seen> {
    if packet::is_tunnel(frame) {
        let outer = Outer {
            tos: frame[15],
            ttl: frame[22],
            df: frame[20] & 0x40 != 0,
            id: packet::identification(&frame[14..]),
        };
        return inside(frame, packet::INNER_AT - 14, outer);
    }
    if v6::is_tunnel(frame) {
        let outer = Outer { tos: class(&frame[14..]), ttl: frame[21], df: false, id: 0 };
        return inside(frame, v6::INNER_AT - 14, outer);
    }
    plain(frame)
}

fn inside(frame: &[u8], at: usize, outer: Outer) -> Option<Seen> {
    match plain(&frame[at..])? {
        Seen::Packet(key, header, _) => Some(Seen::Packet(key, header, Some(outer))),
        error @ Seen::Error(_) => Some(error),
    }
}

fn plain(frame: &[u8]) -> Option<Seen> {
    let ip = frame.get(14..)?;
    let ethernet = *frame.first_chunk()?;
    match (frame.get(12..14)?, ip.first()? >> 4) {
        ([8, 0], 4) => v4(ethernet, ip),
        ([0x86, 0xdd], 6) => v6(ethernet, ip),
        _ => None,
    }
}

fn class(ip: &[u8]) -> u8 {
    ip[0] << 4 | ip[1] >> 4
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

fn v4(ethernet: [u8; 12], ip: &[u8]) -> Option<Seen> {
    let header = usize::from(ip[0] & 15) * 4;
    let (fragment, protocol) = (word(ip, 6)?, *ip.get(9)?);
    if fragment & 0x1fff != 0 {
        return None;
    }
    let address = |at: usize| -> Option<IpAddr> { Some(Ipv4Addr::from(*ip.get(at..)?.first_chunk::<4>()?).into()) };
    let transport = ip.get(header..)?;
    if protocol == packet::ICMP {
        let inner = transport.get(8..)?;
        let start = usize::from(inner.first()? & 15) * 4;
        return error(transport, inner.get(start..)?, |kind| matches!(kind, 3 | 11));
    }
    let found = Found {
        ethernet,
        addresses: [address(12)?, address(16)?],
        tos: ip[1],
        ttl: *ip.get(8)?,
        df: fragment & 0x4000 != 0,
        id: word(ip, 4)?,
        label: 0,
        length: usize::from(word(ip, 2)?),
    };
    found.packet(protocol, transport)
}

fn v6(ethernet: [u8; 12], ip: &[u8]) -> Option<Seen> {
    let (mut protocol, mut at) = (*ip.get(6)?, 40);
    if protocol == FRAGMENT {
        if word(ip, 42)? >> 3 != 0 {
            return None;
        }
        (protocol, at) = (*ip.get(40)?, 48);
    }
    let transport = ip.get(at..)?;
    if protocol == ICMPV6 {
        // Of errors alone: requests, answers and neighbours have numbers from 128 on.
        return error(transport, transport.get(8 + 40..)?, |kind| kind < 128);
    }
    let address = |at: usize| -> Option<IpAddr> { Some(Ipv6Addr::from(*ip.get(at..)?.first_chunk::<16>()?).into()) };
    let found = Found {
        ethernet,
        addresses: [address(8)?, address(24)?],
        tos: class(ip),
        ttl: *ip.get(7)?,
        df: false,
        id: 0,
        label: u32::from_be_bytes(*ip.first_chunk()?) & 0xf_ffff,
        length: 40 + usize::from(word(ip, 4)?),
    };
    found.packet(protocol, transport)
}

/// The flow of the packet an error is about follows from its ports, whichever way it went.
fn error(icmp: &[u8], about: &[u8], is_error: impl Fn(u8) -> bool) -> Option<Seen> {
    let (kind, code) = (*icmp.first()?, *icmp.get(1)?);
    let ports = [word(about, 0)?, word(about, 2)?];
    let client_port = ports.into_iter().find(|port| CLIENT_PORTS.contains(port))?;
    is_error(kind).then_some(Seen::Error(IcmpError { client_port, kind, code }))
}

/// The fields of the IP header.
struct Found {
    ethernet: [u8; 12],
    addresses: [IpAddr; 2],
    tos: u8,
    ttl: u8,
    df: bool,
    id: u16,
    label: u32,
    length: usize,
}

impl Found {
    fn packet(self, protocol: u8, transport: &[u8]) -> Option<Seen> {
        let start = match protocol {
            UDP => 8,
            TCP => usize::from(transport.get(12)? >> 4) * 4,
            _ => return None,
        };
        let key = Key::read(transport.get(start..)?)?;
        let Self { ethernet, addresses: [from, to], tos, ttl, df, id, label, length } = self;
        let source = SocketAddr::new(from, word(transport, 0)?);
        let destination = SocketAddr::new(to, word(transport, 2)?);
        let is_tcp = protocol == TCP;
        let checksum = if is_tcp { 0 } else { word(transport, 6)? };
        let header = Header { ethernet, source, destination, tos, ttl, df, id, label, length, checksum, is_tcp };
        Some(Seen::Packet(key, header, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::{
        packets::{Fields, datagrams},
        scenario::Direction,
    };

    const FIELDS: Fields = Fields { dscp: 46, ecn: 1, ttl: 40, length: 100, df: true, label: 0xabc, fragmented: false };

    fn framed(ip: &[u8]) -> Vec<u8> {
        let kind: [u8; 2] = if ip[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
        [&[2; 12][..], &kind, ip].concat()
    }

    #[test]
    fn what_was_sent_is_read() {
        let key = Key { flow: 3, direction: Direction::Forward, number: 9 };
        for (from, to) in [("10.0.0.1:1", "10.0.0.2:2"), ("[fd00::1]:1", "[fd00::2]:2")] {
            let (from, to) = (from.parse().expect("an address"), to.parse().expect("an address"));
            let frame = framed(&datagrams(key, &FIELDS, from, to)[0]);
            let Some(Seen::Packet(read, header, None)) = read(&frame) else { panic!("not read") };
            assert_eq!((read, header.source, header.destination), (key, from, to));
            assert_eq!((header.tos, header.ttl), (46 << 2 | 1, 40));
            assert_eq!((header.df, header.label), if from.is_ipv4() { (true, 0) } else { (false, 0xabc) });
        }
    }

    #[test]
    fn an_error_names_its_flow() {
        let key = Key { flow: 3, direction: Direction::Forward, number: 9 };
        let (from, to) = ("10.0.0.1:20003".parse().expect("an address"), "10.0.0.2:1".parse().expect("an address"));
        let about = &datagrams(key, &FIELDS, from, to)[0];
        let icmp = [&[3, 3, 0, 0, 0, 0, 0, 0][..], about].concat();
        let packet = packet::Ipv4::new([10, 0, 0, 2].into(), [10, 0, 0, 1].into(), 1, packet::ICMP, icmp);
        let expected = IcmpError { client_port: 20_003, kind: 3, code: 3 };
        assert_eq!(read(&framed(&packet.bytes())), Some(Seen::Error(expected)));
        assert_eq!(read(&[0; 60]), None);
    }
}
