//! The agent's part of mode `fast`: settings, pods, and the limit on learning.
//!
//! The contract. The agent writes [`FastConfig`] into `FAST` and one [`PodEntry`] per pod it has
//! attached `from_pod` and `to_pod` to; the programs write `FLOWS`, `PENDING`, `CPU_STATE` and
//! `LEARN_BUCKETS`, which the agent only reads and flushes. What was learned under other
//! circumstances is discarded by one write: the next generation of the `MODE` word. The agent bumps
//! it whenever something changes that flows depend on and that their refresh would not notice in
//! time:
//!
//! * it clears [`FastConfig::TCP`] or [`FastConfig::UDP`], or changes the MTU of a tunnel device;
//! * a pod's entry changes or goes; flags, master, MTU or address of its veth, of the bridge or of
//!   the tunnel device change;
//! * nftables' rules change, at most once a second and once more a second later; `flows flush`; its
//!   events were lost.
//!
//! `TCP` may be set only while `nf_conntrack_tcp_timeout_unacknowledged` and `_max_retrans` are at
//! least as large as `_established` in this network namespace, and while conntrack forgives packets
//! outside of its windows: for single connections, by [`crate::flow::connection`], or, as
//! `TCP_LIBERAL` says, for all. Both protocols may be set only while no NFQUEUE listener exists or
//! `count_polls` is attached.

#![expect(
    clippy::cast_possible_truncation,
    reason = "the two halves of a bucket's word"
)]

use core::mem::size_of;

use crate::{abi::tick::Tick, packet::addr::Mac};

/// The value of `FAST`: the settings of mode `fast`. Zero, what a new map holds, learns nothing.
/// Each field is read for itself.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastConfig {
    /// Settings of learning and replaying.
    pub flags: u32,
    /// Refresh interval of a flow, in ticks ([`crate::abi::tick`]): at most half of conntrack's
    /// shortest UDP timeout.
    pub interval: u32,
    /// MTU of the IPv4 tunnel device, or of the external interface without a tunnel.
    pub tunnel_mtu: u32,
    /// MTU of the IPv6 tunnel device, likewise.
    pub tunnel_mtu6: u32,
}

impl FastConfig {
    /// TCP flows are learned.
    pub const TCP: u32 = 1 << 0;
    /// UDP flows are learned.
    pub const UDP: u32 = 1 << 1;
    /// Packets may be put into pods straight from the external interface: no filter or program of
    /// others is on its ingress.
    pub const FROM_UNDERLAY: u32 = 1 << 2;
    /// Flows between pods and hosts outside the cluster's networks are learned.
    pub const OUTSIDE: u32 = 1 << 3;

    /// Conntrack checks no windows in this network namespace: the host has set
    /// `nf_conntrack_tcp_be_liberal` and `nf_conntrack_tcp_ignore_invalid_rst`. Connections are not
    /// announced.
    pub const TCP_LIBERAL: u32 = 1 << 4;
    /// The outer headers of packets that cannot be replayed come off in the program: no rule
    /// matches on tunnel packets one by one.
    pub const DECAPSULATE: u32 = 1 << 5;

    /// The default of `interval`: two seconds.
    pub const INTERVAL_NS: u64 = 2_000_000_000;

    /// All of `flags` are set.
    #[inline(always)]
    pub const fn has(&self, flags: u32) -> bool {
        self.flags & flags == flags
    }

    /// Returns true if flows of a protocol are learned.
    #[inline(always)]
    pub const fn learns(&self, protocol: u32) -> bool {
        let flag = if protocol == crate::packet::PROTO_TCP as u32 {
            Self::TCP
        } else {
            Self::UDP
        };
        self.flags & flag != 0
    }
}

/// The value of `PODS`, by the interface index of the host side of a pod's veth.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodEntry {
    /// Address of the pod's own interface: frames for others (floods, bridges in the pod) teach
    /// nothing.
    pub mac: Mac,
    /// Directions that may be learned.
    pub flags: u16,
    /// MTU of the veth.
    pub mtu: u32,
    /// Slot of its counter in `POD_TRAFFIC`; [`crate::abi::traffic::SHARED`] for a pod without one.
    pub traffic: u32,
}

impl PodEntry {
    /// Packets from this pod may be recorded: no foreign filter or qdisc is bypassed on the veth's
    /// ingress.
    pub const SENDS: u16 = 1 << 0;
    /// Packets may be put straight into this pod: nothing shapes or filters the veth's egress, no
    /// XDP program is in the pod, and the veth's other end is in another network namespace.
    pub const RECEIVES: u16 = 1 << 1;
    /// Merged packets (GSO) may be put straight into this pod: it has no devices but loopback and
    /// the veth, so its TCP ends there. A device behind the pod would segment them in software,
    /// because the GSO type still names the removed tunnel.
    pub const MERGED: u16 = 1 << 2;

    /// The entry without its slot, for comparison.
    #[must_use]
    pub const fn without_traffic(self) -> Self {
        Self {
            traffic: crate::abi::traffic::SHARED,
            ..self
        }
    }

