//! Until when something holds, in one 64-bit word that is written and read whole.
//!
//! Elements of an LRU map are given to other keys at once, also while somebody still writes to them. So each stamp carries
//! the check word of the flow it was written for: on another flow it says nothing.

#![expect(clippy::cast_possible_truncation, reason = "the two halves of the word")]

use crate::tick::{Tick, is_ahead};

/// The check word of the flow in the high half, the moment in the low one. Zero says nothing.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(pub u64);

impl Stamp {
    /// Says nothing.
    pub const NONE: Self = Self(0);

    /// Holds until then.
    #[inline(always)]
    pub const fn until(check: u32, moment: Tick) -> Self {
        Self((check as u64) << 32 | moment as u64)
    }

    /// The flow was closed, and is not to be learned again until then.
    #[inline(always)]
    pub const fn closed(check: u32, moment: Tick) -> Self {
        Self::until(check & !1, moment)
    }

    /// Whether it holds now, for the flow of this check word.
    #[inline(always)]
    pub const fn holds(self, check: u32, now: Tick) -> bool {
        self.check() == check && is_ahead(self.moment(), now)
    }

    /// Whether it says that the flow was closed of late.
    #[inline(always)]
    pub const fn is_closed(self, check: u32, now: Tick) -> bool {
        self.check() == check & !1 && is_ahead(self.moment(), now)
    }

    /// The moment.
    #[inline(always)]
    pub const fn moment(self) -> Tick {
        self.0 as u32
    }

    #[inline(always)]
    const fn check(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECK: u32 = 0x1234_5677;

    #[test]
    fn a_stamp_holds_for_its_flow_until_its_moment() {
        let stamp = Stamp::until(CHECK, 100);
        assert!(stamp.holds(CHECK, 99) && !stamp.holds(CHECK, 100));
        assert!(!stamp.holds(CHECK ^ 2, 99), "another flow's");
        assert!(!stamp.is_closed(CHECK, 99));
    }

    #[test]
    fn a_tombstone_is_no_life() {
        let stamp = Stamp::closed(CHECK, 100);
        assert!(stamp.is_closed(CHECK, 99) && !stamp.is_closed(CHECK, 100));
        assert!(!stamp.holds(CHECK, 99));
        assert!(!Stamp::NONE.holds(1, u32::MAX) && !Stamp::NONE.is_closed(1, 0));
    }
}
