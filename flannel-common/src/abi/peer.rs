//! Peers as the programs see them: the values of `PEERS`, `PEERS6` and `VTEPS`, and how a
//! destination finds its peer.
//!
//! An array element is not replaced atomically. The agent therefore writes an entry three times -
//! an invalid word, the body under the invalid word, the valid word - and a reader takes the body
//! only if the word was valid before and is the same afterwards. [`PathProbe`] is the one part the
//! programs write: what they saw of the kernel's own outer packets to this peer. The agent's
//! rewrite clears it, as it must: what was seen belongs to the old path.

#![expect(
    clippy::cast_possible_truncation,
    reason = "an index is compared with the count before"
)]

use core::mem::{align_of, offset_of, size_of};

use crate::{
    abi::{entry_state::EntryState, node::FamilyConfig},
    packet::addr::{Addr, Mac, halves, same_addr},
};

/// Time for which one packet of the kernel validates the outer path, in nanoseconds.
pub const PATH_PROBE_NS: u64 = 2_000_000_000;

/// The validation of the path to one peer by the kernel's own outer packets. Written by the
/// programs only.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathProbe {
    /// The entry's word at that time; another word means another path.
    pub word: EntryState,
    /// The path is known to be plain until then; `CLOCK_MONOTONIC_COARSE`, nanoseconds.
    pub until_ns: u64,
    /// A packet was fragmented or differed from ours: the path is held down until then.
    pub hold_ns: u64,
    /// Largest outer packet (IPv4 total length or whole IPv6 packet, of one segment) that left
    /// unfragmented since.
    pub max_len: u32,
    /// Of an element of `PATHS` the hash of its key, because elements of an LRU map are recycled at
    /// once; else zero.
    pub check: u32,
}

/// The value of `PEERS` and `PEERS6`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerEntry {
    /// Flags and generation.
    pub word: EntryState,
    /// Outer destination: the peer's public IP.
    pub vtep: Addr,
    /// Next hop towards it: a gateway, or the VTEP itself on our segment. None where there are
    /// ECMP paths.
    pub next_hop: Addr,
    /// Inner destination address: the peer's `VtepMAC`.
    pub mac: Mac,
    /// Slot of its counters in `PEER_TRAFFIC` or `PEER_TRAFFIC6`; [`crate::abi::traffic::SHARED`]
    /// for a peer without one.
    pub traffic: u16,
    /// Interface index by which outer packets leave; 0 where there are ECMP paths.
    pub oif: u32,
    /// Largest outer IPv4 total length (IPv6: whole packet) the route takes, in bytes; of ECMP
    /// paths, the smallest.
    pub mtu: u32,
    /// The validation of the path; with ECMP only the part that concerns all paths.
    pub seen: PathProbe,
}

impl PathProbe {
    /// The empty probe: no packet was seen.
    pub const NOTHING: Self = Self {
        word: EntryState(0),
        until_ns: 0,
        hold_ns: 0,
        max_len: 0,
        check: 0,
    };

    /// Returns true if a packet of the kernel has validated the path within [`PATH_PROBE_NS`],
    /// under this entry state.
    #[inline(always)]
    pub const fn is_validated(&self, word: EntryState, now: u64) -> bool {
        self.word.0 == word.0 && now < self.until_ns
    }

    /// Returns true while the path is held down.
    #[inline(always)]
    pub const fn is_held_down(&self, word: EntryState, now: u64) -> bool {
        self.word.0 == word.0 && now < self.hold_ns
    }

    /// The largest outer packet (of one segment) that may be made at `now`; 0 if none may, because
    /// the kernel's own were not seen to leave plainly within [`PATH_PROBE_NS`], under this word.
    #[inline(always)]
    pub const fn validated_len(&self, word: EntryState, now: u64) -> u32 {
        if self.is_validated(word, now) {
            self.max_len
        } else {
            0
        }
    }
}

impl PeerEntry {
    /// Returns true if an outer packet of `len` bytes per segment may be sent to this peer at
    /// `now`: the kernel's own packets were seen to leave plainly within [`PATH_PROBE_NS`], under
    /// this word, up to that size.
    #[inline(always)]
    pub const fn path_is_validated(&self, now: u64) -> bool {
        self.seen.is_validated(self.word, now)
    }