    /// Returns true if all of `flags` are set.
    #[inline(always)]
    pub const fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }
}

/// Words of `HELPER_PORTS`: one bit for each port.
pub const PORT_WORDS: u32 = 1 << 10;

/// Returns the place of a port's bit in `HELPER_PORTS`, an array of 64-bit words: ports of
/// conntrack helpers (ftp, sip, ...), whose flows have payload rewritten and are never noted.
#[inline(always)]
pub const fn port_bit(port: u16) -> (u32, u64) {
    (port as u32 / 64, 1 << (port % 64))
}

/// One token bucket: who makes new flows faster than this does not get them learned, and does not
/// push others out of the table. The value of `LEARN_BUCKETS`; races between CPUs cost or give a
/// token, no more.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket(pub u64);

/// Buckets: half for pods by interface index, half for peers by subnet number. Who shares one
/// shares the rate.
pub const LEARN_BUCKETS: u32 = 4096;

/// New flows each tick, and at most at once: about 2,000 a second.
const RATE: u32 = 2;
const BURST: u32 = 2048;
/// By how many ticks what one CPU read may lie behind what another has written.
const SKEW: u32 = 64;

impl Bucket {
    /// The bucket of a pod.
    #[inline(always)]
    pub const fn of_pod(ifindex: u32) -> u32 {
        ifindex % (LEARN_BUCKETS / 2)
    }

    /// The bucket of all hosts outside.
    pub const OF_OUTSIDE: u32 = LEARN_BUCKETS / 2;

    /// The bucket of a peer.
    #[inline(always)]
    pub const fn of_peer(subnet: u32) -> u32 {
        LEARN_BUCKETS / 2 + subnet % (LEARN_BUCKETS / 2)
    }

    /// The bucket with one token less, if it has one.
    #[inline(always)]
    #[must_use]
    pub const fn take(self, now: Tick) -> Option<Self> {
        let (since, spent) = ((self.0 >> 32) as u32, self.0 as u32);
        // Another CPU may have read the clock a moment later and updated the bucket first. The time
        // passed is then zero, not an age.
        let passed = if since.wrapping_sub(now) <= SKEW {
            0
        } else {
            now.wrapping_sub(since)
        };
        let since = if passed == 0 { since } else { now };
        let spent = if passed >= BURST / RATE {
            0
        } else {
            spent.saturating_sub(passed * RATE)
        };
        if spent < BURST {
            Some(Self((since as u64) << 32 | (spent + 1) as u64))
        } else {
            None
        }
    }
}

const _: () = {
    assert!(
        size_of::<FastConfig>() == 16 && size_of::<PodEntry>() == 16 && size_of::<Bucket>() == 8
    );
    assert!(PORT_WORDS * u64::BITS == 1 << 16);
};

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(mut bucket: Bucket, now: Tick, want: u32) -> (Bucket, u32) {
        for count in 0..want {
            match bucket.take(now) {
                Some(next) => bucket = next,
                None => return (bucket, count),
            }
        }
        (bucket, want)
    }

    #[test]
    fn a_burst_then_a_rate() {
        let (bucket, first) = taken(Bucket::default(), 1 << 20, 10_000);
        assert_eq!(first, BURST);
        let (bucket, next) = taken(bucket, (1 << 20) + 10, 10_000);
        assert_eq!(next, 10 * RATE);
        let (_, all) = taken(bucket, (1 << 20) + 2000, 10_000);
        assert_eq!(all, BURST, "full again after a second");
    }

    #[test]
    fn a_clock_read_a_moment_before_brings_no_new_burst() {
        let now = 1 << 20;
        let (empty, _) = taken(Bucket::default(), now, 10_000);
        for late in 0..=3 {
            assert_eq!(empty.take(now - late), None, "{late} ticks late");
        }
        let (bucket, one) = taken(Bucket::default(), now, 1);
        let (bucket, rest) = taken(bucket, now - 3, 10_000);
        assert_eq!((one + rest, bucket.take(now)), (BURST, None));
    }

    #[test]
    fn a_bucket_that_nobody_used_for_weeks_is_full() {
        let (empty, _) = taken(Bucket::default(), 7, 10_000);
        for later in [1 << 20, 1 << 31, u32::MAX - 100] {
            assert_eq!(taken(empty, later, 10_000).1, BURST, "{later}");
        }
    }

    #[test]
    fn ports_have_bits_of_their_own() {
        assert_eq!(port_bit(0), (0, 1));
        assert_eq!(port_bit(21), (0, 1 << 21));
        assert_eq!(port_bit(u16::MAX), (PORT_WORDS - 1, 1 << 63));
    }

    #[test]
    fn protocols_are_learned_apart() {
        let tcp = FastConfig {
            flags: FastConfig::TCP,
            ..FastConfig::default()
        };
        assert!(tcp.learns(6) && !tcp.learns(17));
        let udp = FastConfig {
            flags: FastConfig::UDP,
            ..FastConfig::default()
        };
        assert!(udp.learns(17) && !udp.learns(6));
    }
}
