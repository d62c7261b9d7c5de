//! Packets whose checksums are right unless a test wants others, computed in one go over the whole
//! packet: the oracle for what is rewritten in steps.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{TcpHeader, checksum::Sum16BitWords};
use flannel_common::{
    packet::addr::{Addr, Mac},
    packet::{PROTO_TCP, PROTO_UDP},
};

use super::{BRIDGE_MAC, POD_MAC};
use crate::packets::{self, Net};

/// The content of the checksum field of TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChecksumField {
    /// The checksum.
    Right,
    /// Zero: UDP without one.
    Absent,
    /// The sum of the pseudo header, which a socket leaves for the device to complete.
    Partial,
    /// Another value.
    Wrong,
}

/// A frame to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) net: Net,
    pub(crate) to: Mac,
    pub(crate) from: Mac,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) ports: [u16; 2],
    pub(crate) protocol: u8,
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    pub(crate) flags: u8,
    pub(crate) payload: usize,
    pub(crate) checksum: ChecksumField,
}

/// TCP in the middle of a connection, from our pod to the peer's.
pub(crate) fn tcp(net: Net) -> Packet {
    Packet {
        net,
        to: BRIDGE_MAC,
        from: POD_MAC,
        source: net.our_pod,
        destination: net.peer_pod,
        ports: [40000, 8080],
        protocol: PROTO_TCP,
        tos: 0xb9,
        ttl: 64,
        flags: 0x10,
        payload: 100,
        checksum: ChecksumField::Right,
    }
}

/// The same as UDP.
pub(super) fn udp(net: Net) -> Packet {
    Packet {
        protocol: PROTO_UDP,
        ..tcp(net)
    }
}

/// One of each kind that is carried.
pub(super) fn kinds(net: Net) -> Vec<Packet> {
    let mut kinds = vec![
        tcp(net),
        udp(net),
        Packet {
            payload: 0,
            ..udp(net)
        },
        Packet {
            payload: 99,
            ..udp(net)
        },
    ];
    if net.our_pod.is_ipv4() {
        kinds.push(Packet {
            checksum: ChecksumField::Absent,
            ..udp(net)
        });
    }
    kinds
}

/// The address of a Service.
pub(super) fn service(net: Net) -> IpAddr {
    match net.our_pod {
        IpAddr::V4(_) => Ipv4Addr::new(10, 96, 0, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, 1).into(),
    }
}

impl Packet {
    /// The packet as its sender addressed it to the Service.
    pub(super) fn to_service(self) -> Self {
        Self {
            destination: service(self.net),
            ports: [self.ports[0], 80],
            ..self
        }
    }

    /// The packet on its way back.
    pub(super) const fn reversed(self) -> Self {
        let [source, destination] = self.ports;
        Self {
            source: self.destination,
            destination: self.source,
            ports: [destination, source],
            ..self
        }
    }

    /// One hop further.
    pub(super) const fn routed(self) -> Self {
        Self {
            ttl: self.ttl - 1,
            ..self
        }
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let payload: Vec<u8> = (0..251).cycle().take(self.payload).collect();
        let [from, to] = self.ports;
        let (mut transport, checksum_at) = if self.protocol == PROTO_UDP {
            (packets::udp(from, to, &payload), 6)
        } else {
            let header = TcpHeader {
                acknowledgment_number: 9,
                ..TcpHeader::new(from, to, 7, 256)
            };
            let mut bytes = [&header.to_bytes()[..], &payload].concat();
            bytes[13] = self.flags;
            (bytes, 16)
        };
        let length = u16::try_from(transport.len()).expect("small");
        let field = match self.checksum {
            ChecksumField::Right => no_zero(&self.pseudo_header(length).add_slice(&transport)),
            ChecksumField::Absent => [0; 2],
            ChecksumField::Partial => no_zero(&self.pseudo_header(length)).map(|byte| !byte),
            ChecksumField::Wrong => {
                no_zero(&self.pseudo_header(length ^ 0x5a).add_slice(&transport))
            }
        };
        transport[checksum_at..checksum_at + 2].copy_from_slice(&field);
        let ends = [self.source, self.destination];
        let ip = packets::routed_ip(self.ttl, self.tos, self.protocol, ends, &transport);
        [
            packets::ethernet(self.to, self.from, self.net.ethertype),
            ip,
        ]
        .concat()
    }

    fn pseudo_header(&self, length: u16) -> Sum16BitWords {
        let [source, destination] = [self.source, self.destination].map(Addr::from);
        // The bytes 0xffff in front of an IPv4 address add nothing to a ones' complement sum.
        Sum16BitWords::new()
            .add_16bytes(source.0)
            .add_16bytes(destination.0)
            .add_2bytes([0, self.protocol])
            .add_2bytes(length.to_be_bytes())
    }
}

/// Zero means "none" and is written the other way.
fn no_zero(sum: &Sum16BitWords) -> [u8; 2] {
    sum.to_ones_complement_with_no_zero().to_ne_bytes()
}
