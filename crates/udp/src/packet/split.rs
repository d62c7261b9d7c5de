//! From a packet of the device to packets of the wire: completes checksums and cuts TCP
//! super-packets into segments.

use super::{
    checksum,
    ipv4::{self, Header, ID, TCP, TOTAL_LENGTH, UDP, set_word, word},
    vnet::Offload,
};

const SEQUENCE: usize = 4;
const DATA_OFFSET: usize = 12;
const FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;
const MIN_TCP: usize = 20;
const UDP_CHECKSUM: usize = 6;
const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// Packets that lie behind each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segments {
    /// Bytes of each but the last, which may be shorter.
    pub(crate) size: usize,
    /// Bytes of all.
    pub(crate) total: usize,
}

/// Appends the packets that `packet`, with this header and this offloaded work, becomes on the
/// wire. If header and offload do not match, returns `None` and appends no packet.
pub(crate) fn split(
    packet: &mut [u8],
    header: &Header,
    offload: Offload,
    out: &mut Vec<u8>,
) -> Option<Segments> {
    let packet = &mut packet[..header.total];
    match offload {
        Offload::None => {}
        Offload::Checksum { start, at } => complete(packet, header, start, at)?,
        Offload::Tcp { payload } => return split_tcp(packet, header, payload, out),
        Offload::Unknown => return None,
    }
    out.extend_from_slice(packet);
    Some(Segments {
        size: packet.len(),
        total: packet.len(),
    })
}

/// Completes a checksum. The field has the sum of the pseudo-header.
fn complete(packet: &mut [u8], header: &Header, start: usize, at: usize) -> Option<()> {
    if start < header.length || at + 2 > packet.len() || at < start {
        return None;
    }
    let mut sum = checksum::field(checksum::sum(&packet[start..]));
    if header.protocol == UDP && at == start + UDP_CHECKSUM && sum == [0, 0] {
        // Zero stands for no checksum (RFC 768: <https://www.rfc-editor.org/rfc/rfc768>).
        sum = [0xff, 0xff];
    }
    packet[at..at + 2].copy_from_slice(&sum);
    Some(())
}

fn split_tcp(
    packet: &[u8],
    header: &Header,
    payload: usize,
    out: &mut Vec<u8>,
) -> Option<Segments> {
    let ip = header.length;
    if header.protocol != TCP || header.is_fragment() || packet.len() < ip + MIN_TCP {
        return None;
    }
    let tcp = usize::from(packet[ip + DATA_OFFSET] >> 4) * 4;
    let size = ip + tcp + payload;
    if tcp < MIN_TCP || packet.len() < ip + tcp || size > usize::from(u16::MAX) {
        return None;
    }
    let (headers, data) = packet.split_at(ip + tcp);
    let start = out.len();
    let count = data.len().div_ceil(payload).max(1);
    let sequence = u32::from_be_bytes(*headers[ip + SEQUENCE..].first_chunk()?);
    let (mut id, mut at) = (word(headers, ID), sequence);
    for index in 0..count {
        let part = &data[index * payload..data.len().min((index + 1) * payload)];
        let segment = out.len();
        out.extend_from_slice(headers);
        out.extend_from_slice(part);
        let segment = &mut out[segment..];
        segment[ip + SEQUENCE..ip + SEQUENCE + 4].copy_from_slice(&at.to_be_bytes());
        if index + 1 < count {
            segment[ip + FLAGS] &= !FIN_PSH;
        }
        if index > 0 {
            segment[ip + FLAGS] &= !CWR;
        }
        finish(segment, header, id);
        id = id.wrapping_add(1);
        at = at.wrapping_add(u32::try_from(part.len()).ok()?);
    }
    Some(Segments {
        size: size.min(packet.len()),
        total: out.len() - start,
    })
}

/// Writes length, identification and both checksums of a segment.
fn finish(segment: &mut [u8], header: &Header, id: u16) {
    let total = u16::try_from(segment.len()).unwrap_or(u16::MAX);
    set_word(segment, TOTAL_LENGTH, total);
    set_word(segment, ID, id);
    let (ip, tcp) = segment.split_at_mut(header.length);
    ipv4::complete(ip);
    tcp[TCP_CHECKSUM..TCP_CHECKSUM + 2].fill(0);
    let length = u16::try_from(tcp.len()).unwrap_or(u16::MAX);
    let pseudo = checksum::pseudo_header(header.source, header.destination, TCP, length);
    let sum = checksum::field(pseudo + checksum::sum(tcp));
    tcp[TCP_CHECKSUM..TCP_CHECKSUM + 2].copy_from_slice(&sum);
}

#[cfg(test)]
mod tests {
    use etherparse::{Ipv4HeaderSlice, PacketBuilder, TcpHeaderSlice};
    use flannel_common::packet::checksum::fold;
    use proptest::prelude::*;

    use super::*;

    const ADDRESSES: ([u8; 4], [u8; 4]) = ([10, 5, 1, 2], [10, 5, 2, 3]);

