//! Synthetic packets: a TCP segment in the middle of a connection, a UDP datagram or an ICMP echo
//! request, alone or inside the tunnel. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use flannel_common::{
    flow::arrival::Arrival,
    packet::addr::Mac,
    packet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, IPV4_LEN, PROTO_TCP, PROTO_UDP, ipv4_checksum},
};

/// As hosts send them.
const HOP_LIMIT: u8 = 64;
const PAYLOAD: [u8; 16] = *b"flannel explain\n";
/// TCP: data offset of five words, ACK and PSH.
const TCP_STATE: [u8; 2] = [0x50, 0x18];
const TCP_WINDOW: [u8; 2] = [0x10, 0];
/// Types of echo requests.
const ICMP_ECHO: u8 = 8;
const ICMPV6_ECHO: u8 = 128;
/// VXLAN: a VNI is there.
const VXLAN_FLAGS: u8 = 0x08;

/// From whom to whom, by which protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) protocol: u8,
    pub(super) fields: Fields,
}

/// Fields of an IP header that belong to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    /// TOS or traffic class.
    pub(super) tos: u8,
    /// TTL or hop limit.
    pub(super) ttl: u8,
    /// IPv6 flow label, 20 bits.
    pub(super) flow_label: u32,
}

impl Fields {
    /// As hosts send packets.
    pub(super) const USUAL: Self = Self {
        tos: 0,
        ttl: HOP_LIMIT,
        flow_label: 0,
    };
}

/// The outer side of a tunnel packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outer {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// UDP destination port, network order.
    pub(super) port: [u8; 2],
    pub(super) vni: u32,
}

/// A packet between the ends, in a frame.
pub(super) fn frame(to: Mac, from: Mac, ends: &Ends) -> Vec<u8> {
    let [source, destination] = [ends.source, ends.destination].map(|end| end.port().to_be_bytes());
    let transport = match ends.protocol {
        PROTO_TCP => [
            &source[..],
            &destination,
            &[0; 8],
            &TCP_STATE,
            &TCP_WINDOW,
            &[0; 4],
            &PAYLOAD,
        ]
        .concat(),
        PROTO_UDP => udp(source, destination, &PAYLOAD),
        _ => echo_request(ends.destination.ip()),
    };
    framed(
        to,
        from,
        &ip(
            ends.protocol,
            ends.fields,
            ends.source.ip(),
            ends.destination.ip(),
            &transport,
        ),
    )
}

/// Outer source port of a frame inside the tunnel.
const OUTER_PORT: [u8; 2] = [0xc0, 0];

/// The arrival by this device of a frame inside the tunnel.
pub(super) const fn tunnel_arrival(from: Mac, device: u32) -> Arrival {
    Arrival::new(
        from,
        Fields::USUAL.ttl,
        Fields::USUAL.tos,
        device,
        u16::from_ne_bytes(OUTER_PORT),
    )
}

/// A frame inside the tunnel, in an outer frame.
pub(super) fn tunnelled(to: Mac, from: Mac, outer: &Outer, inner: &[u8]) -> Vec<u8> {
    let [_, high, middle, low] = outer.vni.to_be_bytes();
    let vxlan = [&[VXLAN_FLAGS, 0, 0, 0, high, middle, low, 0], inner].concat();
    let datagram = udp(OUTER_PORT, outer.port, &vxlan);
    framed(
        to,
        from,
        &ip(
            PROTO_UDP,
            Fields::USUAL,
            outer.source,
            outer.destination,
            &datagram,
        ),
    )
}

fn framed(to: Mac, from: Mac, packet: &[u8]) -> Vec<u8> {
    let ethertype = if packet[0] >> 4 == 4 {
        ETHERTYPE_IPV4
    } else {
        ETHERTYPE_IPV6
    };
    [&to.0[..], &from.0, &ethertype, packet].concat()
}

/// Likewise: type, code, checksum, identifier and sequence number.
fn echo_request(to: IpAddr) -> Vec<u8> {
    let kind = if to.is_ipv4() { ICMP_ECHO } else { ICMPV6_ECHO };
    [&[kind, 0, 0, 0, 0, 1, 0, 1][..], &PAYLOAD].concat()
}

