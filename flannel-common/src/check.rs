//! A check word over the words of a flow: tells a value that belongs to its key from one that was torn or recycled.
//!
//! Multilinear: every word times a constant of its own, summed. The products do not wait for each other, which matters on
//! the packet path; against somebody who chooses the words it is no defence, and need not be: only the programs write.

/// The sum so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Check {
    sum: u64,
    place: u64,
}

impl Check {
    pub(crate) const fn new() -> Self {
        Self { sum: factor(0), place: 1 }
    }

    #[inline(always)]
    pub(crate) const fn word(&mut self, word: u32) {
        self.sum = self.sum.wrapping_add(factor(self.place).wrapping_mul(word as u64));
        self.place += 1;
    }

    /// The check word; its lowest bit is set.
    #[inline(always)]
    pub(crate) const fn finish(self) -> u32 {
        (self.sum >> 32) as u32 | 1
    }
}

/// An odd 64-bit constant for each place (splitmix64). Folded by the compiler.
#[inline(always)]
const fn factor(place: u64) -> u64 {
    let mut z = place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) | 1
}
