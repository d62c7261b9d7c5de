//! Packets with every checksum right, computed in one go over the whole packet: the oracle for what is rewritten in
//! steps.

use std::net::Ipv4Addr;

use flannel_common::{
    addr::Mac,
    packet::{PROTO_TCP, PROTO_UDP},
};

use super::{BRIDGE_MAC, POD_MAC};
use crate::packets::{self, OUR_POD, PEER_POD};

/// A frame to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) to: Mac,
    pub(super) from: Mac,
    pub(super) source: Ipv4Addr,
    pub(super) destination: Ipv4Addr,
    pub(super) ports: [u16; 2],
    pub(super) protocol: u8,
    pub(super) tos: u8,
    pub(super) ttl: u8,
    pub(super) flags: u8,
    pub(super) payload: usize,
    pub(super) without_checksum: bool,
}

/// TCP in the middle of a connection, from our pod to the peer's.
pub(super) fn tcp() -> Packet {
    Packet {
        to: BRIDGE_MAC,
        from: POD_MAC,
        source: OUR_POD,
        destination: PEER_POD,
        ports: [40000, 8080],
        protocol: PROTO_TCP,
        tos: 0xb9,
        ttl: 64,
        flags: 0x10,
        payload: 100,
        without_checksum: false,
    }
}

/// The same as UDP.
pub(super) fn udp() -> Packet {
    Packet { protocol: PROTO_UDP, ..tcp() }
}

impl Packet {
    /// The packet on its way back.
    pub(super) const fn reversed(self) -> Self {
        let [source, destination] = self.ports;
        Self { source: self.destination, destination: self.source, ports: [destination, source], ..self }
    }

    /// As it was sent, one hop further.
    pub(super) const fn routed(self) -> Self {
        Self { ttl: self.ttl - 1, ..self }
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let header = [self.ports[0].to_be_bytes(), self.ports[1].to_be_bytes()].concat();
        let (mut transport, checksum_at) = match self.protocol {
            PROTO_TCP => ([header, vec![0, 0, 0, 7, 0, 0, 0, 9, 0x50, self.flags, 1, 0, 0, 0, 0, 0]].concat(), 16),
            _ => {
                let length = u16::try_from(8 + self.payload).expect("small").to_be_bytes();
                ([header, length.to_vec(), vec![0, 0]].concat(), 6)
            }
        };
        transport.extend((0..self.payload).map(|at| u8::try_from(at % 251).expect("a byte")));
        if !self.without_checksum {
            let checksum = self.checksum(&transport).to_be_bytes();
            transport[checksum_at..checksum_at + 2].copy_from_slice(&checksum);
        }
        let mut ip = packets::ipv4(self.tos, self.protocol, self.source, self.destination, &transport);
        ip[8] = self.ttl;
        ip[10..12].fill(0);
        let checksum = (!sum(&ip[..20])).to_be_bytes();
        ip[10..12].copy_from_slice(&checksum);
        [packets::ethernet(self.to, self.from, 0x0800), ip].concat()
    }

    fn checksum(&self, transport: &[u8]) -> u16 {
        let length = u16::try_from(transport.len()).expect("small").to_be_bytes();
        let addresses = [self.source.octets(), self.destination.octets()].concat();
        let checksum = !sum(&[addresses, vec![0, self.protocol], length.to_vec(), transport.to_vec()].concat());
        // UDP keeps zero for "none".
        if checksum == 0 { 0xffff } else { checksum }
    }
}

/// The one's complement sum of big-endian words.
fn sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from)).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded")
}
