//! The packets and the node of the fixtures.
//!
//! The node is 192.168.1.1 with VTEP 02:..:01 in network 10.244.0.0/16; its one peer is 192.168.1.2 with VTEP 02:..:02 and
//! subnet 10.244.7.0/24.

use std::net::Ipv4Addr;

use flannel_common::{
    addr::Mac,
    node::FamilyConfig,
    packet::{PROTO_TCP, PROTO_UDP, ipv4_checksum},
    peer::PeerEntry,
};

pub(crate) const SUBNETS: u32 = 256;
pub(crate) const PEER_INDEX: u32 = 7;
pub(crate) const OUR_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub(crate) const PEER_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
pub(crate) const OUR_VTEP: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 1);
pub(crate) const PEER_VTEP: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 2);
pub(crate) const OUR_POD: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 5);
pub(crate) const PEER_POD: Ipv4Addr = Ipv4Addr::new(10, 244, 7, 9);
/// `lo`, the only device of the bench.
pub(crate) const LO: u32 = 1;

pub(crate) fn family() -> FamilyConfig {
    FamilyConfig {
        network: Ipv4Addr::new(10, 244, 0, 0).into(),
        vtep: OUR_VTEP.into(),
        vtep_mac: OUR_MAC,
        port: 8472_u16.to_be_bytes(),
        vni: 1,
        subnet_shift: 8,
        subnet_count: SUBNETS,
        tunnel_ifindex: LO,
        underlay_ifindex: LO,
        source_port_min: 32768,
        source_port_max: 60999,
    }
}

pub(crate) fn peer() -> PeerEntry {
    PeerEntry {
        vtep: PEER_VTEP.into(),
        next_hop: PEER_VTEP.into(),
        mac: PEER_MAC,
        oif: LO,
        mtu: 1500,
        ..PeerEntry::default()
    }
}

/// Ethernet header.
pub(crate) fn ethernet(to: Mac, from: Mac, ethertype: u16) -> Vec<u8> {
    [to.0.as_slice(), &from.0, &ethertype.to_be_bytes()].concat()
}

/// IPv4 header with its payload.
pub(crate) fn ipv4(tos: u8, protocol: u8, from: Ipv4Addr, to: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let total = u16::try_from(20 + payload.len()).expect("a packet");
    let mut header = [0_u8; 20];
    header[0] = 0x45;
    header[1] = tos;
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[8] = 64;
    header[9] = protocol;
    header[12..16].copy_from_slice(&from.octets());
    header[16..20].copy_from_slice(&to.octets());
    let checksum = ipv4_checksum(&header);
    header[10..12].copy_from_slice(&checksum);
    [header.as_slice(), payload].concat()
}

/// UDP header with its payload, without checksum.
pub(crate) fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + payload.len()).expect("a packet");
    [from.to_be_bytes().as_slice(), &to.to_be_bytes(), &len.to_be_bytes(), &[0, 0], payload].concat()
}

/// TCP header of twenty bytes with its payload.
pub(crate) fn tcp(payload: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 20];
    header[0..4].copy_from_slice(&[0x9c, 0x40, 0x00, 0x50]);
    header[12] = 5 << 4;
    header[13] = 0x10;
    [header.as_slice(), payload].concat()
}

/// What the kernel hands to the tunnel device for the peer's pod: a UDP packet, TOS 0xb9 (ECT(1)).
pub(crate) fn inner_to_peer(payload: usize) -> Vec<u8> {
    framed_to_peer(&ipv4(0xb9, PROTO_UDP, OUR_POD, PEER_POD, &udp(4000, 53, &vec![0xaa; payload])))
}

/// The same as TCP.
pub(crate) fn inner_tcp_to_peer(payload: usize) -> Vec<u8> {
    framed_to_peer(&ipv4(0, PROTO_TCP, OUR_POD, PEER_POD, &tcp(&vec![0xaa; payload])))
}

/// An IP packet in the frame the kernel's neighbour entry makes.
pub(crate) fn framed_to_peer(ip: &[u8]) -> Vec<u8> {
    [ethernet(PEER_MAC, OUR_MAC, 0x0800), ip.to_vec()].concat()
}

/// The kernel's own tunnel packet around a frame, as it leaves our external interface.
pub(crate) fn tunnel_to_peer(frame: &[u8]) -> Vec<u8> {
    tunnel(OUR_VTEP, PEER_VTEP, 0x01, frame)
}

/// A tunnel packet from the peer, with a UDP packet from `source` inside.
pub(crate) fn tunnel_from_peer(source: Ipv4Addr) -> Vec<u8> {
    let inner = ipv4(0, PROTO_UDP, source, OUR_POD, &udp(53, 4000, b"answer"));
    tunnel(PEER_VTEP, OUR_VTEP, 0, &[ethernet(OUR_MAC, PEER_MAC, 0x0800), inner].concat())
}

/// A frame in the peer's outer headers, with an outer TOS.
pub(crate) fn tunnel_frame_from_peer(tos: u8, frame: &[u8]) -> Vec<u8> {
    tunnel(PEER_VTEP, OUR_VTEP, tos, frame)
}

/// Outer headers as the kernel's vxlan device makes them: UDP checksum present, identification counted.
fn tunnel(from: Ipv4Addr, to: Ipv4Addr, tos: u8, frame: &[u8]) -> Vec<u8> {
    let vxlan = [&[0x08, 0, 0, 0, 0, 0, 1, 0], frame].concat();
    let mut datagram = udp(40000, 8472, &vxlan);
    datagram[6..8].copy_from_slice(&[0x12, 0x34]);
    let packet = ipv4(tos, PROTO_UDP, from, to, &datagram);
    [ethernet(Mac([2, 9, 9, 9, 9, 9]), Mac([2, 8, 8, 8, 8, 8]), 0x0800), packet].concat()
}

/// Where things are in a tunnel packet.
pub(crate) mod at {
    pub(crate) const IP: usize = 14;
    pub(crate) const UDP: usize = 34;
    pub(crate) const VXLAN: usize = 42;
    pub(crate) const INNER: usize = 50;
}
