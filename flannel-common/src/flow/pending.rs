//! Pending packets: recorded where they enter the observed path, recognised where they leave it.
//!
//! An entry hook writes what it saw into a slot and puts the slot's number on the packet
//! (`skb->tc_index`, which the kernel does not touch between the hooks). An exit hook takes the
//! slot and compares. The slots of a CPU are a ring, because the kernel receives several packets
//! before the first of them leaves. A record is valid for one packet, on its CPU, in one run of the
//! receive softirq: a packet that was copied, queued or moved to another CPU is not recognised.
//!
//! A packet that a process held (NFQUEUE) continues in that process, in its verdict's system call.
//! Two facts show that: another task is running than when the packet was recorded, or, if the
//! softirq had interrupted that very process, the softirq has ended and was counted.
//!
//! `tc_index` has sixteen bits. The highest bit marks a record, so 512 CPUs can record. Other CPUs
//! do not learn flows; their packets use what these CPUs learned.

use core::mem::size_of;

use crate::{
    abi::{reason::Reason, tick::Tick},
    flow::{
        arrival::{Arrival, NOTES_PER_CPU},
        difference,
        flow_key::{Address, FlowKey},
    },
    packet::{
        checksum::{follows, is_partial, pseudo_header},
        inner::{Fingerprint, FrameAddresses, ParsedPacket},
    },
};

/// Slots of one CPU. GRO hands up lists of at most eight packets.
pub const SLOTS_PER_CPU: u32 = 64;

/// CPUs that can record.
pub const CPUS_MAX: u32 = 512;

/// The lowest `tc_index` value that names a slot.
const RECORDED: u32 = 0x8000;

/// Ticks for which a record is valid. Between the two hooks lie microseconds; this bounds how long
/// the record of a dropped packet could be taken for another's.
const VALID_TICKS: u32 = 32;

/// Counters of one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuState {
    /// Records written: the next slot of the ring.
    pub sequence: u32,
    /// Ended NAPI polls and softirqs, counted while `count_polls` is attached.
    pub polls: u32,
    /// Notes of arrivals written.
    pub arrivals: u32,
    /// Zero.
    pub reserved: u32,
    /// The arrival at the node of the packet in hand, if it came out of the tunnel.
    pub arrival: Arrival,
}

/// The work of a CPU: the same as long as it processes packets and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuRun {
    /// See [`CpuState::polls`].
    pub polls: u32,
    /// The task that runs, or that the softirq interrupted: see [`task_word`].
    pub task: u32,
}

/// Returns the bits of a task's address that distinguish it from others: `task_struct` is aligned
/// to 64 bytes, so only tasks 256 GiB apart have the same.
#[inline(always)]
pub const fn task_word(address: u64) -> u32 {
    ((address >> 6) & 0xffff_ffff) as u32
}

/// The number of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u32);

impl Slot {
    /// The next slot of a CPU's ring, if that CPU can record.
    #[inline(always)]
    pub const fn of(cpu: u32, sequence: u32) -> Option<Self> {
        if cpu < CPUS_MAX {
            Some(Self(cpu * SLOTS_PER_CPU + sequence % SLOTS_PER_CPU))
        } else {
            None
        }
    }

    /// The slot that a packet's `tc_index` names, if it names one of this CPU's.
    #[inline(always)]
    pub const fn named_by(tc_index: u32, cpu: u32) -> Option<Self> {
        let slot = tc_index & (RECORDED - 1);
        if tc_index & RECORDED != 0 && slot / SLOTS_PER_CPU == cpu {
            Some(Self(slot))
        } else {
            None
        }
    }

    /// Returns true if a `tc_index` names any slot.
    #[inline(always)]
    pub const fn is_named_by(tc_index: u32) -> bool {
        tc_index & RECORDED != 0
    }

    /// Returns the `tc_index` that names the slot.
    #[inline(always)]
    pub const fn tc_index(self) -> u32 {
        RECORDED | self.0
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
    /// Polls and softirqs of this CPU at that time.
    pub polls: u32,
    /// Key with which the packet entered.
    pub key: FlowKey<A>,
    /// Its Ethernet addresses there.
    pub addresses: FrameAddresses,
    /// The fields that NAT does not change.
    pub fingerprint: Fingerprint,
    /// The task that ran on the CPU: see [`task_word`].
    pub task: u32,
    /// Its arrival at the node, if it came out of the tunnel.
    pub arrival: Arrival,
}

impl<A: Address> PendingPacket<A> {
    /// The record of a packet.
    #[inline(always)]
    pub const fn new(skb: u64, tick: Tick, run: CpuRun, packet: &ParsedPacket<A>) -> Self {
        let ParsedPacket {
            key,
            addresses,
            fingerprint,
            ..
        } = *packet;
        Self {
            skb,
            tick,
            polls: run.polls,
            key,
            addresses,
            fingerprint,
            task: run.task,
            arrival: Arrival::NONE,
        }
    }

    /// Returns true if no process can have held the packet since it was recorded: the CPU is in the
    /// same run, and the time limit is not over.
    #[inline(always)]
    pub const fn is_of_run(&self, run: CpuRun, now: Tick) -> bool {
        self.polls == run.polls
            && self.task == run.task
            && now.wrapping_sub(self.tick) < VALID_TICKS
    }

