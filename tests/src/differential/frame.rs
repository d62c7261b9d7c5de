//! Frames on a device, as packets of flows. Pure.

use std::net::SocketAddr;

use etherparse::{Ipv6Header, LaxIpSlice, TcpHeaderSlice, UdpHeader, UdpHeaderSlice, ip_number};

use super::{packets::Key, scenario::CLIENT_PORTS};
use crate::packet::frame;

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

/// Reads a frame. Returns `None` for packets outside the flows, and for later fragments.
pub fn read(frame: &[u8]) -> Option<Seen> {
    let inner = if frame::is_tunnel(frame) {
        frame::V4.inner
    } else if frame::is_tunnel_v6(frame) {
        frame::V6.inner
    } else {
        return plain(frame);
    };
    let (tos, Varying { ttl, df, id, .. }) = (
        frame::class(&frame::ip(frame)?),
        Varying::of(&frame::ip(frame)?),
    );
    match plain(&frame[inner - 14..])? {
        Seen::Packet(key, header, _) => {
            Some(Seen::Packet(key, header, Some(Outer { tos, ttl, df, id })))
        }
        error @ Seen::Error(_) => Some(error),
    }
}

fn plain(frame: &[u8]) -> Option<Seen> {
    let ip = frame::ip(frame).filter(|ip| !frame::is_later_fragment(ip))?;
    let payload = ip.payload();
    let transport = payload.payload;
    let (ports, start, checksum) = match payload.ip_number {
        ip_number::ICMP => return error(transport, |kind| matches!(kind, 3 | 11)),
        // Only errors count: requests, answers and neighbour discovery have types from 128 on.
        ip_number::IPV6_ICMP => return error(transport, |kind| kind < 128),
        ip_number::UDP => (
            ports(transport)?,
            UdpHeader::LEN,
            UdpHeaderSlice::from_slice(transport).ok()?.checksum(),
        ),
        ip_number::TCP => (
            ports(transport)?,
            TcpHeaderSlice::from_slice(transport).ok()?.slice().len(),
            0,
        ),
        _ => return None,
    };
    let Varying {
        ttl,
        df,
        id,
        label,
        length,
    } = Varying::of(&ip);
    let header = Header {
        ethernet: *frame.first_chunk()?,
        source: SocketAddr::new(ip.source_addr(), ports[0]),
        destination: SocketAddr::new(ip.destination_addr(), ports[1]),
        tos: frame::class(&ip),
        ttl,
        df,
        id,
        label,
        length,
        checksum,
        is_tcp: payload.ip_number == ip_number::TCP,
    };
    Some(Seen::Packet(
        Key::read(transport.get(start..)?)?,
        header,
        None,
    ))
}

/// The flow of the packet an error is about follows from its ports, whichever way it went.
fn error(icmp: &[u8], is_error: impl Fn(u8) -> bool) -> Option<Seen> {
    let (kind, code) = (*icmp.first()?, *icmp.get(1)?);
    let (about, _) = LaxIpSlice::from_slice(icmp.get(8..)?).ok()?;
    let client_port = ports(about.payload().payload)?
        .into_iter()
        .find(|port| CLIENT_PORTS.contains(port))?;
    is_error(kind).then_some(Seen::Error(IcmpError {
        client_port,
        kind,
        code,
    }))
}

/// The ports of UDP and TCP lie in the same place.
fn ports(transport: &[u8]) -> Option<[u16; 2]> {
    let [a, b, c, d] = *transport.first_chunk()?;
    Some([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])])
}

/// The fields that the families have in different places, or one of them lacks.
struct Varying {
    ttl: u8,
    df: bool,
    id: u16,
    label: u32,
    length: usize,
}

impl Varying {
    fn of(ip: &LaxIpSlice<'_>) -> Self {
        match ip {
            LaxIpSlice::Ipv4(ip) => {
                let ip = ip.header();
                let (df, id) = (ip.dont_fragment(), ip.identification());
                Self {
                    ttl: ip.ttl(),
                    df,
                    id,
                    label: 0,
                    length: ip.total_len().into(),
                }
            }
            LaxIpSlice::Ipv6(ip) => {
                let ip = ip.header();
                let length = Ipv6Header::LEN + usize::from(ip.payload_length());
                Self {
                    ttl: ip.hop_limit(),
                    df: false,
                    id: 0,
                    label: ip.flow_label().value(),
                    length,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        differential::{
            packets::{Fields, datagrams},
            scenario::Direction,
        },
        packet::Packet,
    };

    const FIELDS: Fields = Fields {
        dscp: 46,
        ecn: 1,
        ttl: 40,
        length: 100,
        df: true,
        label: 0xabc,
        fragmented: false,
    };

    fn framed(packet: &Packet) -> Vec<u8> {
        packet.framed([2; 6], [2; 6])
    }

    #[test]
    fn what_was_sent_is_read() {
        let key = Key {
            flow: 3,
            direction: Direction::Forward,
            number: 9,
        };
        for (from, to) in [("10.0.0.1:1", "10.0.0.2:2"), ("[fd00::1]:1", "[fd00::2]:2")] {
            let (from, to) = (
                from.parse().expect("an address"),
                to.parse().expect("an address"),
            );
            let frame = framed(&datagrams(key, &FIELDS, from, to)[0]);
            let Some(Seen::Packet(read, header, None)) = read(&frame) else {
                panic!("not read")
            };
            assert_eq!((read, header.source, header.destination), (key, from, to));
            assert_eq!((header.tos, header.ttl), (46 << 2 | 1, 40));
            assert_eq!(
                (header.df, header.label),
                if from.is_ipv4() {
                    (true, 0)
                } else {
                    (false, 0xabc)
                }
            );
        }
    }

    #[test]
    fn an_error_names_its_flow() {
        let key = Key {
            flow: 3,
            direction: Direction::Forward,
            number: 9,
        };
        let (from, to) = (
            "10.0.0.1:20003".parse().expect("an address"),
            "10.0.0.2:1".parse().expect("an address"),
        );
        let about = &datagrams(key, &FIELDS, from, to)[0];
        let icmp = [&[3, 3, 0, 0, 0, 0, 0, 0][..], &about.bytes()].concat();
        let packet = Packet::new(
            [10, 0, 0, 2].into(),
            [10, 0, 0, 1].into(),
            1,
            ip_number::ICMP,
            icmp,
        );
        let expected = IcmpError {
            client_port: 20_003,
            kind: 3,
            code: 3,
        };
        assert_eq!(read(&framed(&packet)), Some(Seen::Error(expected)));
        assert_eq!(read(&[0; 60]), None);
    }
}
