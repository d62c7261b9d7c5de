//! Merges consecutive TCP segments of a flow to one packet for the device, as the kernel's GRO
//! does (`tcp_gro_receive()` in [net/ipv4/tcp_offload.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/tcp_offload.c)): the kernel then
//! routes, filters and queues one packet in place of many.
//!
//! Segments are merged only if the kernel would cut the merged packet into the very same ones, but
//! for their identification, which has no meaning in a packet that may not be fragmented ([RFC
//! 6864, section 4.1](https://www.rfc-editor.org/rfc/rfc6864#section-4.1)). A segment with a wrong
//! checksum is passed as it is: the receiver drops it.

use super::{
    checksum,
    ipv4::{self, DONT_FRAGMENT, FRAGMENT, Header, MIN_HEADER, TCP, TOTAL_LENGTH, set_word},
    vnet::{self, VnetHeader},
};
use flannel_common::packet::checksum::fold;

const SEQUENCE: usize = MIN_HEADER + 4;
const ACKNOWLEDGMENT: usize = MIN_HEADER + 8;
const DATA_OFFSET: usize = MIN_HEADER + 12;
const FLAGS: usize = MIN_HEADER + 13;
const WINDOW: usize = MIN_HEADER + 14;
const TCP_CHECKSUM: usize = MIN_HEADER + 16;
const URGENT: usize = MIN_HEADER + 18;
const MIN_HEADERS: usize = MIN_HEADER + 20;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
/// The largest packet.
const MAX: usize = 65_535;

/// Receives each packet for the device, with the header before it.
pub(crate) trait Sink {
    /// Takes one.
    fn accept(&mut self, packet: &[u8]);
}

/// Merges packets in their order.
#[derive(Debug)]
pub(crate) struct Merger {
    /// Header of the device and packet.
    buffer: Vec<u8>,
    run: Option<Run>,
}

/// The segments in the buffer.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Bytes of the headers of IPv4 and TCP.
    headers: usize,
    /// Bytes of payload of each but the last.
    payload: usize,
    /// The sequence number that continues it.
    next: u32,
    segments: usize,
}

/// A segment that may be merged.
struct Segment<'a> {
    packet: &'a [u8],
    headers: usize,
    sequence: u32,
}

impl Merger {
    /// Without a packet.
    pub(crate) fn new() -> Self {
        Self {
            buffer: Vec::with_capacity(vnet::LENGTH + MAX),
            run: None,
        }
    }

    /// Takes a checked packet, without bytes after it.
    pub(crate) fn push(&mut self, packet: &[u8], header: &Header, sink: &mut impl Sink) {
        let segment = Segment::of(packet, header);
        if let (Some(run), Some(segment)) = (&mut self.run, &segment)
            && run.continues(&self.buffer[vnet::LENGTH..], segment)
        {
            let is_last = run.append(&mut self.buffer, segment);
            if is_last {
                self.flush(sink);
            }
            return;
        }
        self.flush(sink);
        self.buffer
            .extend_from_slice(&VnetHeader::default().to_bytes());
        self.buffer.extend_from_slice(packet);
        match segment.filter(|segment| !segment.is_pushed()) {
            Some(segment) => self.run = Some(Run::of(&segment)),
            None => self.flush(sink),
        }
    }

    /// Passes on what waits for more.
    pub(crate) fn flush(&mut self, sink: &mut impl Sink) {
        if let Some(run) = self.run.take() {
            run.finish(&mut self.buffer);
        }
        if !self.buffer.is_empty() {
            sink.accept(&self.buffer);
            self.buffer.clear();
        }
    }
}

impl<'a> Segment<'a> {
    /// `None` for what is not merged.
    fn of(packet: &'a [u8], header: &Header) -> Option<Self> {
        let is_plain = header.length == MIN_HEADER
            && header.protocol == TCP
            && header.fragment == DONT_FRAGMENT;
        if !is_plain || packet.len() <= MIN_HEADERS {
            return None;
        }
        let headers = MIN_HEADER + usize::from(packet[DATA_OFFSET] >> 4) * 4;
        let is_data = packet[FLAGS] & !PSH == ACK && packet[DATA_OFFSET].trailing_zeros() >= 4;
        if !is_data
            || headers < MIN_HEADERS
            || packet.len() <= headers
            || packet[URGENT..URGENT + 2] != [0, 0]
        {
            return None;
        }
        let sequence = u32::from_be_bytes(*packet[SEQUENCE..].first_chunk()?);
        let length = u16::try_from(packet.len() - MIN_HEADER).ok()?;
        let pseudo = checksum::pseudo_header(header.source, header.destination, TCP, length);
        let is_undamaged = checksum::is_correct(pseudo + checksum::sum(&packet[MIN_HEADER..]));
        is_undamaged.then_some(Self {
            packet,
            headers,
            sequence,
        })
    }

