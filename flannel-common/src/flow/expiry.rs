//! Until when something holds, in one 64-bit word that is written and read whole.
//!
//! Elements of an LRU map are given to other keys at once, also while a program still writes to
//! them. So each expiry has the check word of the flow it was written for: on another flow it says
//! nothing.

#![expect(
    clippy::cast_possible_truncation,
    reason = "the two halves of the word"
)]

use crate::abi::tick::{Tick, is_ahead};

/// The check word of the flow in the high half, the moment in the low one. Zero says nothing.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expiry(pub u64);

impl Expiry {
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

    /// Returns true before the expiry of the flow with this check word.
    #[inline(always)]
    pub const fn is_current(self, check: u32, now: Tick) -> bool {
        self.check() == check && is_ahead(self.moment(), now)
    }

    /// Returns true if the flow was closed, and its tombstone has not expired.
    #[inline(always)]
    pub const fn is_closed(self, check: u32, now: Tick) -> bool {
        self.check() == check & !1 && is_ahead(self.moment(), now)
    }

    /// Returns true for an expiry of the flow with this check word, past or not, that is not a
    /// tombstone.
    #[inline(always)]
    pub const fn is_of(self, check: u32) -> bool {
        self.0 != Self::NONE.0 && self.check() == check
    }

    /// The expiry of the same flow at another moment.
    #[inline(always)]
    #[must_use]
    pub const fn moved(self, moment: Tick) -> Self {
        Self::until(self.check(), moment)
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
        let stamp = Expiry::until(CHECK, 100);
        assert!(stamp.is_current(CHECK, 99) && !stamp.is_current(CHECK, 100));
        assert!(!stamp.is_current(CHECK ^ 2, 99), "another flow's");
        assert!(!stamp.is_closed(CHECK, 99));
    }

    #[test]
    fn a_tombstone_is_no_life() {
        let stamp = Expiry::closed(CHECK, 100);
        assert!(stamp.is_closed(CHECK, 99) && !stamp.is_closed(CHECK, 100));
        assert!(!stamp.is_current(CHECK, 99));
        assert!(!Expiry::NONE.is_current(1, u32::MAX) && !Expiry::NONE.is_closed(1, 0));
    }
}
