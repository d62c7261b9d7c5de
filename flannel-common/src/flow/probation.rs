//! Flows on probation: kept apart from the flow table until their first refresh.
//!
//! Most flows are short. A flow on probation costs no element of the flow table, so neither
//! short connections nor handshakes that are never completed evict the flows of others. A key has
//! one slot. A flow in use ([`Flow::is_in_use`]) keeps its slot; any other gives it to the next
//! flow. Else two flows of one slot would take it from each other for as long as both last.
//!
//! Slots are written while others read them. As with elements of the flow table, a value is copied,
//! and its expiries have the check word of the key and action they were written for.

use core::mem::{offset_of, size_of};

use crate::{
    abi::tick::Tick,
    flow::flow_key::{Address, FlowKey},
    flow::{Egress, Flow},
};

/// Slots of each family: the value of one is 168 bytes (IPv6: 216).
pub const PROBATION_SLOTS: u32 = 1 << 13;

/// The number of the slot of keys with this hash.
#[inline(always)]
pub const fn slot_of(hash: u32) -> u32 {
    hash >> (u32::BITS - PROBATION_SLOTS.ilog2())
}

/// The value of `PROBATION` and `PROBATION6`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbationSlot<A> {
    /// The flow.
    pub flow: Flow<A>,
    /// Its key; zero in a slot that was never used.
    pub key: FlowKey<A>,
    /// Zero.
    pub reserved: u32,
}

impl<A: Address> ProbationSlot<A> {
    /// The number of the slot of a key.
    #[inline(always)]
    pub fn of(key: &FlowKey<A>) -> u32 {
        slot_of(key.hash())
    }

    /// Returns true if the slot may be given to this key: it has it, or its flow is not in use.
    #[inline(always)]
    pub fn is_free_for(&self, key: &FlowKey<A>, now: Tick) -> bool {
        self.key.same(key) || !self.flow.is_in_use(self.flow.action.check(&self.key), now)
    }

    /// Returns true for a slot with a flow that was learned: it is neither empty nor was its flow
    /// expected and nothing more.
    pub fn is_learned(&self) -> bool {
        self.key.protocol != 0 && self.flow.action.egress != Egress::NONE
    }
}

const _: () = {
    assert!(
        size_of::<ProbationSlot<[u32; 1]>>() == 168 && size_of::<ProbationSlot<[u32; 4]>>() == 216
    );
    assert!(
        offset_of!(ProbationSlot<[u32; 1]>, key) == 144
            && offset_of!(ProbationSlot<[u32; 4]>, key) == 168
    );
    assert!(PROBATION_SLOTS.is_power_of_two());
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        flow::FlowAction,
        flow::{expiry::Expiry, flow_key::tests::flow_key},
    };

    fn key(port: u16) -> FlowKey<[u32; 1]> {
        flow_key([10, 244, 1, 5], port, [10, 96, 0, 1], 80, 5)
    }

    fn slot() -> (ProbationSlot<[u32; 1]>, u32) {
        let key = key(40_000);
        let action = FlowAction {
            out: key,
            generation: 3,
            egress: Egress::POD,
            ..FlowAction::default()
        };
        let check = action.check(&key);
        let mut flow = Flow {
            action,
            ..Flow::default()
        };
        flow.stamp(check, 10, 100, Some(90));
        (
            ProbationSlot {
                flow,
                key,
                reserved: 0,
            },
            check,
        )
    }

    #[test]
    fn an_established_flow_keeps_its_slot_until_it_expires_or_ends() {
        let (held, check) = slot();
        assert!(!held.is_free_for(&key(1), 50) && held.is_free_for(&key(40_000), 50));
        assert!(held.is_free_for(&key(1), 90), "its reverse flow expired");
        let free = |seen, mirror| {
            let flow = Flow {
                seen,
                mirror,
                ..held.flow
            };
            ProbationSlot { flow, ..held }.is_free_for(&key(1), 50)
        };
        let until = Expiry::until(check, 100);
        assert!(!free(until, until));
        assert!(free(until, Expiry::NONE), "half a handshake");
        assert!(free(Expiry::NONE, until), "expected");
        assert!(free(Expiry::closed(check, 100), until), "closed");
        assert!(free(Expiry::until(check ^ 2, 100), until), "torn");
        assert!(ProbationSlot::<[u32; 1]>::default().is_free_for(&key(1), 50));
        assert!(held.is_learned() && !ProbationSlot::<[u32; 1]>::default().is_learned());
        let action = FlowAction {
            egress: Egress::NONE,
            ..held.flow.action
        };
        assert!(
            !ProbationSlot {
                flow: Flow {
                    action,
                    ..held.flow
                },
                ..held
            }
            .is_learned()
        );
    }

    #[test]
    fn a_flow_of_datagrams_one_way_keeps_its_slot_once_one_was_replayed() {
        let (held, _) = slot();
        for (needs_mirror, replayed, is_kept) in [(0, 0, false), (0, 1, true), (1, 1, false)] {
            let action = FlowAction {
                needs_mirror,
                ..held.flow.action
            };
            let mut flow = Flow {
                action,
                ..held.flow
            };
            flow.stamp(action.check(&held.key), 10, 100, None);
            flow.put_on_probation();
            for _ in 0..replayed {
                flow.packets = flow.counted();
            }
            let held = ProbationSlot { flow, ..held };
            assert_eq!(
                !held.is_free_for(&key(1), 50),
                is_kept,
                "{needs_mirror}, {replayed} replayed"
            );
            assert!(held.is_free_for(&key(1), 100), "expired");
        }
    }

    /// Of 4096 keys in 8192 slots 3224 are expected to differ.
    fn assert_spread<A: Address>(keys: impl Iterator<Item = FlowKey<A>>) {
        let mut slots: Vec<u32> = keys.map(|key| ProbationSlot::of(&key)).collect();
        assert!(slots.len() == 4096 && slots.iter().all(|slot| *slot < PROBATION_SLOTS));
        slots.sort_unstable();
        slots.dedup();
        assert!(slots.len() > 2900, "{}", slots.len());
    }

    #[test]
    fn keys_that_differ_in_one_part_have_different_slots() {
        let numbers = || (0..4096_u16).map(|number| (number, number.to_be_bytes()));
        assert_spread(numbers().map(|(port, _)| key(port)));
        assert_spread(
            numbers().map(|(_, [c, d])| flow_key([10, 244, c, d], 53, [10, 96, 0, 1], 80, 5)),
        );
        assert_spread(
            numbers().map(|(_, [c, d])| flow_key([10, 244, 1, 5], 53, [10, 96, c, d], 80, 5)),
        );
        assert_spread(
            numbers().map(|(port, _)| flow_key([10, 244, 1, 5], 53, [10, 96, 0, 1], port, 5)),
        );
        assert_spread(numbers().map(|(device, _)| FlowKey {
            device: device.into(),
            ..key(53)
        }));
        let v6 = |low: u16| [0x2001_0db8_u32, 0, 0, low.into()].map(u32::to_be);
        let (source, destination) = (v6(5), v6(7));
        let some = FlowKey {
            source,
            destination,
            ports: 53,
            protocol: 17,
            device: 5,
        };
        assert_spread(numbers().map(|(low, _)| FlowKey {
            source: v6(low),
            ..some
        }));
        assert_spread(numbers().map(|(low, _)| FlowKey {
            destination: v6(low),
            ..some
        }));
    }
}
