//! The packets and the node of the fixtures, over either family.
//!
//! The node has VTEP 02:..:01 at 192.168.1.1 in network 10.244.0.0/16, and at 2001:db8:1::1 in
//! network fd00:10:244::/56; its one peer has 02:..:02 at 192.168.1.2 with subnet 10.244.7.0/24,
//! and at 2001:db8:1::2 with fd00:10:244:7::/64.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{IpNumber, Ipv4Header, Ipv6Header, TcpHeader, UdpHeader};
use flannel_common::{
    abi::{node::FamilyConfig, peer::PeerEntry},
    flow::arrival::Arrival,
    packet::addr::{Addr, Mac},
    packet::{PROTO_TCP, PROTO_UDP},
};

pub(crate) const SUBNETS: u32 = 256;
pub(crate) const PEER_INDEX: u32 = 7;
pub(crate) const OUR_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub(crate) const PEER_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
/// `lo`, the only device of the bench.
pub(crate) const LO: u32 = 1;

/// The values that differ between the families.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Net {
    pub(crate) network: IpAddr,
    subnet_shift: u32,
    pub(crate) ethertype: u16,
    pub(crate) our_vtep: IpAddr,
    pub(crate) peer_vtep: IpAddr,
    pub(crate) our_pod: IpAddr,
    pub(crate) peer_pod: IpAddr,
    /// The base address of the peer's subnet, from which its own host speaks.
    pub(crate) peer_host: IpAddr,
    /// Of the network, in a subnet without a peer.
    pub(crate) unleased: IpAddr,
    /// Addresses outside the network: one next to it, and one far from it.
    pub(crate) outside: [IpAddr; 2],
}

pub(crate) const V4: Net = Net {
    network: IpAddr::V4(Ipv4Addr::new(10, 244, 0, 0)),
    subnet_shift: 8,
    ethertype: 0x0800,
    our_vtep: IpAddr::V4(Ipv4Addr::new(192, 168, 1, 1)),
    peer_vtep: IpAddr::V4(Ipv4Addr::new(192, 168, 1, 2)),
    our_pod: IpAddr::V4(Ipv4Addr::new(10, 244, 1, 5)),
    peer_pod: IpAddr::V4(Ipv4Addr::new(10, 244, 7, 9)),
    peer_host: IpAddr::V4(Ipv4Addr::new(10, 244, 7, 0)),
    unleased: IpAddr::V4(Ipv4Addr::new(10, 244, 8, 9)),
    outside: [
        IpAddr::V4(Ipv4Addr::new(10, 245, 7, 9)),
        IpAddr::V4(Ipv4Addr::new(8, 8, 8, 8)),
    ],
};

pub(crate) const V6: Net = Net {
    network: v6(0xfd00, 0x10, 0x244, 0, 0),
    subnet_shift: 64,
    ethertype: 0x86dd,
    our_vtep: v6(0x2001, 0xdb8, 1, 0, 1),
    peer_vtep: v6(0x2001, 0xdb8, 1, 0, 2),
    our_pod: v6(0xfd00, 0x10, 0x244, 1, 5),
    peer_pod: v6(0xfd00, 0x10, 0x244, 7, 9),
    peer_host: v6(0xfd00, 0x10, 0x244, 7, 0),
    unleased: v6(0xfd00, 0x10, 0x244, 8, 9),
    outside: [v6(0xfd00, 0x10, 0x244, 0x107, 9), v6(0xff02, 0, 0, 0, 1)],
};

pub(crate) const BOTH: [Net; 2] = [V4, V6];

const fn v6(first: u16, second: u16, third: u16, fourth: u16, last: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(first, second, third, fourth, 0, 0, 0, last))
}

impl Net {
    pub(crate) fn family(self) -> FamilyConfig {
        FamilyConfig {
            network: self.network.into(),
            vtep: self.our_vtep.into(),
            vtep_mac: OUR_MAC,
            port: 8472_u16.to_be_bytes(),
            vni: 1,
            subnet_shift: self.subnet_shift,
            subnet_count: SUBNETS,
            tunnel_ifindex: LO,
            underlay_ifindex: LO,
            source_port_min: 32768,
            source_port_max: 60999,
        }
    }

    /// The same node with a backend that has no tunnel.
    pub(crate) fn without_tunnel(self) -> FamilyConfig {
        FamilyConfig {
            vtep_mac: Mac::default(),
            port: [0; 2],
            vni: 0,
            tunnel_ifindex: 0,
            ..self.family()
        }
    }