    /// Returns true for a peer whose routes were not made only for it: by a tunnel device without
    /// Ethernet, or by routes of other programs.
    pub const fn is_routed(&self) -> bool {
        self.word.has(EntryState::DIRECT) && same_addr(self.next_hop, Addr::NONE)
    }

    /// The entry as the agent wrote it, for comparison: without what the programs saw.
    #[must_use]
    pub const fn without_seen(mut self) -> Self {
        self.seen = PathProbe::NOTHING;
        self
    }
}

/// The value of `VTEPS`: which peers stand behind an outer source address.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VtepEntry {
    /// The peer's index in `PEERS` or `PEERS6`, in that of the key's family; [`Self::UNNUMBERED`]
    /// if it has a subnet without one.
    pub index: u32,
    /// Zero.
    pub reserved: u32,
}

impl VtepEntry {
    /// The index of a peer one of whose subnets is of another size than the network's, or that has
    /// just left: what it may send is not in the peer map.
    pub const UNNUMBERED: u32 = u32::MAX;
}

/// The subnet number of an IPv4 destination, or none if it lies outside the network.
#[inline(always)]
pub const fn subnet_index_v4(family: &FamilyConfig, destination: [u8; 4]) -> Option<u32> {
    let offset =
        u32::from_be_bytes(destination).wrapping_sub(u32::from_be_bytes(family.network.v4_bytes()));
    // A shift of 32 would be a network of one subnet, which validation refuses; checked for the
    // verifier's sake.
    let index = if family.subnet_shift < 32 {
        offset >> family.subnet_shift
    } else {
        0
    };
    if index < family.subnet_count {
        Some(index)
    } else {
        None
    }
}

/// The subnet number of an IPv6 destination, or none if it lies outside the network.
///
/// In two halves: a shift of 128 bits by a variable number is a call the BPF target lacks.
/// Exclusive or is subtraction here, because the network's bits below its prefix are zero.
#[inline(always)]
pub const fn subnet_index_v6(family: &FamilyConfig, destination: [u8; 16]) -> Option<u32> {
    let ([high, low], [net_high, net_low]) = (halves(destination), halves(family.network.0));
    let (high, low) = (high ^ net_high, low ^ net_low);
    let shift = family.subnet_shift;
    let (above, index) = match shift {
        0..64 => (high >> shift, (high << 1) << (63 - shift) | low >> shift),
        64..128 => (0, high >> (shift - 64)),
        // A network of one subnet, which validation refuses.
        _ => (high | low, 0),
    };
    if above == 0 && index < family.subnet_count as u64 {
        Some(index as u32)
    } else {
        None
    }
}

