//! The faults in the order in which they happen, drawn by a seed.

use flannel_tests::differential::random::Random;

use super::kinds::{KINDS, Kind};

/// Draws each kind once before any comes again.
pub(super) struct Draw {
    random: Random,
    deck: Vec<&'static Kind>,
}

impl Draw {
    pub(super) const fn new(random: Random) -> Self {
        Self {
            random,
            deck: Vec::new(),
        }
    }

    /// The next fault, and the index of the node that it happens to.
    pub(super) fn next(&mut self, nodes: usize) -> (&'static Kind, usize) {
        if self.deck.is_empty() {
            self.deck = KINDS.iter().collect();
        }
        let place = below(&mut self.random, self.deck.len());
        (self.deck.swap_remove(place), below(&mut self.random, nodes))
    }
}

fn below(random: &mut Random, end: usize) -> usize {
    usize::try_from(random.below(end as u64)).expect("an index")
}