    fn tcp(payload: &[u8], sequence: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let builder = PacketBuilder::ipv4(ADDRESSES.0, ADDRESSES.1, 64)
            .tcp(1, 2, sequence, 512)
            .ack(7)
            .psh()
            .fin();
        let options = [etherparse::TcpOptionElement::Timestamp(1, 2)];
        builder
            .options(&options)
            .expect("options")
            .write(&mut bytes, payload)
            .expect("a packet");
        bytes
    }

    fn cut(packet: &mut [u8], offload: Offload) -> Option<(Segments, Vec<u8>)> {
        let header = Header::of(packet)?;
        let mut out = vec![0xee; 3];
        let segments = split(packet, &header, offload, &mut out)?;
        assert_eq!(out[..3], [0xee; 3], "what was there before stays");
        Some((segments, out.split_off(3)))
    }

    proptest! {
        #[test]
        fn segments_are_whole_packets_whose_payload_is_that_of_the_super_packet(
            length in 0..20_000_usize, size in 1..9000_usize, sequence: u32,
        ) {
            let payload: Vec<u8> = (0..length)
                .map(|at| u8::try_from(at % 251).expect("a byte"))
                .collect();
            let mut packet = tcp(&payload, sequence);
            let (segments, out) =
                cut(&mut packet, Offload::Tcp { payload: size }).expect("segments");
            prop_assert_eq!(segments.total, out.len());
            let (mut data, mut next, mut id) = (Vec::new(), sequence, None);
            let count = out.chunks(segments.size).count();
            for (at, segment) in out.chunks(segments.size).enumerate() {
                let ip = Ipv4HeaderSlice::from_slice(segment).expect("IPv4");
                prop_assert_eq!(usize::from(ip.total_len()), segment.len());
                prop_assert_eq!(ip.header_checksum(), ip.to_header().calc_header_checksum());
                prop_assert!(id.is_none_or(|id: u16| id.wrapping_add(1) == ip.identification()));
                id = Some(ip.identification());
                let header = TcpHeaderSlice::from_slice(&segment[20..]).expect("TCP");
                let part = &segment[20 + header.slice().len()..];
                prop_assert_eq!(header.calc_checksum_ipv4(&ip, part), Ok(header.checksum()));
                prop_assert_eq!(header.sequence_number(), next);
                let is_last = at + 1 == count;
                prop_assert_eq!(
                    (header.psh(), header.fin(), header.ack()),
                    (is_last, is_last, true)
                );
                prop_assert_eq!(header.options().len(), 12);
                next = next.wrapping_add(u32::try_from(part.len()).expect("small"));
                data.extend_from_slice(part);
            }
            prop_assert!(data == payload);
        }

        #[test]
        fn no_bytes_and_no_offload_panic(
            bytes: Vec<u8>,
            start: u16,
            at: u16,
            payload in 1..70_000_usize,
        ) {
            let mut good = tcp(&bytes, 1);
            let (start, at) = (usize::from(start), usize::from(at));
            for offload in [
                Offload::Checksum { start, at },
                Offload::Tcp { payload },
                Offload::Unknown,
            ] {
                let _ = cut(&mut good.clone(), offload);
            }
            good.truncate(30);
            set_word(&mut good, TOTAL_LENGTH, 30);
            ipv4::complete(&mut good[..20]);
            let _ = cut(&mut good, Offload::Tcp { payload });
        }
    }

    #[test]
    fn a_partial_checksum_is_completed() {
        let mut whole = Vec::new();
        let builder = PacketBuilder::ipv4(ADDRESSES.0, ADDRESSES.1, 64).udp(1, 2);
        builder.write(&mut whole, b"odd").expect("a packet");
        let mut packet = whole.clone();
        let pseudo = checksum::pseudo_header(ADDRESSES.0.into(), ADDRESSES.1.into(), UDP, 11);
        packet[26..28].copy_from_slice(&fold(pseudo).to_ne_bytes());
        let (segments, out) =
            cut(&mut packet, Offload::Checksum { start: 20, at: 26 }).expect("a packet");
        assert_eq!(
            (segments, &out),
            (
                Segments {
                    size: 31,
                    total: 31
                },
                &whole
            )
        );
        assert_eq!(
            cut(&mut packet, Offload::Checksum { start: 20, at: 30 }),
            None,
            "behind the packet"
        );
        assert_eq!(
            cut(&mut packet, Offload::Checksum { start: 4, at: 10 }),
            None,
            "in the header of IPv4"
        );
        assert_eq!(
            cut(&mut packet, Offload::Tcp { payload: 100 }),
            None,
            "no TCP"
        );
    }

    #[test]
    fn a_udp_checksum_of_zero_is_written_as_ones() {
        let mut packet = Vec::new();
        PacketBuilder::ipv4([0; 4], [0; 4], 64)
            .udp(0, 0)
            .write(&mut packet, &[0, 0])
            .expect("a packet");
        // The payload that makes the sum all ones: protocol and twice the length.
        let fill = !(u16::from(UDP) + 10 + 10);
        packet[28..30].copy_from_slice(&fill.to_be_bytes());
        packet[26..28].copy_from_slice(&(u16::from(UDP) + 10).to_be_bytes());
        let (_, out) = cut(&mut packet, Offload::Checksum { start: 20, at: 26 }).expect("a packet");
        assert_eq!(out[26..28], [0xff, 0xff]);
    }
}