const _: () = {
    assert!(size_of::<PathProbe>() == 32 && align_of::<PathProbe>() == 8);
    assert!(size_of::<PeerEntry>() == 88 && align_of::<PeerEntry>() == 8);
    assert!(
        offset_of!(PeerEntry, mac) == 40
            && offset_of!(PeerEntry, traffic) == 46
            && offset_of!(PeerEntry, oif) == 48
    );
    assert!(offset_of!(PeerEntry, seen) == 56);
    assert!(size_of::<VtepEntry>() == 8);
};

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    fn family(network: [u8; 4], network_len: u32, subnet_len: u32) -> FamilyConfig {
        FamilyConfig {
            network: Ipv4Addr::from(network).into(),
            subnet_shift: 32 - subnet_len,
            subnet_count: 1 << (subnet_len - network_len),
            ..FamilyConfig::default()
        }
    }

    #[test]
    fn destinations_find_their_subnet() {
        let net = family([10, 244, 0, 0], 16, 24);
        assert_eq!(subnet_index_v4(&net, [10, 244, 0, 0]), Some(0));
        assert_eq!(subnet_index_v4(&net, [10, 244, 7, 255]), Some(7));
        assert_eq!(subnet_index_v4(&net, [10, 244, 255, 255]), Some(255));
        assert_eq!(subnet_index_v4(&net, [10, 245, 0, 0]), None);
        assert_eq!(subnet_index_v4(&net, [10, 243, 255, 255]), None);
        assert_eq!(subnet_index_v4(&net, [0, 0, 0, 0]), None);
        let odd = family([172, 16, 128, 0], 17, 22);
        assert_eq!(subnet_index_v4(&odd, [172, 16, 255, 1]), Some(31));
        assert_eq!(subnet_index_v4(&odd, [172, 16, 127, 255]), None);
    }

    fn family_v6(network: u128, network_len: u32, subnet_len: u32) -> FamilyConfig {
        FamilyConfig {
            network: Ipv6Addr::from(network).into(),
            subnet_shift: 128 - subnet_len,
            subnet_count: 1 << (subnet_len - network_len),
            ..FamilyConfig::default()
        }
    }

    #[test]
    fn ipv6_destinations_find_their_subnet() {
        let at = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
        let index = |net: &FamilyConfig, text| subnet_index_v6(net, at(text).octets());
        let net = family_v6(at("2001:cafe:42::").to_bits(), 56, 64);
        assert_eq!(index(&net, "2001:cafe:42::"), Some(0));
        assert_eq!(index(&net, "2001:cafe:42:7::9"), Some(7));
        assert_eq!(
            index(&net, "2001:cafe:42:ff:ffff:ffff:ffff:ffff"),
            Some(255)
        );
        for outside in [
            "2001:cafe:42:100::",
            "2001:cafe:41:ff::",
            "::",
            "ff02::1",
            "a001:cafe:42::",
        ] {
            assert_eq!(index(&net, outside), None, "{outside}");
        }
        // Subnet bits across, and below, the middle of the address.
        let across = family_v6(at("fd00::").to_bits(), 56, 72);
        assert_eq!(index(&across, "fd00:0:0:12:3400::1"), Some(0x1234));
        let below = family_v6(at("fd00::").to_bits(), 112, 124);
        assert_eq!(
            (index(&below, "fd00::123f"), index(&below, "fd00::1:0")),
            (Some(0x123), None)
        );
    }

    proptest! {
        /// Against 128-bit arithmetic, for networks and addresses near each other.
        #[test]
        fn an_ipv6_subnet_number_is_a_shifted_difference(
            network: u128,
            network_len in 1_u32..=126,
            bits in 1_u32..=17,
            differing: u128,
            keep in 0_u32..128,
        ) {
            let subnet_len = (network_len + bits).min(127);
            let network = network & (u128::MAX << (128 - network_len));
            let destination = network ^ differing >> keep;
            let number = destination.wrapping_sub(network) >> (128 - subnet_len);
            let expected = u32::try_from(number)
                .ok()
                .filter(|number| *number < 1 << (subnet_len - network_len));
            let family = family_v6(network, network_len, subnet_len);
            prop_assert_eq!(
                subnet_index_v6(&family, destination.to_be_bytes()),
                expected
            );
        }
    }

    #[test]
    fn a_family_that_is_off_has_no_subnets() {
        assert_eq!(
            subnet_index_v4(&FamilyConfig::default(), [0, 0, 0, 0]),
            None
        );
        assert_eq!(subnet_index_v6(&FamilyConfig::default(), [0; 16]), None);
    }

    #[test]
    fn words_keep_flags_and_generation_apart() {
        let word = EntryState::new(EntryState::VALID | EntryState::PLAIN, 7);
        assert!(word.has(EntryState::VALID | EntryState::PLAIN));
        assert!(!word.has(EntryState::VALID | EntryState::DIRECT));
        assert_eq!(word.generation(), 7);
        assert!(!word.invalid().has(EntryState::VALID));
        assert_eq!(word.invalid().generation(), 7);
    }

    #[test]
    fn a_path_is_trusted_only_while_seen_under_the_same_word() {
        let word = EntryState::new(EntryState::VALID | EntryState::PLAIN, 3);
        let seen = PathProbe {
            word,
            until_ns: 100,
            max_len: 1400,
            ..PathProbe::default()
        };
        let entry = PeerEntry {
            word,
            mtu: 1500,
            seen,
            ..PeerEntry::default()
        };
        assert!(entry.path_is_validated(99));
        assert!(!entry.path_is_validated(100));
        assert!(
            !PeerEntry {
                word: EntryState::new(EntryState::VALID | EntryState::PLAIN, 4),
                ..entry
            }
            .path_is_validated(99)
        );
        assert_eq!(
            (seen.validated_len(word, 99), seen.validated_len(word, 100)),
            (1400, 0)
        );
        assert!(!entry.without_seen().path_is_validated(0));
    }
}
