//! Notes: packets that entered the observed stretch, to be known again where they leave it.
//!
//! An entry hook writes what it saw into a slot and puts the slot's number on the packet
//! (`skb->tc_index`, which nothing on the way touches); an exit hook takes the slot and asks
//! whether this is that packet. The slots of a CPU are a ring, because the kernel takes in several
//! packets before the first of them leaves. A slot is good for one packet, on its CPU, within one
//! NAPI poll: what was copied, queued or handed to another CPU between is not known again.
//!
//! `tc_index` has sixteen bits, of which the highest says that there is a note: so 512 CPUs can
//! note. On those above, nothing is ever learned, and their packets take what other CPUs learned.

use core::mem::size_of;

use crate::{
    checksum::follows,
    flow_key::{Address, FlowKey},
    inner::{Fingerprint, FrameAddresses, ParsedPacket},
    reason::Reason,
    tick::Tick,
};

/// Slots of one CPU. GRO hands up lists of at most eight packets.
pub const SLOTS_PER_CPU: u32 = 64;

/// CPUs that can note.
pub const CPUS_MAX: u32 = 512;

/// `tc_index` values from here on name a slot.
const NOTED: u32 = 0x8000;

/// A packet is not known again after so many ticks. Between the two hooks lie microseconds; this
/// bounds how long a slot whose packet was dropped could be taken for another's.
const NOTE_TICKS: u32 = 32;

/// Counters of one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuState {
    /// Notes written: the next slot of the ring.
    pub sequence: u32,
    /// NAPI polls, counted while `count_polls` is attached.
    pub polls: u32,
}

/// The number of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u32);

impl Slot {
    /// The next slot of a CPU's ring, if that CPU can note.
    #[inline(always)]
    pub const fn of(cpu: u32, sequence: u32) -> Option<Self> {
        if cpu < CPUS_MAX { Some(Self(cpu * SLOTS_PER_CPU + sequence % SLOTS_PER_CPU)) } else { None }
    }

    /// The slot that a packet's `tc_index` names, if it names one of this CPU's.
    #[inline(always)]
    pub const fn named_by(tc_index: u32, cpu: u32) -> Option<Self> {
        let slot = tc_index & (NOTED - 1);
        if tc_index & NOTED != 0 && slot / SLOTS_PER_CPU == cpu { Some(Self(slot)) } else { None }
    }

    /// Returns true if a `tc_index` names any slot.
    #[inline(always)]
    pub const fn is_named_by(tc_index: u32) -> bool {
        tc_index & NOTED != 0
    }

    /// Returns the `tc_index` that names the slot.
    #[inline(always)]
    pub const fn tc_index(self) -> u32 {
        NOTED | self.0
    }

    /// Its place in `PENDING`.
    #[inline(always)]
    pub const fn index(self) -> u32 {
        self.0
    }
}

/// The value of `PENDING` and `PENDING6`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingPacket<A> {
    /// Address of the packet's skb in the kernel; 0 for a slot that was taken.
    pub skb: u64,
    /// When it was written.
    pub tick: Tick,
    /// Polls of this CPU at that time.
    pub polls: u32,
    /// Key with which the packet entered.
    pub key: FlowKey<A>,
    /// Its Ethernet addresses there.
    pub addresses: FrameAddresses,
    /// The fields that NAT does not change.
    pub fingerprint: Fingerprint,
    /// Zero.
    pub reserved: u32,
}

impl<A: Address> PendingPacket<A> {
    /// A note on a packet.
    #[inline(always)]
    pub const fn new(skb: u64, tick: Tick, polls: u32, packet: &ParsedPacket<A>) -> Self {
        let ParsedPacket { key, addresses, fingerprint, .. } = *packet;
        Self { skb, tick, polls, key, addresses, fingerprint, reserved: 0 }
    }

    /// Returns true if the packet at an exit hook can be the recorded one: the same skb, in the
    /// same poll, within the time limit.
    #[inline(always)]
    pub const fn is_on(&self, polls: u32, now: Tick) -> bool {
        self.polls == polls && now.wrapping_sub(self.tick) < NOTE_TICKS
    }

    /// By how much the TTL sank, if `packet` is the noted one and netfilter did nothing to it but
    /// what can be done again: changed addresses and ports.
    #[inline(always)]
    pub fn became(&self, packet: &ParsedPacket<A>) -> Result<u8, Reason> {
        let (was, is) = (&self.fingerprint, &packet.fingerprint);
        let same = was.ident == is.ident
            && was.sequence == is.sequence
            && was.acknowledged == is.acknowledged
            && was.length == is.length
            && u16::from_ne_bytes(was.state) == u16::from_ne_bytes(is.state)
            && was.tos == is.tos
            && self.key.protocol == packet.key.protocol;
        let step = was.ttl.wrapping_sub(is.ttl);
        if same && step <= 1 && self.checksum_followed(packet) { Ok(step) } else { Err(Reason::ChangedOtherwise) }
    }

