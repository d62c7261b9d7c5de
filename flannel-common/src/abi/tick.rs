//! Time on the packet path: ticks of 2^20 ns (1.05 ms) of the coarse clock, in 32 bits.
//!
//! They wrap after 52 days. What is compared lies close together, so a moment is "ahead" only
//! within [`HORIZON`].

#![expect(
    clippy::cast_possible_truncation,
    reason = "the clock wraps, by design"
)]

/// A moment, in ticks.
pub type Tick = u32;

/// Maximum distance of a moment ahead, in ticks (more than eighteen hours).
pub const HORIZON: u32 = 1 << 26;

/// The tick of a time in nanoseconds.
#[inline(always)]
pub const fn tick(now_ns: u64) -> Tick {
    (now_ns >> 20) as u32
}

/// Returns a time in nanoseconds as ticks, at least one.
pub const fn ticks(ns: u64) -> u32 {
    let whole = ns >> 20;
    if whole == 0 {
        1
    } else if whole < HORIZON as u64 {
        whole as u32
    } else {
        HORIZON
    }
}

/// By how much a time that another CPU wrote may lie ahead of a clock that was read before it, in
/// nanoseconds: a virtual CPU may stand still between the two.
pub const SKEW_NS: u64 = 1_000_000_000;

/// Returns how long ago a moment was, in nanoseconds; zero for one that lies ahead by no more than
/// [`SKEW_NS`].
#[inline(always)]
pub const fn age_ns(now: u64, moment: u64) -> u64 {
    if moment.wrapping_sub(now) <= SKEW_NS {
        0
    } else {
        now.wrapping_sub(moment)
    }
}

/// Returns true if a moment lies ahead.
#[inline(always)]
pub const fn is_ahead(moment: Tick, now: Tick) -> bool {
    moment.wrapping_sub(now).wrapping_sub(1) < HORIZON
}

/// The end of an interval that begins now, three to five quarters of its length away: flows learned
/// together are not refreshed together.
#[inline(always)]
pub const fn jittered(now: Tick, interval: u32, random: u32) -> Tick {
    let scale_1024 = 768 + (random & 0x1ff) as u64;
    now.wrapping_add((interval as u64 * scale_1024 / 1024) as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_another_cpu_wrote_a_moment_later_is_new() {
        assert_eq!(age_ns(7, 5), 2);
        assert_eq!(age_ns(5, 5 + SKEW_NS), 0);
        assert!(
            age_ns(5, 6 + SKEW_NS) > u64::MAX / 2,
            "another clock's, so it never counts as new"
        );
    }

    #[test]
    fn a_second_is_953_ticks() {
        assert_eq!(ticks(1_000_000_000), 953);
        assert_eq!(ticks(0), 1);
        assert_eq!(ticks(u64::MAX), HORIZON);
        assert_eq!(tick(1_000_000_000), 953);
    }

    proptest! {
        #[test]
        fn moments_are_ahead_until_they_come(
            now: u32,
            away in 1_u32..=HORIZON,
            past in 0_u32..1 << 30,
        ) {
            prop_assert!(is_ahead(now.wrapping_add(away), now));
            prop_assert!(!is_ahead(now.wrapping_sub(past), now));
        }

        #[test]
        fn intervals_keep_within_a_quarter(now: u32, interval in 1_u32..=HORIZON / 2, random: u32) {
            let away = u64::from(jittered(now, interval, random).wrapping_sub(now));
            prop_assert!(
                away >= u64::from(interval) * 3 / 4 && away <= u64::from(interval) * 5 / 4
            );
        }
    }
}
