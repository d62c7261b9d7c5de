//! The way by which a tunnel packet arrived: what the receiving node's rules can see of its outer
//! headers.
//!
//! A replayed packet skips the host's PREROUTING and INPUT chains, its IPsec policies and the
//! tunnel device. So a flow is replayed only for packets that arrive as the one from which it was
//! learned, which the kernel has let through. `from_underlay` notes how a packet arrived that it
//! leaves to the kernel; `from_tunnel` finds the note by the number on the packet
//! (`skb->tc_index`).

use core::mem::size_of;

use crate::packet::addr::Mac;

/// The first value of `tc_index` that names a note. Higher up are those of pending packets.
const NOTED: u32 = 0x4000;
/// Notes that `tc_index` can name.
const SLOTS: u32 = 0x4000;
/// Notes of one CPU.
pub const NOTES_PER_CPU: u32 = 64;

/// The outer fields of a packet that a rule can see and that are the same for all packets of a
/// flow. A rule can see ECN, lengths and checksums too: those differ from packet to packet.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Ethernet source, TTL and DSCP.
    pub fields: u64,
    /// Interface index of the device.
    pub device: u32,
    /// UDP source port, as it lies in the packet.
    pub port: u32,
}

impl Arrival {
    /// Not known.
    pub const NONE: Self = Self {
        fields: 0,
        device: 0,
        port: 0,
    };

    /// The arrival of a packet.
    #[inline(always)]
    pub const fn new(source: Mac, ttl: u8, tos: u8, device: u32, port: u16) -> Self {
        let m = source.0;
        let fields = u64::from_ne_bytes([m[0], m[1], m[2], m[3], m[4], m[5], ttl, tos & 0xfc]);
        Self {
            fields,
            device,
            port: port as u32,
        }
    }

    /// Returns true if both packets arrived alike.
    #[inline(always)]
    pub const fn same(&self, other: &Self) -> bool {
        let words = (self.device ^ other.device) | (self.port ^ other.port);
        (self.fields ^ other.fields) | words as u64 == 0
    }

    /// Returns true if it is known.
    #[inline(always)]
    pub const fn is_known(&self) -> bool {
        self.device != 0
    }
}

/// The value of `ARRIVALS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrivalNote {
    /// Address of the packet's skb in the kernel; 0 for a note that was taken.
    pub skb: u64,
    /// Its arrival.
    pub arrival: Arrival,
    /// `skb->mark` at the external interface.
    pub mark: u32,
    /// The sender's index in the peer map of its family.
    pub index: u32,
    /// The generation of rules by then.
    pub generation: u32,
    /// EtherType of the family, network order.
    pub family: [u8; 2],
    /// 1 if it validates the reception of packets like it (see [`crate::abi::reception`]), else 0.
    pub is_probe: u8,
    /// Zero.
    pub reserved: u8,
}

/// Returns the number of the next note of a CPU. CPUs far apart share notes: a note of another
/// packet is not taken, because it names another skb.
#[inline(always)]
pub const fn note_of(cpu: u32, sequence: u32) -> u32 {
    (cpu * NOTES_PER_CPU + sequence % NOTES_PER_CPU) % SLOTS
}

/// Returns the `tc_index` that names a note.
#[inline(always)]
pub const fn tc_index_of(note: u32) -> u32 {
    NOTED | note
}

/// Returns the number of the note that a `tc_index` names.
#[inline(always)]
pub const fn note_named_by(tc_index: u32) -> Option<u32> {
    if tc_index & !(SLOTS - 1) == NOTED {
        Some(tc_index & (SLOTS - 1))
    } else {
        None
    }
}

const _: () = assert!(size_of::<Arrival>() == 16 && size_of::<ArrivalNote>() == 40);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::program::SELF_SENT;

    #[test]
    fn every_field_that_a_rule_can_see_distinguishes_arrivals() {
        let usual = Arrival::new(Mac([2, 0, 0, 0, 0, 1]), 64, 0, 3, 40_000);
        for other in [
            Arrival::new(Mac([2, 0, 0, 0, 0, 2]), 64, 0, 3, 40_000),
            Arrival::new(Mac([2, 0, 0, 0, 0, 1]), 63, 0, 3, 40_000),
            Arrival::new(Mac([2, 0, 0, 0, 0, 1]), 64, 46 << 2, 3, 40_000),
            Arrival::new(Mac([2, 0, 0, 0, 0, 1]), 64, 0, 4, 40_000),
            Arrival::new(Mac([2, 0, 0, 0, 0, 1]), 64, 0, 3, 40_001),
            Arrival::NONE,
        ] {
            assert!(!usual.same(&other), "{other:?}");
        }
        assert!(
            usual.same(&Arrival::new(Mac([2, 0, 0, 0, 0, 1]), 64, 3, 3, 40_000)),
            "ECN differs by packet"
        );
        assert!(usual.is_known() && !Arrival::NONE.is_known());
    }

    #[test]
    fn a_note_is_named_and_nothing_else_names_one() {
        for note in [0, 1, SLOTS - 1] {
            assert_eq!(note_named_by(tc_index_of(note)), Some(note));
            assert!(tc_index_of(note) < 0x8000, "it names no pending packet");
        }
        assert_eq!([0, SELF_SENT, 0x8000, 0xffff].map(note_named_by), [None; 4]);
        assert!(note_of(511, 63) < SLOTS);
    }
}