    #[inline(always)]
    fn checksum_followed(&self, packet: &ParsedPacket<A>) -> bool {
        if packet.is_udp() && self.fingerprint.checksum == 0 {
            return packet.fingerprint.checksum == 0;
        }
        follows(self.fingerprint.checksum, packet.fingerprint.checksum, &self.key, &packet.key)
    }
}

const _: () = {
    assert!(size_of::<PendingPacket<[u32; 1]>>() == 72 && size_of::<PendingPacket<[u32; 4]>>() == 96);
    assert!(size_of::<CpuState>() == 8);
    assert!(CPUS_MAX * SLOTS_PER_CPU == NOTED);
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::flow_key::tests::flow_key;

    fn noted() -> ParsedPacket<[u32; 1]> {
        let fingerprint = Fingerprint {
            ident: 1,
            sequence: 2,
            acknowledged: 3,
            length: 100,
            state: [0x50, 0x10],
            checksum: 0x1234,
            tos: 0,
            ttl: 64,
        };
        let key = flow_key([10, 244, 1, 5], 40000, [10, 96, 0, 1], 80, 5);
        ParsedPacket {
            key,
            addresses: FrameAddresses::default(),
            headers: 40,
            is_control: false,
            is_opening: false,
            fingerprint,
        }
    }

    fn routed() -> ParsedPacket<[u32; 1]> {
        let mut packet = noted();
        packet.fingerprint.ttl = 63;
        packet
    }

    fn became(packet: &ParsedPacket<[u32; 1]>) -> Result<u8, Reason> {
        PendingPacket::new(1, 0, 0, &noted()).became(packet)
    }

    #[test]
    fn a_routed_and_a_bridged_packet_are_known_again() {
        assert_eq!(became(&routed()), Ok(1));
        assert_eq!(became(&noted()), Ok(0));
    }

    #[test]
    fn what_cannot_be_done_again_is_not_learned() {
        type Change = fn(&mut ParsedPacket<[u32; 1]>);
        let changes: [Change; 11] = [
            |p| p.fingerprint.ident = 9,
            |p| p.fingerprint.sequence = 9,
            |p| p.fingerprint.acknowledged = 9,
            |p| p.fingerprint.length = 99,
            |p| p.fingerprint.state = [0x50, 0x18],
            |p| p.fingerprint.checksum = 0x1235,
            |p| p.fingerprint.tos = 0xb8,
            |p| p.fingerprint.ttl = 62,
            |p| p.fingerprint.ttl = 65,
            |p| p.key.protocol = 17,
            // Another source, but the checksum is as it was.
            |p| p.key.source = [9],
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut packet = routed();
            change(&mut packet);
            assert_eq!(became(&packet), Err(Reason::ChangedOtherwise), "change {number}");
        }
    }

    #[test]
    fn datagrams_without_a_checksum_keep_none() {
        let mut was = noted();
        (was.key.protocol, was.fingerprint.checksum) = (17, 0);
        let mut is = was;
        is.key.destination = [77];
        assert_eq!(PendingPacket::new(1, 0, 0, &was).became(&is), Ok(0));
        is.fingerprint.checksum = 1;
        assert_eq!(PendingPacket::new(1, 0, 0, &was).became(&is), Err(Reason::ChangedOtherwise));
    }

    #[test]
    fn a_note_is_good_for_one_poll_and_a_moment() {
        let note = PendingPacket::new(1, 100, 7, &noted());
        assert!(note.is_on(7, 100) && note.is_on(7, 131));
        assert!(!note.is_on(8, 100), "queued to another poll");
        assert!(!note.is_on(7, 132) && !note.is_on(7, 99));
    }

    proptest! {
        #[test]
        fn a_slot_is_found_on_its_cpu_only(cpu in 0..CPUS_MAX, sequence: u32, other in 0..2 * CPUS_MAX) {
            let slot = Slot::of(cpu, sequence).expect("a CPU that can note");
            prop_assert!(slot.tc_index() <= 0xffff && slot.index() < CPUS_MAX * SLOTS_PER_CPU);
            prop_assert!(Slot::is_named_by(slot.tc_index()));
            prop_assert_eq!(Slot::named_by(slot.tc_index(), other), (other == cpu).then_some(slot));
        }

        #[test]
        fn cpus_above_the_limit_do_not_note(cpu in CPUS_MAX.., sequence: u32) {
            prop_assert_eq!(Slot::of(cpu, sequence), None);
        }

        #[test]
        fn other_numbers_name_no_slot(tc_index in 0..NOTED, cpu in 0..CPUS_MAX) {
            prop_assert_eq!(Slot::named_by(tc_index, cpu), None);
        }
    }
}
