use super::*;
use crate::{
    flow::flow_key::tests::flow_key,
    packet::{
        IPV4_LEN, IPV6_LEN, PROTO_TCP,
        ip::{IpHeader as _, Ipv4Header, Ipv6Header},
    },
};

/// A frame around an IP header.
fn frame<H: InnerHeader>(ip: H, transport: &[u8]) -> (Frame<H>, u32) {
    let mut words = TransportWords::default();
    let room = size_of::<TransportWords>().min(transport.len());
    // SAFETY: there is room for that many bytes, and any bytes are a value.
    unsafe { core::ptr::copy_nonoverlapping(transport.as_ptr(), (&raw mut words).cast(), room) };
    let addresses = FrameAddresses::new(Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
    let ethertype = u16::from_ne_bytes(H::ETHERTYPE);
    let len = ETH_LEN + size_of::<H>() + transport.len();
    (
        Frame {
            pad: [0; 2],
            addresses,
            ethertype,
            ip,
            transport: words,
        },
        u32::try_from(len).expect("small"),
    )
}

fn v4(protocol: u8, transport: &[u8]) -> Ipv4Header {
    let length = u16::try_from(IPV4_LEN + transport.len())
        .expect("small")
        .to_be_bytes();
    let mut bytes = [0; IPV4_LEN];
    bytes[..10].copy_from_slice(&[
        0x45, 0xb9, length[0], length[1], 0x12, 0x34, 0x40, 0, 64, protocol,
    ]);
    bytes[12..].copy_from_slice(&[10, 244, 1, 5, 10, 244, 7, 9]);
    sealed(bytes)
}

/// The header with the right checksum.
fn sealed(mut bytes: [u8; IPV4_LEN]) -> Ipv4Header {
    bytes[10..12].fill(0);
    let checksum = crate::packet::ipv4_checksum(&bytes);
    bytes[10..12].copy_from_slice(&checksum);
    Ipv4Header(bytes)
}

fn v6(protocol: u8, transport: &[u8]) -> Ipv6Header {
    let length = u16::try_from(transport.len()).expect("small").to_be_bytes();
    let mut bytes = [7; IPV6_LEN];
    bytes[..8].copy_from_slice(&[0x6b, 0x91, 0x23, 0x45, length[0], length[1], protocol, 64]);
    Ipv6Header(bytes)
}

fn tcp(flags: u8) -> Vec<u8> {
    let mut bytes = vec![
        0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 0, 0, 0xab, 0xcd, 0, 0,
    ];
    bytes.extend(b"data");
    bytes
}

fn plain<H: InnerHeader>(
    (frame, len): (Frame<H>, u32),
) -> Result<ParsedPacket<H::Address>, Reason> {
    let mut packet = ParsedPacket::default();
    frame.read(len, 7, &mut packet).map(|()| packet)
}

fn plain_tcp(flags: u8) -> Result<ParsedPacket<[u32; 1]>, Reason> {
    plain(frame(v4(PROTO_TCP, &tcp(flags)), &tcp(flags)))
}

#[test]
fn tcp_mid_flow_is_plain() {
    let packet = plain_tcp(0x10).expect("plain");
    assert_eq!(
        packet.key,
        flow_key([10, 244, 1, 5], 40000, [10, 244, 7, 9], 80, 7)
    );
    assert_eq!((packet.headers, packet.is_control), (40, false));
    assert_eq!(
        (
            packet.fingerprint.tos,
            packet.fingerprint.ttl,
            packet.fingerprint.length
        ),
        (0xb9, 64, 44)
    );
    assert_eq!(packet.fingerprint.checksum.to_ne_bytes(), [0xab, 0xcd]);
    assert_eq!(
        (packet.segment_len(0), packet.segment_len(1000)),
        (44, 1040)
    );
}

#[test]
fn ipv6_is_read_alike() {
    let packet = plain(frame(v6(PROTO_TCP, &tcp(0x10)), &tcp(0x10))).expect("plain");
    assert_eq!(packet.key.source, [u32::from_ne_bytes([7; 4]); 4]);
    assert_eq!(
        (packet.headers, packet.key.port_numbers()),
        (60, [40000, 80])
    );
    assert_eq!(
        (
            packet.fingerprint.tos,
            packet.fingerprint.ttl,
            packet.fingerprint.length
        ),
        (0xb9, 64, 64)
    );
    let other = |at: usize, value: u8| {
        let mut ip = v6(PROTO_TCP, &tcp(0x10));
        ip.0[at] = value;
        plain(frame(ip, &tcp(0x10))).err()
    };
    // Version, payload length, an extension header, the fragment header, the hop limit.
    for (at, value) in [(0, 0x4b), (5, 23), (4, 0xff), (7, 1), (7, 0)] {
        assert_eq!(
            other(at, value),
            Some(Reason::NotPlain),
            "byte {at} = {value:#x}"
        );
    }
    assert_eq!(
        [other(6, 0), other(6, 58), other(6, 44)].map(|reason| reason.expect("not plain")),
        [
            Reason::OtherTransport,
            Reason::OtherTransport,
            Reason::Fragment
        ]
    );
    assert_eq!(other(7, 2), None);
}

#[test]
fn what_opens_or_closes_a_connection_is_control() {
    for (flags, opens) in [
        (0x02, true),
        (0x12, true),
        (0x01, false),
        (0x11, false),
        (0x04, false),
        (0x14, false),
    ] {
        let packet = plain_tcp(flags).expect("plain");
        assert_eq!(
            (packet.is_control, packet.is_opening),
            (true, opens),
            "{flags:#x}"
        );
    }
    for flags in [0x10, 0x18, 0x30, 0xd0] {
        assert!(!plain_tcp(flags).expect("plain").is_control, "{flags:#x}");
    }
    for flags in [0x00, 0x08, 0x20, 0xe8] {
        assert_eq!(
            plain_tcp(flags).err(),
            Some(Reason::NotPlain),
            "invalid for conntrack: {flags:#x}"
        );
    }
}

#[test]
fn udp_is_plain_without_a_tcp_header() {
    let datagram = [0x9c, 0x40, 0, 53, 0, 8, 0xab, 0xcd];
    let packet = plain(frame(v4(PROTO_UDP, &datagram), &datagram)).expect("plain");
    assert_eq!(
        (
            packet.headers,
            packet.fingerprint.sequence,
            packet.fingerprint.state
        ),
        (28, 0, [0, 0])
    );
    assert_eq!(packet.fingerprint.checksum.to_ne_bytes(), [0xab, 0xcd]);
    assert!(packet.is_udp() && !packet.is_control);
    let wrong = [0x9c, 0x40, 0, 53, 0, 9, 0xab, 0xcd];
    assert_eq!(
        plain(frame(v4(PROTO_UDP, &wrong), &wrong)).err(),
        Some(Reason::NotPlain),
        "UDP length"
    );
}

#[test]
fn everything_else_is_the_kernels() {
    let with = |at: usize, value: u8| {
        let mut ip = v4(PROTO_TCP, &tcp(0x10));
        ip.0[at] = value;
        plain(frame(sealed(ip.0), &tcp(0x10))).err()
    };
    // Options, version 6, more fragments, an offset, the reserved flag, TTL, ICMP, lengths.
    for (at, value) in [
        (0, 0x46),
        (0, 0x65),
        (6, 0x80),
        (8, 1),
        (8, 0),
        (3, 43),
        (3, 45),
        (3, 3),
    ] {
        assert_eq!(
            with(at, value),
            Some(Reason::NotPlain),
            "byte {at} = {value:#x}"
        );
    }
    for (at, value) in [(6, 0x20), (6, 1), (7, 1)] {
        assert_eq!(
            with(at, value),
            Some(Reason::Fragment),
            "byte {at} = {value:#x}"
        );
    }
    assert_eq!(with(9, 1), Some(Reason::OtherTransport), "ICMP");
    assert_eq!(with(8, 2), None, "TTL 2 goes on");
    for at in 0..IPV4_LEN {
        let mut ip = v4(PROTO_TCP, &tcp(0x10));
        ip.0[at] ^= 4;
        let expected = match at {
            6 | 7 => Reason::Fragment,
            9 => Reason::OtherTransport,
            _ => Reason::NotPlain,
        };
        assert_eq!(
            plain(frame(ip, &tcp(0x10))).err(),
            Some(expected),
            "checksum, byte {at}"
        );
    }
    for offset in [0x40, 0xf0] {
        let mut segment = tcp(0x10);
        segment[12] = offset;
        let ip = v4(PROTO_TCP, &segment);
        assert_eq!(
            plain(frame(ip, &segment)).err(),
            Some(Reason::NotPlain),
            "data offset {offset:#x}"
        );
    }
    let (mut other, len) = frame(v4(PROTO_TCP, &tcp(0x10)), &tcp(0x10));
    other.ethertype = u16::from_ne_bytes([0x86, 0xdd]);
    assert_eq!(plain((other, len)).err(), Some(Reason::OtherProtocol));
}

#[test]
fn a_rewritten_header_has_a_right_checksum() {
    let (frame, len) = frame(v4(PROTO_TCP, &tcp(0x10)), &tcp(0x10));
    let from = plain((frame, len)).expect("plain").key;
    let to = flow_key([10, 96, 0, 1], 1, [172, 16, 254, 253], 2, 8);
    for (step, tos) in [(0, 0xb9), (1, 0xb9), (1, 0xbb)] {
        let mut ip = Ipv4Header([0xff; IPV4_LEN]);
        frame.ip().write_rewritten(&from, &to, step, tos, &mut ip);
        assert_eq!((ip.ttl(), ip.tos()), (64 - step, tos));
        assert_eq!(
            (ip.source_address(), ip.destination_address()),
            (to.source, to.destination)
        );
        let mut blank = ip.0;
        blank[10..12].fill(0);
        assert_eq!(ip.0[10..12], crate::packet::ipv4_checksum(&blank));
    }
}

#[test]
fn a_rewritten_ipv6_header_keeps_its_flow_label() {
    let ip = v6(PROTO_TCP, &tcp(0x10));
    let to = FlowKey {
        source: [1, 2, 3, 4],
        destination: [5, 6, 7, 8],
        ..FlowKey::default()
    };
    let mut rewritten = Ipv6Header([0xff; IPV6_LEN]);
    ip.write_rewritten(&FlowKey::default(), &to, 1, 0xbb, &mut rewritten);
    assert_eq!(
        rewritten.0[..8],
        [0x6b, 0xb1, 0x23, 0x45, 0, 24, PROTO_TCP, 63]
    );
    assert_eq!(
        (rewritten.source_address(), rewritten.destination_address()),
        (to.source, to.destination)
    );
}

#[test]
fn every_byte_of_the_addresses_counts() {
    let (to, from) = (Mac([1, 2, 3, 4, 5, 6]), Mac([7, 8, 9, 10, 11, 12]));
    let addresses = FrameAddresses::new(to, from);
    assert!(addresses.are_to(to) && addresses.same(&FrameAddresses::new(to, from)));
    for at in 0..6 {
        let (mut other_to, mut other_from) = (to, from);
        other_to.0[at] ^= 0x40;
        other_from.0[at] ^= 0x40;
        assert!(!addresses.are_to(other_to), "byte {at}");
        assert!(
            !addresses.same(&FrameAddresses::new(other_to, from)),
            "byte {at}"
        );
        assert!(
            !addresses.same(&FrameAddresses::new(to, other_from)),
            "byte {at}"
        );
    }
}
