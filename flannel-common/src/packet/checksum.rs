//! One's complement arithmetic: how checksums follow when addresses and ports change.
//!
//! Sums are over words as they lie in memory; the byte order of the machine does not matter as long
//! as it is one and the same ([RFC 1071](https://www.rfc-editor.org/rfc/rfc1071)).

#![expect(
    clippy::cast_possible_truncation,
    reason = "sums are folded to sixteen bits"
)]

use crate::flow::flow_key::{Address, FlowKey};

/// Sixteen bits of a sum.
#[inline(always)]
pub const fn fold(mut sum: u64) -> u16 {
    sum = (sum & 0xffff_ffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

/// Zero has two forms.
#[inline(always)]
const fn same_sum(a: u16, b: u16) -> bool {
    a == b || (a == 0 && b == 0xffff) || (a == 0xffff && b == 0)
}

/// Returns the change of a sum when the addresses of one key are replaced by those of another.
#[inline(always)]
fn address_change<A: Address>(from: &FlowKey<A>, to: &FlowKey<A>) -> u64 {
    let minus = |sum: u64, word: &u32| sum + u64::from(!word);
    let plus = |sum: u64, word: &u32| sum + u64::from(*word);
    let sum = from.source.words().iter().fold(0, minus);
    let sum = from.destination.words().iter().fold(sum, minus);
    let sum = to.source.words().iter().fold(sum, plus);
    to.destination.words().iter().fold(sum, plus)
}

#[inline(always)]
fn port_change<A: Address>(from: &FlowKey<A>, to: &FlowKey<A>) -> u64 {
    u64::from(!from.ports) + u64::from(to.ports)
}

/// The change of addresses as the kernel's checksum helper wants it: a sum of 32 bits
/// (`bpf_l4_csum_replace()` in [net/core/filter.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/filter.c)).
#[inline(always)]
pub fn address_difference<A: Address>(from: &FlowKey<A>, to: &FlowKey<A>) -> u32 {
    let sum = address_change(from, to);
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    (sum + (sum >> 32)) as u32
}

/// The change of a sum when two words are replaced by two others, as the kernel's checksum helper
/// wants it: a sum of 32 bits.
#[inline(always)]
pub(crate) fn word_difference(from: [u32; 2], to: [u32; 2]) -> u32 {
    let sum = u64::from(!from[0]) + u64::from(!from[1]) + u64::from(to[0]) + u64::from(to[1]);
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    (sum + (sum >> 32)) as u32
}

/// A checksum field after sixteen-bit words of what it covers changed: `old` words left, `new`
/// words came.
#[inline(always)]
pub const fn updated(field: u16, old: u64, new: u64) -> u16 {
    !fold(!field as u64 + old + new)
}

/// The IPv4 header checksum after the addresses changed, and the word of TTL and protocol.
#[inline(always)]
pub fn ipv4_updated(
    field: u16,
    from: &FlowKey<[u32; 1]>,
    to: &FlowKey<[u32; 1]>,
    ttl_word: [u16; 2],
) -> u16 {
    let [before, after] = ttl_word;
    updated(
        field,
        u64::from(!before),
        address_change(from, to) + u64::from(after),
    )
}

/// The sum over the pseudo header of TCP or UDP, of which `length` bytes follow the IP header ([RFC
/// 9293, section 3.1](https://www.rfc-editor.org/rfc/rfc9293#section-3.1), [RFC 8200, section
/// 8.1](https://www.rfc-editor.org/rfc/rfc8200#section-8.1)).
#[inline(always)]
pub fn pseudo_header<A: Address>(key: &FlowKey<A>, length: u16) -> u64 {
    let plus = |sum: u64, word: &u32| sum + u64::from(*word);
    let sum = key.source.words().iter().fold(0, plus);
    let sum = key.destination.words().iter().fold(sum, plus);
    sum + u64::from(length.to_be()) + u64::from((key.protocol as u16).to_be())
}

/// Returns true for the value that a socket leaves in the checksum field for the device to
/// complete (CHECKSUM_PARTIAL).
#[inline(always)]
pub const fn is_partial(field: u16, pseudo_header: u64) -> bool {
    same_sum(field, fold(pseudo_header))
}

/// Returns true if the checksum is right in a segment or datagram with this sum.
#[inline(always)]
pub const fn is_right(sum: u64, pseudo_header: u64) -> bool {
    fold(sum + pseudo_header) == 0xffff
}

/// Returns true if a TCP or UDP checksum changed by exactly the difference between two tuples. A
/// complete checksum follows addresses and ports; one that the device must still complete holds
/// only the sum of the addresses.
#[inline(always)]
pub fn follows<A: Address>(before: u16, after: u16, from: &FlowKey<A>, to: &FlowKey<A>) -> bool {
    let addresses = address_change(from, to);
    let complete = fold(u64::from(!before) + addresses + port_change(from, to));
    let partial = fold(u64::from(before) + addresses);
    same_sum(!after, complete) || same_sum(after, partial)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Tuple = FlowKey<[u32; 1]>;

    /// The sum of some bytes, in memory order.
    fn sum(bytes: &[u8]) -> u64 {
        bytes
            .chunks(2)
            .map(|pair| u64::from(u16::from_ne_bytes([pair[0], pair[1]])))
            .sum()
    }

    fn bytes(end: &Tuple) -> Vec<u8> {
        [end.source[0], end.destination[0], end.ports]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect()
    }

    fn complete(end: &Tuple, rest: &[u8]) -> u16 {
        !fold(sum(&bytes(end)) + sum(rest))
    }

    /// The value of the field while a device is to complete it.
    fn partial(end: &Tuple, rest: u16) -> u16 {
        fold(sum(&bytes(end)[..8]) + u64::from(rest))
    }

    prop_compose! {
        fn tuple()(source: u32, destination: u32, ports: u32) -> Tuple {
            FlowKey { source: [source], destination: [destination], ports, protocol: 6, device: 1 }
        }
    }

    proptest! {
        #[test]
        fn a_rewritten_packet_has_the_checksum_of_a_new_one(
            from in tuple(), to in tuple(), rest in prop::collection::vec(any::<u8>(), 40),
        ) {
            let (before, after) = (complete(&from, &rest), complete(&to, &rest));
            prop_assert!(follows(before, after, &from, &to));
            let change = u64::from(address_difference(&from, &to)) + port_change(&from, &to);
            prop_assert!(same_sum(updated(before, 0, change), after));
        }

        #[test]
        fn a_partial_checksum_follows_the_addresses(from in tuple(), to in tuple(), rest: u16) {
            prop_assert!(follows(partial(&from, rest), partial(&to, rest), &from, &to));
        }

        #[test]
        fn a_wrong_checksum_is_neither_right_nor_partial(
            tuple in tuple(),
            mut rest in prop::collection::vec(any::<u8>(), 8..64),
            wrong in 1_u16..0xffff,
        ) {
            rest.truncate(rest.len() & !1);
            let length = 4 + 2 + rest.len() as u16;
            let pseudo = pseudo_header(&tuple, length);
            let segment =
                |field: u16| sum(&tuple.ports.to_ne_bytes()) + u64::from(field) + sum(&rest);
            let right = !fold(pseudo + segment(0));
            prop_assert!(is_right(segment(right), pseudo));
            prop_assert!(!is_right(
                segment(fold(u64::from(right) + u64::from(wrong))),
                pseudo
            ));
            let partial = fold(pseudo);
            prop_assert!(is_partial(partial, pseudo));
            prop_assert!(!is_partial(
                fold(u64::from(partial) + u64::from(wrong)),
                pseudo
            ));
        }

        #[test]
        fn another_packets_checksum_does_not_follow(
            from in tuple(),
            to in tuple(),
            rest in prop::collection::vec(any::<u8>(), 40),
            at in 0_usize..20,
            bit in 0..8,
        ) {
            let mut other = rest.clone();
            other[at] ^= 1_u8 << bit;
            let (before, after) = (complete(&from, &rest), complete(&to, &other));
            // By chance it may look like a partial one.
            prop_assume!(!same_sum(
                after,
                fold(u64::from(before) + address_change(&from, &to))
            ));
            prop_assert!(!follows(before, after, &from, &to));
        }

        #[test]
        fn a_header_checksum_follows_addresses_and_ttl(
            from in tuple(),
            to in tuple(),
            ttl in 2_u8..,
            rest in prop::array::uniform8(any::<u8>()),
        ) {
            let header =
                |end: &Tuple, ttl| !fold(sum(&bytes(end)[..8]) + sum(&[ttl, 6]) + sum(&rest));
            let word = |ttl| u16::from_ne_bytes([ttl, 6]);
            let updated = ipv4_updated(header(&from, ttl), &from, &to, [word(ttl), word(ttl - 1)]);
            prop_assert!(same_sum(updated, header(&to, ttl - 1)));
        }
    }
}