/// Without a checksum: the programs do not look at it.
fn udp(source: [u8; 2], destination: [u8; 2], payload: &[u8]) -> Vec<u8> {
    [
        &source[..],
        &destination,
        &length(8 + payload.len()),
        &[0, 0],
        payload,
    ]
    .concat()
}

/// Two addresses of one family, as the question was checked to have.
fn ip(
    protocol: u8,
    fields: Fields,
    source: IpAddr,
    destination: IpAddr,
    payload: &[u8],
) -> Vec<u8> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            ipv4(protocol, fields, source, destination, payload)
        }
        (source, destination) => ipv6(protocol, fields, v6(source), v6(destination), payload),
    }
}

const fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn ipv4(
    protocol: u8,
    fields: Fields,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    payload: &[u8],
) -> Vec<u8> {
    let mut header = [0; IPV4_LEN];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&length(IPV4_LEN + payload.len()));
    (header[1], header[8], header[9]) = (fields.tos, fields.ttl, protocol);
    header[12..16].copy_from_slice(&source.octets());
    header[16..20].copy_from_slice(&destination.octets());
    let checksum = ipv4_checksum(&header);
    header[10..12].copy_from_slice(&checksum);
    [&header[..], payload].concat()
}

fn ipv6(
    protocol: u8,
    fields: Fields,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    payload: &[u8],
) -> Vec<u8> {
    let first = 6 << 28 | u32::from(fields.tos) << 20 | fields.flow_label & 0x000f_ffff;
    let start = [
        &first.to_be_bytes()[..],
        &length(payload.len()),
        &[protocol, fields.ttl],
    ]
    .concat();
    [&start[..], &source.octets(), &destination.octets(), payload].concat()
}

fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use flannel_common::packet::{
        inner::{Frame, InnerHeader, ParsedPacket},
        ip::{Ipv4Header, Ipv6Header},
    };

    use super::*;

    /// Parses a frame as the programs do.
    fn read<H: InnerHeader>(bytes: &[u8]) -> ParsedPacket<H::Address> {
        let padded = [&[0; 8][..Frame::<H>::PAD], bytes, &[0; 8]].concat();
        assert!(padded.len() >= size_of::<Frame<H>>());
        // SAFETY: a frame is plain bytes, of which there are enough.
        let frame = unsafe { padded.as_ptr().cast::<Frame<H>>().read_unaligned() };
        let mut plain = ParsedPacket::default();
        let len = u32::try_from(bytes.len()).expect("small");
        frame.read(len, 3, &mut plain).expect("a plain packet");
        plain
    }

    fn ends(source: &str, destination: &str, protocol: u8) -> Ends {
        let end = |text: &str| text.parse().expect("an address and a port");
        Ends {
            source: end(source),
            destination: end(destination),
            protocol,
            fields: Fields::USUAL,
        }
    }

    #[test]
    fn packets_are_plain_and_of_their_ends() {
        for protocol in [PROTO_TCP, PROTO_UDP] {
            let four = ends("10.244.1.5:40000", "10.244.2.2:80", protocol);
            let plain = read::<Ipv4Header>(&frame(Mac::default(), Mac::default(), &four));
            assert_eq!(
                (plain.key.port_numbers(), plain.is_control),
                ([40000, 80], false)
            );
            assert_eq!(plain.key.source, [u32::from_ne_bytes([10, 244, 1, 5])]);
            let six = ends("[fd00::5]:40000", "[fd00::2]:80", protocol);
            let plain = read::<Ipv6Header>(&frame(Mac::default(), Mac::default(), &six));
            assert_eq!(
                (plain.key.port_numbers(), plain.key.protocol),
                ([40000, 80], u32::from(protocol))
            );
        }
    }

    #[test]
    fn a_tunnel_packet_has_its_headers() {
        let (source, destination) = (
            "192.168.1.2".parse().expect("an address"),
            "192.168.1.1".parse().expect("an address"),
        );
        let outer = Outer {
            source,
            destination,
            port: 8472_u16.to_be_bytes(),
            vni: 0x01_0203,
        };
        let packet = tunnelled(Mac::default(), Mac::default(), &outer, &[0xaa; 60]);
        assert_eq!(packet[36..38], 8472_u16.to_be_bytes());
        assert_eq!(packet[42..50], [8, 0, 0, 0, 1, 2, 3, 0]);
        assert_eq!(packet[50..], [0xaa; 60]);
    }
}