    fn payload(&self) -> &[u8] {
        &self.packet[self.headers..]
    }

    const fn is_pushed(&self) -> bool {
        self.packet[FLAGS] & PSH != 0
    }
}

impl Run {
    fn of(segment: &Segment<'_>) -> Self {
        let payload = segment.payload().len();
        Self {
            headers: segment.headers,
            payload,
            next: after(segment),
            segments: 1,
        }
    }

    /// Returns true if the segment is the next one of the same flow, and a segmentation would
    /// restore all its differences from the first.
    fn continues(&self, first: &[u8], segment: &Segment<'_>) -> bool {
        let same = |from, to| first[from..to] == segment.packet[from..to];
        segment.sequence == self.next
            && segment.headers == self.headers
            && segment.payload().len() <= self.payload
            && first.len() + segment.payload().len() <= MAX
            && same(0, TOTAL_LENGTH)
            && same(FRAGMENT, ipv4::CHECKSUM)
            && same(ipv4::SOURCE, SEQUENCE)
            && same(ACKNOWLEDGMENT, FLAGS)
            && same(WINDOW, TCP_CHECKSUM)
            && same(MIN_HEADERS, self.headers)
    }

    /// Appends a segment. Returns true if it has to be the last.
    fn append(&mut self, buffer: &mut Vec<u8>, segment: &Segment<'_>) -> bool {
        buffer.extend_from_slice(segment.payload());
        buffer[vnet::LENGTH + FLAGS] |= segment.packet[FLAGS];
        self.segments += 1;
        self.next = after(segment);
        segment.is_pushed() || segment.payload().len() < self.payload
    }

    /// Writes the headers of the merged packet. A single segment is as it was.
    fn finish(&self, buffer: &mut [u8]) {
        let payload = u16::try_from(self.payload).unwrap_or(u16::MAX);
        if self.segments == 1 {
            return;
        }
        let (before, packet) = buffer.split_at_mut(vnet::LENGTH);
        before.copy_from_slice(&VnetHeader::tcp(MIN_HEADER, self.headers, payload).to_bytes());
        let total = u16::try_from(packet.len()).unwrap_or(u16::MAX);
        set_word(packet, TOTAL_LENGTH, total);
        ipv4::complete(&mut packet[..MIN_HEADER]);
        let address = |at: usize| {
            <[u8; 4]>::try_from(&packet[at..at + 4])
                .unwrap_or_default()
                .into()
        };
        let (source, destination) = (address(ipv4::SOURCE), address(ipv4::SOURCE + 4));
        let length = total - u16::try_from(MIN_HEADER).unwrap_or(0);
        let pseudo = fold(checksum::pseudo_header(source, destination, TCP, length));
        packet[TCP_CHECKSUM..TCP_CHECKSUM + 2].copy_from_slice(&pseudo.to_ne_bytes());
    }
}

