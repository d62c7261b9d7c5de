//! Validation of the path to a peer by the kernel's own packets: where the result is kept, read and
//! written.
//!
//! There is one result for each [`Class`] of packets. That of class zero is in the peer's entry, or
//! in the entry of its ECMP path by the device in question; the others are in `PATHS`. The time is
//! written last: until then the path is not validated. Only programs write results, and two that
//! race have both seen the path.

use core::ptr::{read_volatile, write_volatile};

use aya_ebpf::{macros::map, maps::LruHashMap};
use flannel_common::{
    abi::{
        ecmp::{EcmpPath, EcmpPathKey},
        entry_state::EntryState,
        maps::PATHS_MAX,
        peer::{PATH_PROBE_NS, PathProbe},
        reason::Reason,
    },
    flow::class::{Class, PathKey},
};

use crate::{maps::ECMP_PATHS, node::Peer, packet::family::Family};

/// Results for packets with a mark or a priority. Private to the programs: not pinned.
#[map]
static PATHS: LruHashMap<PathKey, PathProbe> = LruHashMap::with_max_entries(PATHS_MAX, 0);

/// The place of a result.
pub(crate) struct PathProbeSlot {
    at: *mut PathProbe,
    word: EntryState,
}

/// A class of packets to a peer, with memory for the key of its result.
pub(crate) struct Path<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) class: Class,
    pub(crate) key: &'a mut PathKey,
}

#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a key passed by value is copied to the stack"
)]
impl Path<'_> {
    /// Returns the largest outer packet that may be sent, in bytes, where the peer has one next
    /// hop; 0 for none.
    #[inline(always)]
    pub(crate) fn validated_len<F: Family>(&mut self, now: u64) -> u32 {
        let (seen, word) = (&self.peer.entry().seen, self.peer.word());
        if self.class.is_zero() {
            return seen.validated_len(word, now);
        }
        if seen.is_held_down(word, now) {
            0
        } else {
            self.validated_len_of_class::<F>(0, now)
        }
    }

    /// The same for this ECMP path, by `device`.
    #[inline(always)]
    pub(crate) fn validated_len_by<F: Family>(
        &mut self,
        path: &EcmpPath,
        device: u32,
        now: u64,
    ) -> u32 {
        let word = self.peer.word();
        if self.peer.entry().seen.is_held_down(word, now) {
            return 0;
        }
        if self.class.is_zero() {
            path.seen.validated_len(word, now)
        } else {
            self.validated_len_of_class::<F>(device, now)
        }
    }

    #[inline(always)]
    fn validated_len_of_class<F: Family>(&mut self, device: u32, now: u64) -> u32 {
        self.write_key::<F>(device);
        let Some(at) = PATHS.get_ptr(&*self.key) else {
            return 0;
        };
        // SAFETY: the look-up gave an element, whose memory stays mapped while the program runs.
        let seen = unsafe { &*at };
        let len = seen.validated_len(self.peer.word(), now);
        // SAFETY: a reference is valid for reads. Read last: the element may have been recycled
        // during the other reads.
        let check = unsafe { read_volatile(&raw const seen.check) };
        if check == self.key.check() { len } else { 0 }
    }

    #[inline(always)]
    fn write_key<F: Family>(&mut self, device: u32) {
        *self.key = PathKey {
            class: self.class,
            index: self.peer.index(),
            device,
            family: F::ETHERTYPE,
            reserved: [0; 2],
        };
    }

    /// Returns where to write the result of packets that leave by this device; none if no path of
    /// the peer uses it.
    #[inline(always)]
    pub(crate) fn by<F: Family>(&mut self, device: u32) -> Option<PathProbeSlot> {
        if !self.peer.has_ecmp_paths() {
            return if self.peer.entry().oif == device {
                self.at_all::<F>()
            } else {
                None
            };
        }
        let path = ecmp_path::<F>(self.peer, device)?;
        if !self.class.is_zero() {
            return self.place::<F>(device);
        }
        Some(PathProbeSlot {
            // SAFETY: the look-up gave an element of the map; even a replaced element is not reused
            // before the program ends (RCU), and what is written to it is lost.
            at: unsafe { &raw mut (*path).seen },
            word: self.peer.word(),
        })
    }

    /// The same for packets that leave by any device; none if the table is full.
    #[inline(always)]
    pub(crate) fn at_all<F: Family>(&mut self) -> Option<PathProbeSlot> {
        if self.class.is_zero() {
            return Some(PathProbeSlot {
                at: self.peer.seen(),
                word: self.peer.word(),
            });
        }
        self.place::<F>(0)
    }

    #[inline(always)]
    fn place<F: Family>(&mut self, device: u32) -> Option<PathProbeSlot> {
        self.write_key::<F>(device);
        let word = self.peer.word();
        if let Some(at) = PATHS.get_ptr_mut(&*self.key) {
            return Some(PathProbeSlot { at, word });
        }
        let nothing = PathProbe {
            check: self.key.check(),
            ..PathProbe::NOTHING
        };
        PATHS.insert(&*self.key, &nothing, 0).ok()?;
        PATHS
            .get_ptr_mut(&*self.key)
            .map(|at| PathProbeSlot { at, word })
    }

    /// Holds the path down for one interval: the kernel's packets differ from ours.
    #[inline(always)]
    pub(crate) fn hold_down<F: Family>(&mut self, device: u32, now: u64) {
        if let Some(seen) = self.by::<F>(device).or_else(|| self.at_all::<F>()) {
            seen.hold_down(now);
        }
    }
}

