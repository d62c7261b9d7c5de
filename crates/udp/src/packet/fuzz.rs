//! Packets of any bytes, from the device and from the wire.

use std::net::Ipv4Addr;

use super::{
    checksum,
    icmp::{self, Cause},
    ipv4::{self, Header, TCP},
    merge::{Merger, Sink},
    split::split,
    vnet::{LENGTH, VnetHeader},
};

/// Bytes behind IPv4's header that a segment of TCP has at least.
const TCP_HEADER: usize = 20;

/// Checks what the device gets.
struct Checked;

impl Sink for Checked {
    fn accept(&mut self, packet: &[u8]) {
        let (head, packet) = packet
            .split_first_chunk::<LENGTH>()
            .expect("the header of the device");
        let header = Header::of(packet).expect("a packet with a correct header");
        assert_eq!(header.total, packet.len());
        VnetHeader::parse(head).offload();
    }
}

/// A segment of TCP with data and a correct header.
fn segment(sequence: u32, data: &[u8]) -> Vec<u8> {
    let total = u16::try_from(ipv4::MIN_HEADER + TCP_HEADER + data.len()).expect("short");
    let mut bytes = vec![
        0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, TCP, 0, 0, 10, 244, 1, 2, 10, 244, 2, 3,
    ];
    ipv4::set_word(&mut bytes, ipv4::TOTAL_LENGTH, total);
    ipv4::complete(&mut bytes);
    bytes.extend([0x9c, 0x40, 0, 80]);
    bytes.extend(sequence.to_be_bytes());
    bytes.extend([0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    bytes.extend(data);
    bytes
}

/// Packets behind each other, each after its length. The header's checksum is made right, or a
/// mutation would end there.
fn packets(mut input: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let [high, low, rest @ ..] = input {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (packet, after) = rest.split_at(length);
        let mut packet = packet.to_vec();
        let header = packet
            .first()
            .map_or(0, |first| usize::from(first & 0x0f) * 4);
        if header >= ipv4::MIN_HEADER && header <= packet.len() {
            ipv4::complete(&mut packet[..header]);
        }
        found.push(packet);
        input = after;
    }
    found
}

/// The first bytes are the header of the device.
#[test]
fn fuzz_udp_packets() {
    let with_length = |packet: &[u8]| {
        let length = u16::try_from(packet.len()).expect("short");
        [&length.to_be_bytes()[..], packet].concat()
    };
    let (first, second) = (segment(1, &[7; 100]), segment(101, &[8; 100]));
    let tcp = VnetHeader::tcp(ipv4::MIN_HEADER, ipv4::MIN_HEADER + TCP_HEADER, 30).to_bytes();
    let seeds = [
        [
            &VnetHeader::default().to_bytes()[..],
            &with_length(&first),
            &with_length(&second),
        ]
        .concat(),
        [&tcp[..], &with_length(&first)].concat(),
        [&[1, 0, 0, 0, 0, 0, 20, 0, 16, 0][..], &with_length(&second)].concat(),
    ];
    flannel_fuzz::run(
        "udp_packets",
        &seeds.each_ref().map(Vec::as_slice),
        |input| {
            let Some((head, rest)) = input.split_first_chunk::<LENGTH>() else {
                return;
            };
            let mut merger = Merger::new();
            for mut packet in packets(rest) {
                let Some(header) = Header::of(&packet) else {
                    continue;
                };
                merger.push(&packet[..header.total], &header, &mut Checked);
                for cause in [Cause::NetUnreachable, Cause::TimeExceeded] {
                    check_error(icmp::error(
                        cause,
                        Ipv4Addr::new(10, 244, 1, 1),
                        &packet,
                        &header,
                    ));
                }
                if header.ttl > 0 {
                    ipv4::decrement_ttl(&mut packet);
                    assert!(
                        Header::of(&packet).is_some_and(|now| now.ttl == header.ttl - 1),
                        "the checksum after TTL"
                    );
                }
                check_segments(&mut packet, &header, *head);
            }
            merger.flush(&mut Checked);
        },
    );
}

fn check_error(error: Option<Vec<u8>>) {
    let Some(error) = error else { return };
    let header = Header::of(&error).expect("a correct header");
    assert_eq!(header.total, error.len());
    assert!(
        checksum::is_correct(checksum::sum(&error[header.length..])),
        "the checksum of the message"
    );
}

fn check_segments(packet: &mut [u8], header: &Header, head: [u8; LENGTH]) {
    let Some(header) = Header::of(packet).or(Some(*header)) else {
        return;
    };
    let mut out = vec![0xee; 3];
    let before = out.len();
    let offload = VnetHeader::parse(&head).offload();
    let Some(segments) = split(packet, &header, offload, &mut out) else {
        assert_eq!(out.len(), before, "what does not fit appends no packet");
        return;
    };
    assert_eq!(out.len(), before + segments.total);
    assert!(
        segments.size <= segments.total.max(1) || segments.total == 0,
        "{segments:?}"
    );
    for segment in out[before..].chunks(segments.size.max(1)) {
        let header = Header::of(segment).expect("a correct header");
        assert_eq!(
            header.total,
            segment.len(),
            "segments are as long as they say"
        );
    }
}