fn after(segment: &Segment<'_>) -> u32 {
    segment
        .sequence
        .wrapping_add(u32::try_from(segment.payload().len()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use etherparse::{Ipv4Header, PacketBuilder};

    use super::*;
    use crate::packet::split::split;

    #[derive(Default)]
    struct Taken(Vec<Vec<u8>>);

    impl Sink for Taken {
        fn accept(&mut self, packet: &[u8]) {
            self.0.push(packet.to_vec());
        }
    }

    #[derive(Clone, Copy)]
    struct Spec {
        port: u16,
        sequence: u32,
        length: usize,
        push: bool,
        ack: u32,
    }

    const FIRST: Spec = Spec {
        port: 9,
        sequence: 100,
        length: 50,
        push: false,
        ack: 7,
    };

    fn packet(spec: Spec, id: u16) -> Vec<u8> {
        let mut ip = Ipv4Header::new(
            0,
            64,
            etherparse::IpNumber::TCP,
            [10, 5, 1, 2],
            [10, 5, 2, 3],
        )
        .expect("a header");
        ip.identification = id;
        ip.dont_fragment = true;
        let builder = PacketBuilder::ip(etherparse::IpHeaders::Ipv4(
            ip,
            etherparse::Ipv4Extensions::default(),
        ));
        let tcp = builder.tcp(spec.port, 80, spec.sequence, 512).ack(spec.ack);
        let tcp = if spec.push { tcp.psh() } else { tcp };
        let payload: Vec<u8> = (0..spec.length)
            .map(|at| u8::try_from(at % 250).expect("a byte"))
            .collect();
        let mut bytes = Vec::new();
        tcp.write(&mut bytes, &payload).expect("a packet");
        bytes
    }

    /// The packets for the device, cut again as the kernel would.
    fn merged(packets: &[Vec<u8>]) -> (usize, Vec<Vec<u8>>) {
        let (mut merger, mut taken) = (Merger::new(), Taken::default());
        for packet in packets {
            merger.push(packet, &Header::of(packet).expect("a header"), &mut taken);
        }
        merger.flush(&mut taken);
        let mut cut = Vec::new();
        for whole in &taken.0 {
            let (before, packet) = whole.split_first_chunk().expect("a header");
            let mut packet = packet.to_vec();
            let header = Header::of(&packet).expect("a header");
            let mut out = Vec::new();
            let segments = split(
                &mut packet,
                &header,
                VnetHeader::parse(before).offload(),
                &mut out,
            )
            .expect("packets");
            cut.extend(out.chunks(segments.size).map(<[u8]>::to_vec));
        }
        (taken.0.len(), cut)
    }

    fn assert_merged(specs: &[Spec], expected: usize) {
        let packets: Vec<_> = specs
            .iter()
            .zip(5..)
            .map(|(spec, id)| packet(*spec, id))
            .collect();
        let (count, cut) = merged(&packets);
        assert_eq!(count, expected, "packets for the device");
        assert!(cut == packets, "the packets are other ones");
    }

    fn at(index: u32) -> Spec {
        Spec {
            sequence: 100 + 50 * index,
            ..FIRST
        }
    }

    #[test]
    fn consecutive_segments_are_one_packet_and_the_kernel_cuts_it_into_the_same() {
        assert_merged(&[at(0)], 1);
        assert_merged(&[at(0), at(1), at(2)], 1);
        assert_merged(
            &[
                at(0),
                at(1),
                Spec {
                    length: 10,
                    ..at(2)
                },
                at(3),
            ],
            2,
        );
        assert_merged(
            &[
                at(0),
                Spec {
                    push: true,
                    ..at(1)
                },
                at(2),
            ],
            2,
        );
        let many: Vec<_> = (0..30)
            .map(|index| Spec {
                sequence: (u32::MAX - 9_000).wrapping_add(8_000 * index),
                length: 8_000,
                ..FIRST
            })
            .collect();
        assert_merged(&many, 4);
    }

    #[test]
    fn what_differs_is_not_merged() {
        assert_merged(&[at(0), at(2)], 2);
        assert_merged(&[at(0), at(0)], 2);
        assert_merged(&[at(0), Spec { port: 8, ..at(1) }], 2);
        assert_merged(&[at(0), Spec { ack: 8, ..at(1) }], 2);
        assert_merged(
            &[
                at(0),
                Spec {
                    length: 51,
                    ..at(1)
                },
            ],
            2,
        );
        assert_merged(
            &[
                Spec {
                    push: true,
                    ..at(0)
                },
                at(1),
            ],
            2,
        );
        assert_merged(&[Spec { length: 0, ..at(0) }, at(0)], 2);
        assert_merged(
            &[
                at(0),
                Spec { port: 8, ..at(0) },
                at(1),
                Spec { port: 8, ..at(1) },
            ],
            4,
        );
    }

    #[test]
    fn a_segment_with_a_wrong_checksum_is_passed_as_it_is() {
        let mut packets: Vec<_> = (0..3).map(|index| packet(at(index), 5)).collect();
        packets[1][60] ^= 1;
        let (count, cut) = merged(&packets);
        assert_eq!(count, 3);
        assert!(cut == packets);
    }

    #[test]
    fn packets_with_another_treatment_are_not_merged() {
        let plain = |index| packet(at(index), 5);
        let changed = |change: fn(&mut Vec<u8>)| {
            let mut bytes = plain(1);
            change(&mut bytes);
            ipv4::complete(&mut bytes[..MIN_HEADER]);
            bytes
        };
        for other in [
            changed(|bytes| bytes[1] = 1),
            changed(|bytes| bytes[ipv4::TTL] = 63),
            changed(|bytes| bytes[FRAGMENT] = 0),
            changed(|bytes| bytes[FRAGMENT] = 0x20),
        ] {
            let (count, cut) = merged(&[plain(0), other.clone()]);
            assert_eq!(count, 2);
            assert!(cut == [plain(0), other]);
        }
    }
}
