//! Checksums after [RFC 1071](https://www.rfc-editor.org/rfc/rfc1071), and how they follow a change
//! after [RFC 1624](https://www.rfc-editor.org/rfc/rfc1624).

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u64::from))
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded")
}

/// The checksum over bytes in which its own field is zero.
pub(super) fn checksum(bytes: &[u8]) -> u16 {
    !folded(words(bytes).sum())
}

/// A checksum after some of the bytes it covers changed.
pub(super) fn followed(field: u16, before: &[u8], after: &[u8]) -> u16 {
    let gone: u64 = words(before).map(|word| word ^ 0xffff).sum();
    !folded(u64::from(!field) + gone + words(after).sum::<u64>())
}

/// Returns true if two checksums are equivalent: zero has two forms, 0 and 0xffff.
pub(super) const fn same(a: u16, b: u16) -> bool {
    a == b || (a == 0 && b == 0xffff) || (a == 0xffff && b == 0)
}