/// Holds the path to a peer down for one interval, for every class of packets.
#[inline(always)]
pub(crate) fn hold_down_peer(peer: &Peer, now: u64) {
    PathProbeSlot {
        at: peer.seen(),
        word: peer.word(),
    }
    .hold_down(now);
}

impl PathProbeSlot {
    #[inline(always)]
    fn hold_down(&self, now: u64) {
        self.write(PathProbe {
            word: self.word,
            until_ns: 0,
            hold_ns: now + PATH_PROBE_NS,
            ..self.read()
        });
    }

    /// Validates the path for one interval, for packets up to the largest seen in it.
    #[inline(always)]
    pub(crate) fn validate(&self, now: u64, len: u32) -> Result<Reason, Reason> {
        let seen = self.read();
        if seen.is_held_down(self.word, now) {
            return Err(Reason::PathHeld);
        }
        if !seen.is_validated(self.word, now) {
            self.write(PathProbe {
                word: self.word,
                until_ns: now + PATH_PROBE_NS,
                hold_ns: 0,
                max_len: len,
                ..seen
            });
        } else if len > seen.max_len {
            self.write(PathProbe {
                max_len: len,
                ..seen
            });
        }
        Ok(Reason::PathSeen)
    }

    #[inline(always)]
    const fn read(&self) -> PathProbe {
        // SAFETY: the place is part of an element of a map, which lives until the program ends.
        unsafe { *self.at }
    }

    #[inline(always)]
    fn write(&self, seen: PathProbe) {
        // SAFETY: as for the read.
        let at = unsafe { &mut *self.at };
        let PathProbe {
            word,
            until_ns,
            hold_ns,
            max_len,
            check: _,
        } = seen;
        write(&mut at.word, word);
        write(&mut at.hold_ns, hold_ns);
        write(&mut at.max_len, max_len);
        write(&mut at.until_ns, until_ns);
    }
}

/// Returns the peer's ECMP path by this device.
#[inline(always)]
pub(crate) fn ecmp_path<F: Family>(peer: &Peer, device: u32) -> Option<*mut EcmpPath> {
    ECMP_PATHS.get_ptr_mut(EcmpPathKey::new(F::ETHERTYPE, peer.index(), device))
}

/// Writes to a map in program order.
#[inline(always)]
fn write<T>(at: &mut T, value: T) {
    // SAFETY: a reference is valid for writes.
    unsafe { write_volatile(at, value) };
}
