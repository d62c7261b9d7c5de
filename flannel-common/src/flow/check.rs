//! A check word over the words of a flow: it differs for a value that is torn, or recycled for
//! another key.
//!
//! The function is multilinear: it sums each pair of words times a constant for its position. The
//! products do not depend on each other, so a CPU computes them in parallel, which matters on the
//! packet path. The function does not resist chosen words, and need not: only the programs write.

/// The sum so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Check {
    sum: u64,
    place: u64,
    /// The first of two words.
    first: Option<u32>,
}

impl Check {
    pub(crate) const fn new() -> Self {
        Self {
            sum: factor(0),
            place: 1,
            first: None,
        }
    }

    #[inline(always)]
    pub(crate) const fn word(&mut self, word: u32) {
        match self.first.take() {
            None => self.first = Some(word),
            Some(first) => self.pair(first as u64 | (word as u64) << 32),
        }
    }

    #[inline(always)]
    const fn pair(&mut self, pair: u64) {
        self.sum = self.sum.wrapping_add(factor(self.place).wrapping_mul(pair));
        self.place += 1;
    }

    /// The check word; its lowest bit is set.
    #[inline(always)]
    pub(crate) const fn finish(mut self) -> u32 {
        if let Some(last) = self.first {
            self.pair(last as u64);
        }
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
