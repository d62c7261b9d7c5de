//! Ordered maps and sets without spare room in their nodes.
//!
//! A B-tree of the standard library splits a full node into halves. Where keys arrive in ascending
//! order, the left half gets no more of them, so half of the memory stays empty. A tree that is
//! built from sorted content has full nodes.

use std::collections::{BTreeMap, BTreeSet};

/// Insertions that are not worth a rebuild.
const FEW: usize = 1024;

/// The size of a map or set when its nodes were last filled up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packing(usize);

impl Packing {
    /// Builds a map again that grew by an eighth. So an insertion costs a few moves of an entry,
    /// whatever the size of the map.
    pub fn pack<K: Ord, V>(&mut self, map: &mut BTreeMap<K, V>) {
        if self.is_due(map.len()) {
            *map = std::mem::take(map).into_iter().collect();
        }
    }

    /// The same for a set.
    pub fn pack_set<T: Ord>(&mut self, set: &mut BTreeSet<T>) {
        if self.is_due(set.len()) {
            *set = std::mem::take(set).into_iter().collect();
        }
    }

    fn is_due(&mut self, len: usize) -> bool {
        let is_due = len >= self.0 + self.0 / 8 + FEW;
        // After it shrank, growth counts from there.
        self.0 = if is_due { len } else { self.0.min(len) };
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rebuild_is_due_after_an_eighth_more_and_keeps_everything() {
        let mut packing = Packing::default();
        let due: Vec<usize> = (0..6000).filter(|len| packing.is_due(*len)).collect();
        assert_eq!(due, [1024, 2176, 3472, 4930]);
        assert!(
            !packing.is_due(10) && !packing.is_due(1000),
            "it counts from where it shrank to"
        );
        assert!(packing.is_due(1036));
        let mut map: BTreeMap<u32, u32> = (0..2000).zip(1..).collect();
        let mut set: BTreeSet<u32> = (0..2000).collect();
        Packing::default().pack(&mut map);
        Packing::default().pack_set(&mut set);
        assert!(map.into_iter().eq((0..2000).zip(1..)) && set.into_iter().eq(0..2000));
    }
}
