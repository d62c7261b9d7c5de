//! Sums of bytes for the checksums of IPv4, TCP, UDP and ICMP ([RFC
//! 1071](https://www.rfc-editor.org/rfc/rfc1071)). Words are those of the machine: a sum is folded
//! and stored in the same byte order.

use std::net::Ipv4Addr;

use flannel_common::packet::checksum::fold;

/// Returns the sum of the words of `bytes`; an odd last byte is padded with zero.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let words: u64 = words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)))
        .sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    words + u64::from(u32::from_ne_bytes(last))
}

/// Returns the sum of the pseudo-header of TCP or UDP; `length` is that of header and payload.
pub(crate) fn pseudo_header(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
    length: u16,
) -> u64 {
    let [high, low] = length.to_be_bytes();
    sum(&source.octets()) + sum(&destination.octets()) + sum(&[0, protocol, high, low])
}

/// Returns the checksum field of what has this sum, with the field itself taken as zero.
pub(crate) const fn field(sum: u64) -> [u8; 2] {
    (!fold(sum)).to_ne_bytes()
}

/// Returns true if a sum over data and its checksum field is that of undamaged data.
pub(crate) const fn is_correct(sum: u64) -> bool {
    fold(sum) == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_has_its_sum() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(sum(&bytes)).to_ne_bytes(), [0xdd, 0xf2]);
        assert_eq!(field(sum(&bytes)), [0x22, 0x0d]);
        let whole = [&bytes[..], &[0x22, 0x0d]].concat();
        assert!(is_correct(sum(&whole)));
        assert!(!is_correct(sum(&whole) + 1));
    }

    #[test]
    fn an_odd_byte_is_padded() {
        for length in 0..9 {
            let bytes: Vec<u8> = (1..=length).collect();
            let padded: Vec<u8> = bytes.iter().copied().chain([0; 4]).collect();
            assert_eq!(fold(sum(&bytes)), fold(sum(&padded)), "{length} bytes");
        }
    }
}
