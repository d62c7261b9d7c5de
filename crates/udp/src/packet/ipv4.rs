//! The IPv4 header.

use std::net::Ipv4Addr;

use flannel_common::packet::checksum::updated;

use super::checksum;

/// Bytes of a header without options.
pub(crate) const MIN_HEADER: usize = 20;
/// Offset of the total length.
pub(crate) const TOTAL_LENGTH: usize = 2;
/// Offset of the identification.
pub(crate) const ID: usize = 4;
/// Offset of flags and fragment offset.
pub(crate) const FRAGMENT: usize = 6;
/// Offset of the time to live.
pub(crate) const TTL: usize = 8;
/// Offset of the protocol.
pub(crate) const PROTOCOL: usize = 9;
/// Offset of the header's checksum.
pub(crate) const CHECKSUM: usize = 10;
/// Offset of the source address; the destination follows.
pub(crate) const SOURCE: usize = 12;
/// Protocol numbers.
pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

const MORE_FRAGMENTS: u16 = 0x2000;
pub(crate) const DONT_FRAGMENT: u16 = 0x4000;
const OFFSET: u16 = 0x1fff;

/// A header that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Its bytes.
    pub(crate) length: usize,
    /// The bytes of the packet.
    pub(crate) total: usize,
    /// Flags and fragment offset.
    pub(crate) fragment: u16,
    /// Time to live.
    pub(crate) ttl: u8,
    /// Protocol number.
    pub(crate) protocol: u8,
    /// Source address.
    pub(crate) source: Ipv4Addr,
    /// Destination address.
    pub(crate) destination: Ipv4Addr,
}

impl Header {
    /// Reads the header of a packet; `None` if it is not an IPv4 packet, is cut short or damaged.
    /// Bytes after the packet are allowed.
    pub(crate) fn of(packet: &[u8]) -> Option<Self> {
        let (first, _) = packet.split_first_chunk::<MIN_HEADER>()?;
        let (version, length) = (first[0] >> 4, usize::from(first[0] & 0x0f) * 4);
        let total = usize::from(word(first, TOTAL_LENGTH));
        if version != 4 || length < MIN_HEADER || total < length || packet.len() < total {
            return None;
        }
        checksum::is_correct(checksum::sum(&packet[..length])).then(|| Self {
            length,
            total,
            fragment: word(first, FRAGMENT),
            ttl: first[TTL],
            protocol: first[PROTOCOL],
            source: address(first, SOURCE),
            destination: address(first, SOURCE + 4),
        })
    }

    /// Returns true for a part of a packet.
    pub(crate) const fn is_fragment(&self) -> bool {
        self.fragment & (MORE_FRAGMENTS | OFFSET) != 0
    }

    /// Returns true for a part that does not begin with the header behind IPv4's.
    pub(crate) const fn is_later_fragment(&self) -> bool {
        self.fragment & OFFSET != 0
    }
}

/// Lowers the time to live of a checked packet, which has to be more than zero, by one.
pub(crate) fn decrement_ttl(packet: &mut [u8]) {
    let before = native_word(packet, TTL);
    packet[TTL] -= 1;
    let after = native_word(packet, TTL);
    let sum = updated(
        native_word(packet, CHECKSUM),
        u64::from(!before),
        u64::from(after),
    );
    packet[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_ne_bytes());
}

/// Writes the checksum of a header.
pub(crate) fn complete(header: &mut [u8]) {
    header[CHECKSUM..CHECKSUM + 2].fill(0);
    let sum = checksum::field(checksum::sum(header));
    header[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum);
}

/// Writes a word in network byte order.
pub(crate) fn set_word(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Reads a word in network byte order.
pub(crate) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn native_word(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn address(bytes: &[u8], at: usize) -> Ipv4Addr {
    Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3])
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    use super::*;

    fn packet(ttl: u8) -> Vec<u8> {
        let builder = PacketBuilder::ipv4([10, 5, 1, 2], [10, 5, 2, 3], ttl).udp(1, 2);
        let mut bytes = Vec::new();
        builder.write(&mut bytes, &[1, 2, 3]).expect("a packet");
        bytes
    }

    #[test]
    fn a_packet_is_read() {
        let bytes = packet(7);
        let header = Header::of(&bytes).expect("a header");
        assert_eq!(
            (header.length, header.total, header.ttl, header.protocol),
            (20, 31, 7, UDP)
        );
        assert_eq!(header.source, Ipv4Addr::new(10, 5, 1, 2));
        assert_eq!(header.destination, Ipv4Addr::new(10, 5, 2, 3));
        assert!(!header.is_fragment() && !header.is_later_fragment());
        let longer = [&bytes[..], &[0; 9]].concat();
        assert_eq!(Header::of(&longer), Some(header), "bytes after the packet");
    }

    #[test]
    fn what_is_no_ipv4_packet_is_refused() {
        let whole = packet(7);
        assert_eq!(Header::of(&[]), None);
        assert_eq!(Header::of(&whole[..19]), None);
        assert_eq!(Header::of(&whole[..30]), None, "cut short");
        for (at, value) in [(0, 0x65), (0, 0x44), (3, 19), (8, 8), (16, 11)] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            assert_eq!(Header::of(&bytes), None, "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn the_checksum_follows_the_time_to_live(ttl in 1..=255_u8, id: u16) {
            let mut bytes = packet(ttl);
            set_word(&mut bytes, ID, id);
            complete(&mut bytes[..20]);
            decrement_ttl(&mut bytes);
            let header = Header::of(&bytes);
            prop_assert_eq!(header.map(|header| header.ttl), Some(ttl - 1));
            let sum = word(&bytes, CHECKSUM);
            complete(&mut bytes[..20]);
            prop_assert!(sum == word(&bytes, CHECKSUM));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let _ = Header::of(&bytes);
        }
    }
}
