//! The class of a packet: the fields besides its bytes that a rule on the host's way out can see
//! and that the kernel keeps from the packet inside a tunnel to the one around it. The path to a
//! peer is validated for each class.
//!
//! Class zero, which most packets have, is kept with the peer or its ECMP path; others have an
//! element of `PATHS` each. A packet that validates carries the class it had at the tunnel device
//! with it, as a tag in `skb->tc_index`: where a rule changed mark or priority after that, nothing
//! is known of packets that do not meet the rule.

use core::mem::{align_of, size_of};

use crate::flow::check::Check;

/// Mark and priority of a packet.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// `skb->mark`.
    pub mark: u32,
    /// `skb->priority`.
    pub priority: u32,
}

/// Tags have this bit and not the highest, which names notes.
const TAGGED: u32 = 0x4000;

impl Class {
    /// Neither mark nor priority.
    #[inline(always)]
    pub const fn is_zero(self) -> bool {
        self.mark | self.priority == 0
    }

    /// The value of `tc_index` that stands for the class: zero for class zero, else fourteen bits
    /// of a hash.
    #[inline(always)]
    pub const fn tag(self) -> u32 {
        if self.is_zero() {
            return 0;
        }
        let mixed = (self.mark ^ self.priority.rotate_left(16)).wrapping_mul(0x9e37_79b1);
        TAGGED | mixed >> 18
    }
}

/// The key of `PATHS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathKey {
    /// The class of the packets.
    pub class: Class,
    /// The peer's index in the peer map of its family.
    pub index: u32,
    /// Interface index of the ECMP path; 0 for a peer without ECMP paths, and for all ECMP paths
    /// together.
    pub device: u32,
    /// EtherType of the family, network order.
    pub family: [u8; 2],
    /// Zero.
    pub reserved: [u8; 2],
}

impl PathKey {
    /// A hash of the key, never zero.
    #[inline(always)]
    pub const fn check(&self) -> u32 {
        let mut check = Check::new();
        check.word(self.class.mark);
        check.word(self.class.priority);
        check.word(self.index);
        check.word(self.device);
        check.word(u16::from_ne_bytes(self.family) as u32);
        check.finish()
    }
}

const _: () = {
    assert!(size_of::<Class>() == 8 && align_of::<Class>() == 4);
    assert!(size_of::<PathKey>() == 20 && align_of::<PathKey>() == 4);
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{abi::program::SELF_SENT, flow::pending::Slot};

    proptest! {
        #[test]
        fn a_tag_is_no_note_and_not_our_own_packets(mark: u32, priority: u32) {
            let class = Class { mark, priority };
            let tag = class.tag();
            prop_assert_eq!(tag == 0, class.is_zero());
            prop_assert!(!Slot::is_named_by(tag) && tag != SELF_SENT && tag <= 0xffff);
        }

        #[test]
        fn classes_that_differ_in_small_numbers_have_tags_of_their_own(
            mark in 0_u32..64,
            priority in 0_u32..8,
        ) {
            for (other_mark, other) in [(mark + 1, priority), (mark, priority + 1), (0, 0)] {
                let (one, another) = (
                    Class { mark, priority },
                    Class {
                        mark: other_mark,
                        priority: other,
                    },
                );
                prop_assert_eq!(one == another, one.tag() == another.tag());
            }
        }
    }
}
