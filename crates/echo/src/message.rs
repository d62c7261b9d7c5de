//! Echo requests and replies as ICMP has them: [RFC 792](https://www.rfc-editor.org/rfc/rfc792),
//! and [RFC 4443, section 4](https://www.rfc-editor.org/rfc/rfc4443#section-4), for IPv6. Pure.

use flannel_common::packet::checksum::fold;
use flannel_host::family::Family;

/// Bytes of a message: the header, and a nonce as its data.
pub(super) const LENGTH: usize = 16;

/// The type of a reply.
pub(super) const fn reply_type(family: Family) -> u8 {
    match family {
        Family::V4 => 0,
        Family::V6 => 129,
    }
}

const fn request_type(family: Family) -> u8 {
    match family {
        Family::V4 => 8,
        Family::V6 => 128,
    }
}

/// One request. The kernel adds the checksum of ICMPv6, which covers addresses that it chooses.
pub(super) fn request(family: Family, identifier: u16, sequence: u16, nonce: u64) -> [u8; LENGTH] {
    let mut message = [0; LENGTH];
    message[0] = request_type(family);
    message[4..6].copy_from_slice(&identifier.to_be_bytes());
    message[6..8].copy_from_slice(&sequence.to_be_bytes());
    message[8..].copy_from_slice(&nonce.to_be_bytes());
    if family == Family::V4 {
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    message
}

/// The nonce of a reply, from a packet as a raw socket of this family delivers it: of IPv4 with the
/// IP header. Type and identifier are the socket's to check.
pub(super) fn nonce(family: Family, packet: &[u8]) -> Option<u64> {
    let header = match family {
        Family::V4 => usize::from(packet.first()? & 0xf) * 4,
        Family::V6 => 0,
    };
    let data = packet.get(header + LENGTH - size_of::<u64>()..)?;
    data.first_chunk().copied().map(u64::from_be_bytes)
}

/// The Internet checksum ([RFC 1071](https://www.rfc-editor.org/rfc/rfc1071)) of a message of an
/// even number of bytes, whose own field is 0.
fn checksum(message: &[u8; LENGTH]) -> u16 {
    let (words, _) = message.as_chunks();
    !fold(
        words
            .iter()
            .map(|word| u64::from(u16::from_be_bytes(*word)))
            .sum(),
    )
}

#[cfg(test)]
mod tests {
    use etherparse::{IcmpEchoHeader, Icmpv4Slice, Icmpv4Type};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn another_library_reads_the_request(identifier: u16, sequence: u16, nonce: u64) {
            let message = request(Family::V4, identifier, sequence, nonce);
            let slice = Icmpv4Slice::from_slice(&message).expect("a message");
            prop_assert_eq!(
                slice.icmp_type(),
                Icmpv4Type::EchoRequest(IcmpEchoHeader {
                    id: identifier,
                    seq: sequence
                })
            );
            prop_assert_eq!(
                slice.icmp_type().calc_checksum(slice.payload()),
                slice.checksum()
            );
        }

        #[test]
        fn the_nonce_of_a_request_is_that_of_its_reply(nonce: u64, options in 0_usize..=10) {
            let message = request(Family::V6, 7, 1, nonce);
            prop_assert_eq!(super::nonce(Family::V6, &message), Some(nonce));
            let mut packet = vec![0; 20 + 4 * options];
            packet[0] = 0x45 + u8::try_from(options).expect("ten at most");
            packet.extend(request(Family::V4, 7, 1, nonce));
            prop_assert_eq!(super::nonce(Family::V4, &packet), Some(nonce));
        }

        #[test]
        fn short_packets_have_no_nonce(packet in prop::collection::vec(any::<u8>(), 0..LENGTH)) {
            prop_assert_eq!(nonce(Family::V6, &packet), None);
            prop_assert_eq!(nonce(Family::V4, &packet), None);
        }
    }
}
