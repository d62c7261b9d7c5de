//! Packets with every checksum right, computed in one go over the whole packet: the oracle for what
//! is rewritten in steps.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flannel_common::{
    addr::Mac,
    packet::{PROTO_TCP, PROTO_UDP},
};

use super::{BRIDGE_MAC, POD_MAC};
use crate::packets::{self, Net};

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
    pub(crate) without_checksum: bool,
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
        without_checksum: false,
    }
}

/// The same as UDP.
pub(super) fn udp(net: Net) -> Packet {
    Packet { protocol: PROTO_UDP, ..tcp(net) }
}

/// One of each kind that is carried.
pub(super) fn kinds(net: Net) -> Vec<Packet> {
    let mut kinds = vec![tcp(net), udp(net), Packet { payload: 0, ..udp(net) }, Packet { payload: 99, ..udp(net) }];
    if net.our_pod.is_ipv4() {
        kinds.push(Packet { without_checksum: true, ..udp(net) });
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
        Self { destination: service(self.net), ports: [self.ports[0], 80], ..self }
    }

    /// The packet on its way back.
    pub(super) const fn reversed(self) -> Self {
        let [source, destination] = self.ports;
        Self { source: self.destination, destination: self.source, ports: [destination, source], ..self }
    }

    /// One hop further.
    pub(super) const fn routed(self) -> Self {
        Self { ttl: self.ttl - 1, ..self }
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let ports = [self.ports[0].to_be_bytes(), self.ports[1].to_be_bytes()].concat();
        let (mut transport, checksum_at) = if self.protocol == PROTO_UDP {
            let length = u16::try_from(8 + self.payload).expect("small").to_be_bytes();
            ([ports, length.to_vec(), vec![0, 0]].concat(), 6)
        } else {
            ([ports, vec![0, 0, 0, 7, 0, 0, 0, 9, 0x50, self.flags, 1, 0, 0, 0, 0, 0]].concat(), 16)
        };
        transport.extend((0..self.payload).map(|at| u8::try_from(at % 251).expect("a byte")));
        if !self.without_checksum {
            let checksum = self.checksum(&transport).to_be_bytes();
            transport[checksum_at..checksum_at + 2].copy_from_slice(&checksum);
        }
        let mut ip = packets::ip(self.tos, self.protocol, self.source, self.destination, &transport);
        if self.source.is_ipv4() {
            ip[8] = self.ttl;
            ip[10..12].fill(0);
            let checksum = (!sum(&ip[..20])).to_be_bytes();
            ip[10..12].copy_from_slice(&checksum);
        } else {
            ip[7] = self.ttl;
        }
        [packets::ethernet(self.to, self.from, self.net.ethertype), ip].concat()
    }

    fn checksum(&self, transport: &[u8]) -> u16 {
        let length = u16::try_from(transport.len()).expect("small").to_be_bytes();
        let addresses = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => [source.octets(), destination.octets()].concat(),
            (IpAddr::V6(source), IpAddr::V6(destination)) => [source.octets(), destination.octets()].concat(),
            _ => panic!("one packet has one family"),
        };
        let checksum = !sum(&[addresses, vec![0, self.protocol], length.to_vec(), transport.to_vec()].concat());
        // Zero means "none".
        if checksum == 0 { 0xffff } else { checksum }
    }
}

/// The one's complement sum of big-endian words.
fn sum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u32::from);
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded")
}
