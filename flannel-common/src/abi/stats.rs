//! Counters: packets and bytes by (program, reason), one slot per CPU.

use core::mem::size_of;

use crate::abi::{program::Program, reason::Reason};

/// One CPU's count of one (program, reason).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Packets as the program saw them: a GSO or GRO aggregate counts once.
    pub packets: u64,
    /// Their length from the Ethernet header on.
    pub bytes: u64,
}

const _: () = assert!(size_of::<Counter>() == 16);

/// Slots per program. More than there are reasons, so that a new reason does not move the others.
pub const SLOTS_PER_PROGRAM: u32 = 128;

/// Capacity of the `STATS` map.
pub const SLOTS: u32 = Program::COUNT * SLOTS_PER_PROGRAM;

/// Returns the slot of a (program, reason).
#[inline(always)]
pub const fn slot(program: Program, reason: Reason) -> u32 {
    program as u32 * SLOTS_PER_PROGRAM + reason as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_and_reason_has_a_slot_of_its_own() {
        let mut slots: Vec<u32> = Program::ALL
            .iter()
            .flat_map(|&p| Reason::ALL.iter().map(move |&r| slot(p, r)))
            .collect();
        assert!(slots.iter().all(|&slot| slot < SLOTS));
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), Program::ALL.len() * Reason::ALL.len());
    }
}
