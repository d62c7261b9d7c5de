//! The contract between `flannel-agent monitor` and the programs: the filter, and the event of a
//! packet.
//!
//! The contract. Off is a [`MONITOR_DEADLINE`](crate::abi::maps::MONITOR_DEADLINE) of zero, a
//! variable of the programs: one load for each packet, and nothing else. The monitor writes
//! [`Monitor`] while that is so, then a lease that ends [`LEASE_NS`] from now, and renews it until
//! it ends. One that was killed renews nothing: the first packet after that writes the zero back.
//! While the deadline lies ahead, a packet that matches the filter and the rate limit has an entry
//! in `EVENTS`: an [`Event`], and behind it the first bytes of the packet as the program leaves it,
//! outer headers included. Packets without an event are counted in `MISSED`.
//!
//! There is one monitor at a time, by a lock on the directory of the pins.

#![expect(
    clippy::cast_possible_truncation,
    reason = "header lengths are constants below 128"
)]

use core::{
    mem::{offset_of, size_of},
    net::IpAddr,
};

use crate::{
    abi::{program::Program, reason::Reason, tick::SKEW_NS},
    packet::{
        addr::{Addr, halves},
        ip::Ipv6Header,
        outer::OuterHeaders,
    },
};

/// Time for which the programs write events after the monitor's last heartbeat, in nanoseconds.
pub const LEASE_NS: u64 = 3_000_000_000;

/// Returns true if the deadline `until` lies ahead of `now`, both `CLOCK_MONOTONIC`. A program may
/// have read its clock before the monitor read its own, so a deadline lies ahead by up to
/// [`SKEW_NS`] more than the lease. One further away is of another clock.
#[inline(always)]
pub const fn lease_holds(until: u64, now: u64) -> bool {
    until.wrapping_sub(now) <= LEASE_NS + SKEW_NS
}

/// Bytes of `EVENTS`.
pub const EVENTS_BYTES: u32 = 1 << 18;

/// Maximum bytes of an inner packet in an event.
pub const SNAPLEN_MAX: u32 = 4000;

/// Bytes of an inner packet that are in every event: its Ethernet, IP and TCP headers. Without them
/// it cannot be identified.
pub const HEADERS_LEN: u32 = 74;

/// Bytes in front of an inner frame: the outer headers without the inner Ethernet header.
pub const OUTER_MAX: u32 = OuterHeaders::<Ipv6Header>::OVERHEAD as u32;

/// Maximum bytes of a packet in an event, outer headers included: a power of two, so that a mask
/// shows the bound to the verifier.
pub const CAPTURE_MAX: usize = 4096;

/// Filter of events.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The reasons.
    pub reasons: ReasonSet,
    /// A bit for each program, by its number.
    pub programs: u32,
    /// One in this many matching packets becomes an event; 1 for all.
    pub sample: u32,
    /// Source of the inner packet.
    pub source: Network,
    /// Destination of the inner packet.
    pub destination: Network,
}

/// A bit for each reason, by its number: 64 in each word.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReasonSet([u64; 2]);

impl ReasonSet {
    /// Every reason.
    pub const ALL: Self = Self([u64::MAX; 2]);

    /// The reasons in the set, and this one.
    #[must_use]
    pub const fn with(mut self, reason: Reason) -> Self {
        self.0[reason as usize / 64] |= 1 << (reason as u32 % 64);
        self
    }

    /// True for a reason in the set.
    #[inline(always)]
    pub const fn has(&self, reason: Reason) -> bool {
        let word = if (reason as u32) < 64 {
            self.0[0]
        } else {
            self.0[1]
        };
        word >> (reason as u32 % 64) & 1 != 0
    }
}

impl Filter {
    /// Returns true if outcomes of this kind match.
    #[inline(always)]
    pub const fn wants(&self, program: Program, reason: Reason) -> bool {
        self.programs >> program as u32 & 1 != 0 && self.reasons.has(reason)
    }

    /// Returns true if addresses count. A packet without addresses does not match then.
    #[inline(always)]
    pub fn asks_for_addresses(&self) -> bool {
        !self.source.is_everything() || !self.destination.is_everything()
    }
}

/// Addresses of either family with a common prefix; all of them if the mask is zero.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// The first of them.
    pub addr: Addr,
    /// The bits that count.
    pub mask: Addr,
}

impl Network {
    /// The addresses that begin with the first `prefix_len` bits of `addr`, counted in the
    /// address's own family.
    pub const fn new(addr: IpAddr, prefix_len: u8) -> Self {
        let (bytes, skipped) = match addr {
            IpAddr::V4(v4) => (Addr::from_v4_bytes(v4.octets()), 96),
            IpAddr::V6(v6) => (Addr(v6.octets()), 0),
        };
        let bits = skipped + prefix_len as u32;
        let mask = if bits == 0 {
            0
        } else {
            u128::MAX << (128 - bits)
        };
        Self {
            addr: bytes,
            mask: Addr(mask.to_be_bytes()),
        }
    }