    pub(crate) fn peer(self) -> PeerEntry {
        PeerEntry {
            vtep: self.peer_vtep.into(),
            next_hop: self.peer_vtep.into(),
            mac: PEER_MAC,
            oif: LO,
            mtu: 1500,
            ..PeerEntry::default()
        }
    }

    /// Returns the offsets in a tunnel packet.
    pub(crate) const fn at(self) -> At {
        let ip = 14;
        let udp = ip + self.header_len();
        At {
            ip,
            udp,
            vxlan: udp + 8,
            inner: udp + 16,
            inner_ip: udp + 30,
            addresses: udp - self.address_len() * 2,
        }
    }

    /// The segment of both VTEPs.
    pub(crate) fn base(self) -> IpAddr {
        let mut base = Addr::from(self.our_vtep);
        base.0[15] = 0;
        base.into()
    }

    const fn header_len(self) -> usize {
        if self.our_vtep.is_ipv4() { 20 } else { 40 }
    }

    pub(crate) const fn address_len(self) -> usize {
        if self.our_vtep.is_ipv4() { 4 } else { 16 }
    }

    /// Returns the number of bytes that encapsulation adds, with an inner IP and UDP header.
    pub(crate) const fn udp_overhead(self) -> usize {
        self.header_len() + 30 + self.header_len() + 8
    }

    /// Returns the frame that the kernel hands to the tunnel device for the peer's pod: a UDP
    /// packet, TOS 0xb9 (ECT(1)).
    pub(crate) fn inner_to_peer(self, payload: usize) -> Vec<u8> {
        let datagram = udp(4000, 53, &vec![0xaa; payload]);
        self.framed_to_peer(&ip(0xb9, PROTO_UDP, self.our_pod, self.peer_pod, &datagram))
    }

    /// The same as TCP.
    pub(crate) fn inner_tcp_to_peer(self, payload: usize) -> Vec<u8> {
        let segment = tcp(&vec![0xaa; payload]);
        self.framed_to_peer(&ip(0, PROTO_TCP, self.our_pod, self.peer_pod, &segment))
    }

    /// An IP packet in the frame the kernel's neighbour entry makes.
    pub(crate) fn framed_to_peer(self, ip: &[u8]) -> Vec<u8> {
        [ethernet(PEER_MAC, OUR_MAC, self.ethertype), ip.to_vec()].concat()
    }

    /// The kernel's own tunnel packet around a frame, as it leaves our external interface.
    pub(crate) fn tunnel_to_peer(self, frame: &[u8]) -> Vec<u8> {
        self.tunnel_of(self.our_vtep, self.peer_vtep, 0x01, frame)
    }

    /// A tunnel packet from the peer, with a UDP packet from `source` inside.
    pub(crate) fn tunnel_from_peer(self, source: IpAddr) -> Vec<u8> {
        let inner = ip(
            0,
            PROTO_UDP,
            source,
            self.our_pod,
            &udp(53, 4000, b"answer"),
        );
        let frame = [ethernet(OUR_MAC, PEER_MAC, self.ethertype), inner].concat();
        self.tunnel_of(self.peer_vtep, self.our_vtep, 0, &frame)
    }

    /// A frame in the peer's outer headers, with an outer TOS.
    pub(crate) fn tunnel_frame_from_peer(self, tos: u8, frame: &[u8]) -> Vec<u8> {
        self.tunnel_of(self.peer_vtep, self.our_vtep, tos, frame)
    }

    /// Outer headers as the kernel's vxlan device makes them: UDP checksum present, identification
    /// counted.
    pub(crate) fn tunnel_of(self, from: IpAddr, to: IpAddr, tos: u8, frame: &[u8]) -> Vec<u8> {
        let vxlan = [&[0x08, 0, 0, 0, 0, 0, 1, 0], frame].concat();
        let mut datagram = udp(OUTER_PORT, 8472, &vxlan);
        datagram[6..8].copy_from_slice(&[0x12, 0x34]);
        let packet = ip(tos, PROTO_UDP, from, to, &datagram);
        [
            ethernet(Mac([2, 9, 9, 9, 9, 9]), ROUTER_MAC, self.ethertype),
            packet,
        ]
        .concat()
    }
}

/// The Ethernet source of tunnel packets.
pub(crate) const ROUTER_MAC: Mac = Mac([2, 8, 8, 8, 8, 8]);
/// Their UDP source port.
pub(crate) const OUTER_PORT: u16 = 40_000;

/// The way by which tunnel packets without a DSCP arrive.
pub(crate) const fn usual_arrival() -> Arrival {
    Arrival::new(ROUTER_MAC, 64, 0, LO, OUTER_PORT.to_be())
}

