//! The reception of tunnel packets: which of them the node's rules let through.
//!
//! A tunnel packet whose outer headers a program takes off skips the host's PREROUTING and INPUT
//! chains, its IPsec policies and the socket of the tunnel device. So a program takes them off only
//! where a packet of the kernel's own has just come through: from the same peer, with the same
//! outer fields, by the same device. That packet is the *probe*: `from_underlay` notes it, and
//! `from_tunnel` finds the note (see [`crate::flow::arrival`]). Reception is validated for two
//! seconds; in the second of them single packets are probes again, at most four.
//!
//! The outer source port is not part of it, because each flow has another one.

use core::mem::size_of;

use crate::{
    abi::tick::age_ns,
    flow::{arrival::Arrival, check::Check},
};

/// Nanoseconds for which a probe validates.
pub const VALIDATED_NS: u64 = 2_000_000_000;

/// Nanoseconds after which a packet is the next probe.
pub const PROBED_AFTER_NS: u64 = 1_000_000_000;

/// Nanoseconds between two probes of a reception that is still valid.
pub const PROBE_PAUSE_NS: u64 = 250_000_000;

/// Receptions that are kept: a peer has one for each class of outer headers, usually one.
pub const RECEPTIONS_MAX: u32 = 4096;

/// The key of `RECEPTIONS`: packets that a rule cannot distinguish, but for their source ports.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceptionKey {
    /// [`Arrival::fields`].
    pub fields: u64,
    /// [`Arrival::device`].
    pub device: u32,
    /// `skb->mark` at the external interface.
    pub mark: u32,
    /// The peer's index in the peer map of its family.
    pub index: u32,
    /// EtherType of the family, network order.
    pub family: [u8; 2],
    /// Zero.
    pub reserved: [u8; 2],
}

impl ReceptionKey {
    /// The key of a packet with this arrival and mark, from the peer with this index.
    #[inline(always)]
    pub const fn new(arrival: &Arrival, mark: u32, index: u32, family: [u8; 2]) -> Self {
        Self {
            fields: arrival.fields,
            device: arrival.device,
            mark,
            index,
            family,
            reserved: [0; 2],
        }
    }

    /// A hash of the key, never zero.
    #[inline(always)]
    pub const fn check(&self) -> u32 {
        let mut check = Check::new();
        check.word((self.fields >> 32) as u32);
        check.word((self.fields & 0xffff_ffff) as u32);
        check.word(self.device);
        check.word(self.mark);
        check.word(self.index);
        check.word(u16::from_ne_bytes(self.family) as u32);
        check.finish()
    }
}

/// The value of `RECEPTIONS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reception {
    /// When the last probe came through, in nanoseconds of the monotonic clock.
    pub seen_ns: u64,
    /// When the last probe was chosen while the reception was valid.
    pub probed_ns: u64,
    /// The generation of the rules that the probe has passed.
    pub generation: u32,
    /// [`ReceptionKey::check`]. It differs from the key's if the element was recycled.
    pub check: u32,
}

/// The way of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Its outer headers may come off.
    Decapsulated,
    /// The kernel's: it validates the reception if it comes through.
    Probe,
}

impl Reception {
    /// A reception whose probe has just come through.
    #[inline(always)]
    pub const fn seen(key: &ReceptionKey, generation: u32, now: u64) -> Self {
        Self {
            seen_ns: now,
            probed_ns: now,
            generation,
            check: key.check(),
        }
    }

    /// Returns the way of the next packet. Of a valid reception few packets are probes.
    #[inline(always)]
    pub const fn way(&self, generation: u32, now: u64) -> Way {
        let age = age_ns(now, self.seen_ns);
        let is_valid = self.generation == generation && age < VALIDATED_NS;
        let is_due = age >= PROBED_AFTER_NS && age_ns(now, self.probed_ns) >= PROBE_PAUSE_NS;
        if is_valid && !is_due {
            Way::Decapsulated
        } else {
            Way::Probe
        }
    }
}

const _: () = assert!(size_of::<ReceptionKey>() == 24 && size_of::<Reception>() == 24);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::addr::Mac;

    const KEY: ReceptionKey = ReceptionKey {
        fields: 1,
        device: 2,
        mark: 3,
        index: 4,
        family: [8, 0],
        reserved: [0; 2],
    };

    #[test]
    fn a_probe_validates_for_two_seconds_and_one_generation() {
        let start = 7_000_000_000;
        let seen = Reception::seen(&KEY, 5, start);
        for (age, way) in [
            (0, Way::Decapsulated),
            (PROBED_AFTER_NS - 1, Way::Decapsulated),
            (PROBED_AFTER_NS, Way::Probe),
            (VALIDATED_NS, Way::Probe),
        ] {
            assert_eq!(seen.way(5, start + age), way, "{age}");
        }
        assert_eq!(seen.way(6, start), Way::Probe, "the rules have changed");
        assert_eq!(Reception::default().way(0, start), Way::Probe);
    }

    #[test]
    fn one_packet_in_a_pause_is_the_next_probe() {
        let start = 7_000_000_000;
        let due = start + PROBED_AFTER_NS;
        let probed = Reception {
            probed_ns: due,
            ..Reception::seen(&KEY, 5, start)
        };
        assert_eq!(probed.way(5, due + PROBE_PAUSE_NS - 1), Way::Decapsulated);
        assert_eq!(
            probed.way(5, due + PROBE_PAUSE_NS),
            Way::Probe,
            "the one before was lost"
        );
        assert_eq!(
            probed.way(5, start + VALIDATED_NS),
            Way::Probe,
            "however late the last probe was chosen"
        );
    }

    #[test]
    fn each_field_has_a_reception_of_its_own() {
        let arrival = Arrival::new(Mac([2, 0, 0, 0, 0, 1]), 64, 0, 3, 40_000);
        let key = |arrival: &Arrival, mark, index| ReceptionKey::new(arrival, mark, index, [8, 0]);
        let usual = key(&arrival, 0, 1);
        assert_eq!(
            usual,
            key(
                &Arrival {
                    port: 50_000,
                    ..arrival
                },
                0,
                1
            ),
            "each flow has another source port"
        );
        for other in [
            key(
                &Arrival {
                    fields: arrival.fields ^ 1 << 48,
                    ..arrival
                },
                0,
                1,
            ),
            key(
                &Arrival {
                    device: 4,
                    ..arrival
                },
                0,
                1,
            ),
            key(&arrival, 1, 1),
            key(&arrival, 0, 2),
            ReceptionKey {
                family: [0x86, 0xdd],
                ..usual
            },
        ] {
            assert_ne!(usual.check(), other.check(), "{other:?}");
        }
    }
}
