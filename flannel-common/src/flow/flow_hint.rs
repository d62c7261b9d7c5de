//! Hints: where flows may be whose keys have one slot of [`crate::flow::probation`], without a look
//! there or into the flow table.
//!
//! A packet of an unknown flow needs both looks, at each hook, and each is a cache miss; a query
//! and its answer (DNS) never become a known flow. The hints of a family have 64 KiB and stay in
//! the cache. A hint may name a flow that is gone, which costs a look. A flow that its hint does
//! not name is unknown, wherever it is: its packets are the kernel's.

use core::mem::size_of;

use crate::abi::tick::{Tick, is_ahead};

/// The time for which a hint speaks of the table after a flow of its slot was written or refreshed
/// there, in ticks: ten minutes, and longer than any flow is usable. A flow without packets for so
/// long begins as an unknown one.
pub const KEPT: u32 = 10 * 60 * 953;

/// The value of `FLOW_HINTS` and `FLOW_HINTS6`. CPUs write it without a lock, each word whole.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowHint {
    /// Hash of the key that was written to the slot last.
    pub on_probation: u32,
    /// Until when a flow may be in the table whose key has this slot.
    pub in_table_until: Tick,
}

impl FlowHint {
    /// The hint for a flow that was just written to the table, or refreshed there.
    #[inline(always)]
    pub const fn until(now: Tick) -> Tick {
        now.wrapping_add(KEPT)
    }

    /// Returns true if the flow of a key with this hash may be on probation.
    #[inline(always)]
    pub const fn names(&self, hash: u32) -> bool {
        self.on_probation == hash
    }

    /// Returns true if the flow may be in the table.
    #[inline(always)]
    pub const fn speaks_of_table(&self, now: Tick) -> bool {
        is_ahead(self.in_table_until, now)
    }
}

const _: () = assert!(size_of::<FlowHint>() == 8);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{fast::FastConfig, tick::ticks};

    #[test]
    fn a_hint_names_one_key_and_speaks_of_the_table_for_ten_minutes() {
        let hint = FlowHint {
            on_probation: 7,
            in_table_until: FlowHint::until(100),
        };
        assert!(hint.names(7) && !hint.names(8));
        let end = 100 + ticks(600_000_000_000);
        assert!(
            hint.speaks_of_table(100)
                && hint.speaks_of_table(end - 1000)
                && !hint.speaks_of_table(end)
        );
    }

    #[test]
    fn a_hint_outlives_the_flow() {
        assert!(KEPT > 2 * ticks(FastConfig::INTERVAL_NS));
    }
}
