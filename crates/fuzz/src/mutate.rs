//! Changes of an input: bits, numbers, pieces of itself and of others. Pure.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher as _, Hasher as _},
};

/// Numbers at which code tends to decide.
const EDGES: [u32; 12] = [
    0,
    1,
    4,
    16,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
];

/// Random numbers: xorshift64, <https://www.jstatsoft.org/article/view/v008i14>.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Numbers that differ from run to run. The input that fails is kept, so no seed is.
    pub(crate) fn new() -> Self {
        Self(RandomState::new().build_hasher().finish() | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below a limit, which is not zero.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % (limit as u64)).unwrap_or_default()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[3]
    }
}

/// Returns one of the inputs with a few changes.
pub(crate) fn mutated(inputs: &[Vec<u8>], random: &mut Random, most: usize) -> Vec<u8> {
    let mut input = inputs[random.below(inputs.len())].clone();
    for _ in 0..=random.below(5) {
        let other = &inputs[random.below(inputs.len())];
        change(&mut input, other, random);
    }
    input.truncate(most);
    input
}

fn change(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    if input.is_empty() {
        input.push(random.byte());
    }
    let at = random.below(input.len());
    match random.below(9) {
        0 => input[at] ^= 1 << random.below(8),
        1 => input[at] = random.byte(),
        2 => {
            input[at] = input[at]
                .wrapping_add(1)
                .wrapping_sub(2 * u8::from(random.byte() & 1 == 0));
        }
        3 => {
            let edge = EDGES[random.below(EDGES.len())];
            let bytes = if random.byte() & 1 == 0 {
                edge.to_le_bytes()
            } else {
                edge.to_be_bytes()
            };
            let length = [1, 2, 4][random.below(3)].min(input.len() - at);
            let from = if random.byte() & 1 == 0 {
                0
            } else {
                4 - length
            };
            input[at..at + length].copy_from_slice(&bytes[from..from + length]);
        }
        4 => input.insert(at, random.byte()),
        5 => drop(input.drain(at..at + (1 + random.below(8)).min(input.len() - at))),
        6 => input.truncate(at),
        7 => {
            // A piece of itself once more.
            let length = (1 + random.below(32)).min(input.len() - at);
            let piece = input[at..at + length].to_vec();
            let to = random.below(input.len());
            input.splice(to..to, piece);
        }
        _ => {
            let Some(limit) = other.len().checked_sub(1).filter(|limit| *limit > 0) else {
                return;
            };
            let from = random.below(limit);
            let length = (1 + random.below(64)).min(other.len() - from);
            let end = if random.byte() & 1 == 0 {
                at
            } else {
                (at + length).min(input.len())
            };
            input.splice(at..end, other[from..from + length].iter().copied());
        }
    }
}
