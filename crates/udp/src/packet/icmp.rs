//! ICMP errors to the senders of packets that cannot be forwarded ([RFC 1122, section
//! 3.2.2](https://www.rfc-editor.org/rfc/rfc1122#section-3.2.2); [RFC 1812, section
//! 4.3.2](https://www.rfc-editor.org/rfc/rfc1812#section-4.3.2)).

use std::net::Ipv4Addr;

use super::{
    checksum,
    ipv4::{self, Header, ICMP, MIN_HEADER, PROTOCOL, SOURCE, TOTAL_LENGTH, TTL, set_word},
};

/// Bytes of an error with all its headers, at most.
const MAX: usize = 576;
const ICMP_HEADER: usize = 8;
/// Precedence "internetwork control", as the kernel sends errors (`__icmp_send()` in
/// [net/ipv4/icmp.c, Linux 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/icmp.c)).
const TOS: u8 = 0xc0;
const HOPS: u8 = 64;
/// Types of errors: unreachable, source quench, redirect, time exceeded, parameter problem.
const ERRORS: [u8; 5] = [3, 4, 5, 11, 12];

/// The cause of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// No peer has the destination.
    NetUnreachable,
    /// The time to live ended here.
    TimeExceeded,
}

impl Cause {
    const fn number(self) -> u8 {
        match self {
            Self::NetUnreachable => 3,
            Self::TimeExceeded => 11,
        }
    }
}

/// Returns the error to the sender of a checked packet, from `source`; `None` where there has to be
/// none.
pub(crate) fn error(
    cause: Cause,
    source: Ipv4Addr,
    packet: &[u8],
    header: &Header,
) -> Option<Vec<u8>> {
    if !may_be_answered(packet, header) {
        return None;
    }
    let quoted = &packet[..header.total.min(MAX - MIN_HEADER - ICMP_HEADER)];
    let mut bytes = vec![0; MIN_HEADER + ICMP_HEADER];
    bytes.extend_from_slice(quoted);
    (bytes[0], bytes[1], bytes[TTL], bytes[PROTOCOL]) = (0x45, TOS, HOPS, ICMP);
    let total = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    set_word(&mut bytes, TOTAL_LENGTH, total);
    bytes[SOURCE..SOURCE + 4].copy_from_slice(&source.octets());
    bytes[SOURCE + 4..SOURCE + 8].copy_from_slice(&header.source.octets());
    let (ip, message) = bytes.split_at_mut(MIN_HEADER);
    ipv4::complete(ip);
    message[0] = cause.number();
    let sum = checksum::field(checksum::sum(message));
    message[2..4].copy_from_slice(&sum);
    Some(bytes)
}

/// Errors answer first fragments, no errors, and single hosts only.
fn may_be_answered(packet: &[u8], header: &Header) -> bool {
    let Header {
        source,
        destination,
        ..
    } = header;
    let is_host = !source.is_multicast()
        && !source.is_broadcast()
        && !source.is_unspecified()
        && !source.is_loopback();
    let is_to_host = !destination.is_multicast() && !destination.is_broadcast();
    let is_error = header.protocol == ICMP
        && packet
            .get(header.length)
            .is_none_or(|kind| ERRORS.contains(kind));
    is_host && is_to_host && !is_error && !header.is_later_fragment()
}

#[cfg(test)]
mod tests {
    use etherparse::{Icmpv4Slice, Icmpv4Type, Ipv4HeaderSlice, PacketBuilder, icmpv4};

    use super::*;

    const FROM: Ipv4Addr = Ipv4Addr::new(10, 5, 0, 0);

    fn udp(source: [u8; 4], destination: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        PacketBuilder::ipv4(source, destination, 1)
            .udp(1, 2)
            .write(&mut bytes, payload)
            .expect("a packet");
        bytes
    }

    fn answer(packet: &[u8], cause: Cause) -> Option<Vec<u8>> {
        error(cause, FROM, packet, &Header::of(packet).expect("a header"))
    }

    #[test]
    fn an_error_quotes_the_packet_and_has_both_checksums() {
        let packet = udp([10, 5, 1, 2], [10, 5, 9, 3], &[7; 1400]);
        for (cause, expected) in [
            (
                Cause::NetUnreachable,
                Icmpv4Type::DestinationUnreachable(icmpv4::DestUnreachableHeader::Network),
            ),
            (
                Cause::TimeExceeded,
                Icmpv4Type::TimeExceeded(icmpv4::TimeExceededCode::TtlExceededInTransit),
            ),
        ] {
            let bytes = answer(&packet, cause).expect("an error");
            assert_eq!(bytes.len(), 576);
            let ip = Ipv4HeaderSlice::from_slice(&bytes).expect("IPv4");
            assert_eq!(
                (ip.source_addr(), ip.destination_addr()),
                (FROM, Ipv4Addr::new(10, 5, 1, 2))
            );
            assert_eq!(ip.header_checksum(), ip.to_header().calc_header_checksum());
            let message = Icmpv4Slice::from_slice(&bytes[20..]).expect("ICMP");
            assert_eq!(message.icmp_type(), expected);
            assert!(checksum::is_correct(checksum::sum(&bytes[20..])));
            assert_eq!(message.payload(), &packet[..548]);
        }
    }

    #[test]
    fn some_packets_get_no_error() {
        let good = udp([10, 5, 1, 2], [10, 5, 9, 3], &[]);
        assert!(answer(&good, Cause::NetUnreachable).is_some());
        for (source, destination) in [
            ([224, 0, 0, 1], [10, 5, 9, 3]),
            ([0; 4], [10, 5, 9, 3]),
            ([127, 0, 0, 1], [10, 5, 9, 3]),
            ([10, 5, 1, 2], [224, 0, 0, 1]),
            ([10, 5, 1, 2], [255; 4]),
        ] {
            assert_eq!(
                answer(&udp(source, destination, &[]), Cause::NetUnreachable),
                None,
                "{source:?}"
            );
        }
        let mut fragment = good.clone();
        fragment[7] = 1;
        ipv4::complete(&mut fragment[..20]);
        assert_eq!(
            answer(&fragment, Cause::NetUnreachable),
            None,
            "a later fragment"
        );
        let icmp = |kind| {
            let mut bytes = Vec::new();
            PacketBuilder::ipv4([10, 5, 1, 2], [10, 5, 9, 3], 1)
                .icmpv4_raw(kind, 0, [0; 4])
                .write(&mut bytes, &[])
                .expect("a packet");
            bytes
        };
        assert!(
            answer(&icmp(8), Cause::NetUnreachable).is_some(),
            "an echo request"
        );
        for kind in ERRORS {
            assert_eq!(
                answer(&icmp(kind), Cause::NetUnreachable),
                None,
                "an error of type {kind}"
            );
        }
    }
}