    /// By how much the TTL sank, if `packet` is the recorded one and netfilter changed nothing
    /// but addresses and ports, which can be replayed.
    #[inline(always)]
    pub fn became(&self, packet: &ParsedPacket<A>) -> Result<u8, Reason> {
        let (was, is) = (&self.fingerprint, &packet.fingerprint);
        let words = was.ident ^ is.ident
            | was.sequence ^ is.sequence
            | was.acknowledged ^ is.acknowledged
            | self.key.protocol ^ packet.key.protocol;
        let halves =
            was.length ^ is.length | u16::from_ne_bytes(was.state) ^ u16::from_ne_bytes(is.state);
        let same = difference::is_none(words | u32::from(halves) | u32::from(was.tos ^ is.tos));
        let step = was.ttl.wrapping_sub(is.ttl);
        if same && step <= 1 && self.checksum_followed(packet) {
            Ok(step)
        } else {
            Err(Reason::ChangedOtherwise)
        }
    }

    #[inline(always)]
    fn checksum_followed(&self, packet: &ParsedPacket<A>) -> bool {
        if packet.is_udp() && self.fingerprint.checksum == 0 {
            return packet.fingerprint.checksum == 0;
        }
        // A device without checksum offload for tunnels (the bridge, for a packet that still counts
        // as one) completes what a socket left to the device.
        follows(
            self.fingerprint.checksum,
            packet.fingerprint.checksum,
            &self.key,
            &packet.key,
        ) || is_partial(
            self.fingerprint.checksum,
            pseudo_header(&self.key, self.fingerprint.length - A::IP_LEN),
        )
    }
}

const _: () = {
    assert!(
        size_of::<PendingPacket<[u32; 1]>>() == 88 && size_of::<PendingPacket<[u32; 4]>>() == 112
    );
    assert!(size_of::<CpuState>() == 32);
    // `ARRIVALS` has the size of `PENDING`.
    assert!(NOTES_PER_CPU == SLOTS_PER_CPU);
    assert!(CPUS_MAX * SLOTS_PER_CPU == RECORDED);
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::flow::flow_key::tests::flow_key;

    const RUN: CpuRun = CpuRun { polls: 7, task: 3 };

    fn recorded() -> ParsedPacket<[u32; 1]> {
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
            window: 0,
            fingerprint,
        }
    }

    fn routed() -> ParsedPacket<[u32; 1]> {
        let mut packet = recorded();
        packet.fingerprint.ttl = 63;
        packet
    }

    fn became(packet: &ParsedPacket<[u32; 1]>) -> Result<u8, Reason> {
        PendingPacket::new(1, 0, RUN, &recorded()).became(packet)
    }

    #[test]
    fn a_routed_and_a_bridged_packet_are_recognised() {
        assert_eq!(became(&routed()), Ok(1));
        assert_eq!(became(&recorded()), Ok(0));
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
            assert_eq!(
                became(&packet),
                Err(Reason::ChangedOtherwise),
                "change {number}"
            );
        }
    }

    #[test]
    fn datagrams_without_a_checksum_keep_none() {
        let mut was = recorded();
        (was.key.protocol, was.fingerprint.checksum) = (17, 0);
        let mut is = was;
        is.key.destination = [77];
        assert_eq!(PendingPacket::new(1, 0, RUN, &was).became(&is), Ok(0));
        is.fingerprint.checksum = 1;
        assert_eq!(
            PendingPacket::new(1, 0, RUN, &was).became(&is),
            Err(Reason::ChangedOtherwise)
        );
    }

    #[test]
    fn a_record_is_valid_for_one_run_and_a_moment() {
        let record = PendingPacket::new(1, 100, RUN, &recorded());
        assert!(record.is_of_run(RUN, 100) && record.is_of_run(RUN, 131));
        assert!(
            !record.is_of_run(CpuRun { polls: 8, ..RUN }, 100),
            "the softirq ended"
        );
        assert!(
            !record.is_of_run(CpuRun { task: 4, ..RUN }, 100),
            "another task runs"
        );
        assert!(!record.is_of_run(RUN, 132) && !record.is_of_run(RUN, 99));
    }

    #[test]
    fn neighbouring_tasks_differ() {
        let address = 0xffff_8880_0123_4580;
        assert_ne!(task_word(address), task_word(address + 64));
        assert_ne!(task_word(address), task_word(address + (1 << 32)));
    }

    proptest! {
        #[test]
        fn a_slot_is_found_on_its_cpu_only(
            cpu in 0..CPUS_MAX,
            sequence: u32,
            other in 0..2 * CPUS_MAX,
        ) {
            let slot = Slot::of(cpu, sequence).expect("a CPU that can record");
            prop_assert!(slot.tc_index() <= 0xffff && slot.index() < CPUS_MAX * SLOTS_PER_CPU);
            prop_assert!(Slot::is_named_by(slot.tc_index()));
            prop_assert_eq!(
                Slot::named_by(slot.tc_index(), other),
                (other == cpu).then_some(slot)
            );
        }

        #[test]
        fn cpus_above_the_limit_do_not_record(cpu in CPUS_MAX.., sequence: u32) {
            prop_assert_eq!(Slot::of(cpu, sequence), None);
        }

        #[test]
        fn other_numbers_name_no_slot(tc_index in 0..RECORDED, cpu in 0..CPUS_MAX) {
            prop_assert_eq!(Slot::named_by(tc_index, cpu), None);
        }
    }
}