    /// Returns true if every address lies in it.
    #[inline(always)]
    pub fn is_everything(&self) -> bool {
        let [high, low] = halves(self.mask.0);
        high | low == 0
    }

    /// Returns true if an address lies in it.
    #[inline(always)]
    pub fn contains(&self, addr: Addr) -> bool {
        let ([net_high, net_low], [mask_high, mask_low]) =
            (halves(self.addr.0), halves(self.mask.0));
        let [high, low] = halves(addr.0);
        (high ^ net_high) & mask_high | (low ^ net_low) & mask_low == 0
    }
}

/// Rate limit of events: the moment at which the next one would be due if all came evenly. CPUs may
/// race for it, which lets a few more through, no more.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// Between two events, nanoseconds.
    pub interval_ns: u64,
    /// When the next one is due.
    pub due_ns: u64,
}

/// Burst: events may come a tenth of a second ahead of their due time.
const BURST_NS: u64 = 100_000_000;

impl Pace {
    /// Returns the pace of `rate` events per second, with bursts of a tenth of that.
    pub const fn per_second(rate: u32) -> Self {
        Self {
            interval_ns: 1_000_000_000 / rate as u64,
            due_ns: 0,
        }
    }

    /// Returns the time when the next event is due after one at `now`; `None` if `now` is too
    /// early.
    #[inline(always)]
    pub const fn next_due(&self, now: u64) -> Option<u64> {
        let due = if self.due_ns > now { self.due_ns } else { now };
        if due - now <= BURST_NS {
            Some(due + self.interval_ns)
        } else {
            None
        }
    }
}

/// The value of `MONITOR`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// Filter of events.
    pub filter: Filter,
    /// Events per second. The programs write the time due.
    pub pace: Pace,
    /// Bytes of the inner packet in an event, at least [`HEADERS_LEN`].
    pub capture: u32,
    /// Zero.
    pub reserved: u32,
}

/// In place of the program in [`Event::program`]: the kernel dropped the packet, and
/// [`Event::reason`] is the number of a [`KernelDrop`](crate::abi::kernel_drop::KernelDrop).
pub const KERNEL: u8 = 255;

/// The value of `MISSED`: matching packets of one CPU without an event. It only grows.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// Packets beyond the pace.
    pub limited: u64,
    /// Packets whose events did not fit into the ring buffer.
    pub lost: u64,
}

/// The event of a packet, in front of its first bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// When, `CLOCK_MONOTONIC` in nanoseconds.
    pub time_ns: u64,
    /// The device whose hook the program is at.
    pub ifindex: u32,
    /// Length of the packet as the program leaves it, outer headers included.
    pub len: u32,
    /// Payload of one segment, 0 for a packet that is not segmented.
    pub gso_size: u32,
    /// Offset of the inner frame: behind the outer headers, or 0 where there are none.
    pub inner_at: u16,
    /// Bytes of the packet that follow.
    pub captured: u16,
    /// [`Program`] by its number.
    pub program: u8,
    /// [`Reason`] by its number.
    pub reason: u8,
    /// With [`KERNEL`]: 1 for a packet that came in by the tunnel or the external interface, else
    /// 0.
    pub is_inbound: u8,
    /// Zero.
    pub reserved: [u8; 5],
}

impl Event {
    /// Its length.
    pub const LEN: usize = size_of::<Self>();

    /// The event at the beginning of what came out of the ring buffer.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (fields, _) = bytes.split_first_chunk::<{ Self::LEN }>()?;
        let half = |at: usize| u16::from_ne_bytes([fields[at], fields[at + 1]]);
        let word = |at: usize| {
            u32::from_ne_bytes([fields[at], fields[at + 1], fields[at + 2], fields[at + 3]])
        };
        Some(Self {
            time_ns: u64::from_ne_bytes(*fields.first_chunk()?),
            ifindex: word(offset_of!(Self, ifindex)),
            len: word(offset_of!(Self, len)),
            gso_size: word(offset_of!(Self, gso_size)),
            inner_at: half(offset_of!(Self, inner_at)),
            captured: half(offset_of!(Self, captured)),
            program: fields[offset_of!(Self, program)],
            reason: fields[offset_of!(Self, reason)],
            is_inbound: fields[offset_of!(Self, is_inbound)],
            reserved: [0; 5],
        })
    }
}

const _: () = {
    assert!(size_of::<Event>() == 32 && size_of::<Network>() == 32 && size_of::<Filter>() == 88);
    assert!(
        size_of::<Monitor>() == 112 && offset_of!(Monitor, pace) == 88 && size_of::<Missed>() == 16
    );
    assert!(CAPTURE_MAX.is_power_of_two() && (SNAPLEN_MAX + OUTER_MAX) as usize <= CAPTURE_MAX);
};

#[cfg(test)]
mod tests;