/// Offsets in a tunnel packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) ip: usize,
    /// The outer source address; the destination follows.
    pub(crate) addresses: usize,
    pub(crate) udp: usize,
    pub(crate) vxlan: usize,
    pub(crate) inner: usize,
    pub(crate) inner_ip: usize,
}

/// The packet with an IPv4 option of four bytes, or an IPv6 header of destination options, before
/// what followed the address.
pub(crate) fn with_options(net: Net, packet: &[u8]) -> Vec<u8> {
    let at = net.at();
    let mut packet = packet.to_vec();
    if net.our_vtep.is_ipv4() {
        packet[at.ip] += 1;
        return [&packet[..at.udp], &[1, 1, 1, 0], &packet[at.udp..]].concat();
    }
    let options = [packet[at.ip + 6], 0, 1, 4, 0, 0, 0, 0];
    packet[at.ip + 6] = 60;
    [&packet[..at.udp], &options, &packet[at.udp..]].concat()
}

/// Ethernet header.
pub(crate) fn ethernet(to: Mac, from: Mac, ethertype: u16) -> Vec<u8> {
    [to.0.as_slice(), &from.0, &ethertype.to_be_bytes()].concat()
}

/// IP header with its payload.
pub(crate) fn ip(tos: u8, protocol: u8, from: IpAddr, to: IpAddr, payload: &[u8]) -> Vec<u8> {
    routed_ip(64, tos, protocol, [from, to], payload)
}

/// The same with another TTL.
pub(crate) fn routed_ip(
    ttl: u8,
    tos: u8,
    protocol: u8,
    ends: [IpAddr; 2],
    payload: &[u8],
) -> Vec<u8> {
    let len = u16::try_from(payload.len()).expect("a packet");
    match ends {
        [IpAddr::V4(from), IpAddr::V4(to)] => {
            let header = Ipv4Header::new(len, ttl, IpNumber(protocol), from.octets(), to.octets());
            let mut header = Ipv4Header {
                dscp: (tos >> 2).try_into().expect("six bits"),
                ecn: (tos & 3).try_into().expect("two bits"),
                dont_fragment: false,
                ..header.expect("a packet")
            };
            header.header_checksum = header.calc_header_checksum();
            [&header.to_bytes()[..], payload].concat()
        }
        [IpAddr::V6(from), IpAddr::V6(to)] => {
            let header = Ipv6Header {
                traffic_class: tos,
                payload_length: len,
                next_header: IpNumber(protocol),
                hop_limit: ttl,
                source: from.octets(),
                destination: to.octets(),
                ..Ipv6Header::default()
            };
            [&header.to_bytes()[..], payload].concat()
        }
        _ => panic!("one packet has one family"),
    }
}

/// The packet as the first fragment of a larger one: behind a fragment header (IPv6), or by its
/// flags (IPv4).
pub(crate) fn first_fragment(net: Net, packet: &[u8]) -> Vec<u8> {
    fragment(net, packet, 0)
}

/// The same as a later fragment, with what would be a UDP header in the first.
pub(crate) fn later_fragment(net: Net, packet: &[u8]) -> Vec<u8> {
    fragment(net, packet, 16)
}

/// `offset` counts units of eight bytes.
fn fragment(net: Net, packet: &[u8], offset: u8) -> Vec<u8> {
    let at = net.at();
    let mut packet = packet.to_vec();
    if net.our_vtep.is_ipv4() {
        packet[at.ip + 6] = 0x20;
        packet[at.ip + 7] = offset;
        return packet;
    }
    let header = [packet[at.ip + 6], 0, 0, offset << 3 | 1, 0, 0, 0, 9];
    packet[at.ip + 6] = 44;
    let length = u16::from_be_bytes([packet[at.ip + 4], packet[at.ip + 5]]) + 8;
    packet[at.ip + 4..at.ip + 6].copy_from_slice(&length.to_be_bytes());
    [&packet[..at.udp], &header, &packet[at.udp..]].concat()
}

/// UDP header with its payload, without checksum.
pub(crate) fn udp(from: u16, to: u16, payload: &[u8]) -> Vec<u8> {
    let header = UdpHeader::without_ipv4_checksum(from, to, payload.len()).expect("a packet");
    [&header.to_bytes()[..], payload].concat()
}

/// TCP header of twenty bytes with its payload.
pub(crate) fn tcp(payload: &[u8]) -> Vec<u8> {
    let header = TcpHeader {
        ack: true,
        ..TcpHeader::new(40_000, 80, 0, 0)
    };
    [&header.to_bytes()[..], payload].concat()
}
