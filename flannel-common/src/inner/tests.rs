use super::*;

fn frame(protocol: u8, transport: &[u8]) -> ([u8; FrameV4::LEN], u32) {
    let length = u16::try_from(IPV4_LEN + transport.len()).expect("small");
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0xb9];
    bytes.extend(length.to_be_bytes());
    bytes.extend([0x12, 0x34, 0x40, 0, 64, protocol, 0, 0, 10, 244, 1, 5, 10, 244, 7, 9]);
    let sum: u32 = bytes[14..].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).expect("one carry");
    bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
    bytes.extend(transport);
    let len = u32::try_from(bytes.len()).expect("small");
    bytes.resize(FrameV4::LEN, 0);
    (bytes.try_into().expect("that many"), len)
}

fn tcp(flags: u8) -> Vec<u8> {
    let mut bytes = vec![0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 0, 0, 0xab, 0xcd, 0, 0];
    bytes.extend(b"data");
    bytes
}

fn read(bytes: [u8; FrameV4::LEN]) -> FrameV4 {
    let at = |at: usize| bytes[at..at + 4].try_into().map(u32::from_ne_bytes).expect("four bytes");
    let mac = |at: usize| Mac(bytes[at..at + 6].try_into().expect("six bytes"));
    FrameV4 {
        pad: [0; 2],
        addresses: FrameAddresses { destination: mac(0), source: mac(6) },
        ethertype: [bytes[12], bytes[13]],
        ip: Ipv4Words {
            version_ihl: bytes[14],
            tos: bytes[15],
            length: [bytes[16], bytes[17]],
            ident: at(18),
            ttl: bytes[22],
            protocol: bytes[23],
            checksum: u16::from_ne_bytes([bytes[24], bytes[25]]),
            source: [at(26)],
            destination: [at(30)],
        },
        transport: TransportWords {
            ports: at(34),
            second: at(38),
            acknowledged: at(42),
            state: [bytes[46], bytes[47]],
            window: 0,
            checksum: u16::from_ne_bytes([bytes[50], bytes[51]]),
            urgent: 0,
        },
    }
}

fn plain((bytes, len): ([u8; FrameV4::LEN], u32)) -> Result<Plain<[u32; 1]>, Reason> {
    read(bytes).plain(len, 7)
}

#[test]
fn tcp_mid_flow_is_plain() {
    let packet = plain(frame(PROTO_TCP, &tcp(0x10))).expect("plain");
    assert_eq!(packet.end, crate::end::tests::end([10, 244, 1, 5], 40000, [10, 244, 7, 9], 80, 7));
    assert_eq!((packet.headers, packet.is_control), (40, false));
    assert_eq!((packet.print.tos, packet.print.ttl, packet.print.length), (0xb9, 64, 44));
    assert_eq!(packet.print.checksum.to_ne_bytes(), [0xab, 0xcd]);
    assert_eq!((packet.segment_len(0), packet.segment_len(1000)), (44, 1040));
}

#[test]
fn what_opens_or_closes_a_connection_is_control() {
    for flags in [0x02, 0x12, 0x01, 0x11, 0x04, 0x14] {
        assert!(plain(frame(PROTO_TCP, &tcp(flags))).expect("plain").is_control, "{flags:#x}");
    }
    for flags in [0x10, 0x18, 0x30, 0xd0] {
        assert!(!plain(frame(PROTO_TCP, &tcp(flags))).expect("plain").is_control, "{flags:#x}");
    }
}

#[test]
fn udp_is_plain_without_a_tcp_header() {
    let packet = plain(frame(PROTO_UDP, &[0x9c, 0x40, 0, 53, 0, 8, 0xab, 0xcd])).expect("plain");
    assert_eq!((packet.headers, packet.print.sequence, packet.print.state), (28, 0, [0, 0]));
    assert_eq!(packet.print.checksum.to_ne_bytes(), [0xab, 0xcd]);
    assert!(packet.is_udp() && !packet.is_opening());
}

#[test]
fn everything_else_is_the_kernels() {
    let (good, len) = frame(PROTO_TCP, &tcp(0x10));
    let with = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        plain((bytes, len)).err()
    };
    // Options, version 6, more fragments, an offset, the reserved flag, TTL, ICMP, a short TCP header, one too long.
    for (at, value) in
        [(14, 0x46), (14, 0x65), (20, 0x20), (21, 1), (20, 0x80), (22, 1), (22, 0), (23, 1), (46, 0x40), (46, 0xf0)]
    {
        assert_eq!(with(at, value), Some(Reason::NotPlain), "byte {at} = {value:#x}");
    }
    assert_eq!(with(13, 6), Some(Reason::OtherProtocol));
    assert_eq!(with(22, 2), None, "TTL 2 goes on");
    for wrong in [len - 1, len + 1] {
        assert_eq!(plain((good, wrong)).err(), Some(Reason::NotPlain), "lengths differ");
    }
    let (udp, len) = frame(PROTO_UDP, &[0x9c, 0x40, 0, 53, 0, 9, 0, 0]);
    assert_eq!(plain((udp, len)).err(), Some(Reason::NotPlain), "UDP length");
}

#[test]
fn a_rewritten_header_has_a_right_checksum() {
    let (bytes, len) = frame(PROTO_TCP, &tcp(0x10));
    let frame = read(bytes);
    let from = frame.plain(len, 7).expect("plain").end;
    let to = crate::end::tests::end([10, 96, 0, 1], 1, [172, 16, 254, 253], 2, 8);
    for (step, tos) in [(0, 0xb9), (1, 0xb9), (1, 0xbb)] {
        let ip = frame.rewritten(&from, &to, step, tos);
        assert_eq!((ip.ttl, ip.tos, ip.source, ip.destination), (64 - step, tos, to.source, to.destination));
        let words = [
            u32::from_ne_bytes([ip.version_ihl, ip.tos, ip.length[0], ip.length[1]]),
            ip.ident,
            u32::from_ne_bytes([ip.ttl, ip.protocol, ip.checksum.to_ne_bytes()[0], ip.checksum.to_ne_bytes()[1]]),
            ip.source[0],
            ip.destination[0],
        ];
        let sum: u64 = words.into_iter().map(u64::from).sum();
        let folded = (sum & 0xffff_ffff) % 0xffff + (sum >> 32) * (0x1_0000_0000 % 0xffff);
        assert_eq!(folded % 0xffff, 0, "the header sums to zero in one's complement");
    }
}
