//! Observations of the kernel's own packets to a peer: their place, and how they are read and written.
//!
//! It is kept for each [`Class`] of packets. That of class zero is with the peer, or with its leg by the device in
//! question where its route has several next hops; the others are in `PATHS`. The time is written last: until it is
//! there, the path is not validated. Only programs write this, and two that race both saw the path.

use core::ptr::{read_volatile, write_volatile};

use flannel_common::{
    class::{Class, PathKey},
    leg::{LegEntry, LegKey},
    peer::{PATH_SEEN_NS, PathSeen, Word},
    reason::Reason,
};

use crate::{
    family::Family,
    maps::{LEGS, PATHS},
    node::Peer,
};

/// A place for what is seen.
pub(crate) struct Seen {
    at: *mut PathSeen,
    word: Word,
}

/// A class of packets to a peer, with room for the key of what was seen of them.
pub(crate) struct Path<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) class: Class,
    pub(crate) key: &'a mut PathKey,
}

#[expect(clippy::needless_borrows_for_generic_args, reason = "a key passed by value is copied to the stack")]
impl Path<'_> {
    /// The largest outer packet that may be made for such packets, where the peer has one next hop; 0 if none may.
    #[inline(always)]
    pub(crate) fn validated_len<F: Family>(&mut self, now: u64) -> u32 {
        let (seen, word) = (&self.peer.entry().seen, self.peer.word());
        if self.class.is_zero() {
            return seen.validated_len(word, now);
        }
        if seen.holds(word, now) { 0 } else { self.validated_len_of_class::<F>(0, now) }
    }

    /// The same by this leg, which is the one by `device`.
    #[inline(always)]
    pub(crate) fn validated_len_by<F: Family>(&mut self, leg: &LegEntry, device: u32, now: u64) -> u32 {
        let word = self.peer.word();
        if self.peer.entry().seen.holds(word, now) {
            return 0;
        }
        if self.class.is_zero() {
            leg.seen.validated_len(word, now)
        } else {
            self.validated_len_of_class::<F>(device, now)
        }
    }

    #[inline(always)]
    fn validated_len_of_class<F: Family>(&mut self, device: u32, now: u64) -> u32 {
        self.write_key::<F>(device);
        let Some(at) = PATHS.get_ptr(&*self.key) else { return 0 };
        // SAFETY: the look-up gave an element, whose memory stays mapped while the program runs.
        let seen = unsafe { &*at };
        let len = seen.validated_len(self.peer.word(), now);
        // SAFETY: a reference is valid for reads. Read last: the element may have been recycled meanwhile.
        let check = unsafe { read_volatile(&raw const seen.check) };
        if check == self.key.check() { len } else { 0 }
    }

    #[inline(always)]
    fn write_key<F: Family>(&mut self, device: u32) {
        *self.key =
            PathKey { class: self.class, index: self.peer.index(), device, family: F::ETHERTYPE, reserved: [0; 2] };
    }

    /// Where to write what is seen of such packets that leave by this device; none if that is none of the peer's.
    #[inline(always)]
    pub(crate) fn by<F: Family>(&mut self, device: u32) -> Option<Seen> {
        if !self.peer.has_legs() {
            return if self.peer.entry().oif == device { self.at_all::<F>() } else { None };
        }
        let leg = leg::<F>(self.peer, device)?;
        if !self.class.is_zero() {
            return self.place::<F>(device);
        }
        // SAFETY: the look-up gave an element of the map; one that is replaced meanwhile is not reused before the program ends
        // (RCU), and what is written to it is lost.
        Some(Seen { at: unsafe { &raw mut (*leg).seen }, word: self.peer.word() })
    }

    /// The same of packets that leave by any device; none where the table has no room.
    #[inline(always)]
    pub(crate) fn at_all<F: Family>(&mut self) -> Option<Seen> {
        if self.class.is_zero() {
            return Some(Seen { at: self.peer.seen(), word: self.peer.word() });
        }
        self.place::<F>(0)
    }

    #[inline(always)]
    fn place<F: Family>(&mut self, device: u32) -> Option<Seen> {
        self.write_key::<F>(device);
        let word = self.peer.word();
        if let Some(at) = PATHS.get_ptr_mut(&*self.key) {
            return Some(Seen { at, word });
        }
        let nothing = PathSeen { check: self.key.check(), ..PathSeen::NOTHING };
        PATHS.insert(&*self.key, &nothing, 0).ok()?;
        PATHS.get_ptr_mut(&*self.key).map(|at| Seen { at, word })
    }

    /// The path is not validated for one interval: packets such as this one differ from ours.
    #[inline(always)]
    pub(crate) fn hold<F: Family>(&mut self, device: u32, now: u64) {
        if let Some(seen) = self.by::<F>(device).or_else(|| self.at_all::<F>()) {
            seen.hold(now);
        }
    }
}

/// The path to a peer is not validated for one interval, whatever the class of the packets.
#[inline(always)]
pub(crate) fn hold_peer(peer: &Peer, now: u64) {
    Seen { at: peer.seen(), word: peer.word() }.hold(now);
}

impl Seen {
    #[inline(always)]
    fn hold(&self, now: u64) {
        self.write(PathSeen { word: self.word, until_ns: 0, hold_ns: now + PATH_SEEN_NS, ..self.read() });
    }

    /// Validates the path: for one interval, for packets up to the largest seen in it.
    #[inline(always)]
    pub(crate) fn validate(&self, now: u64, len: u32) -> Result<Reason, Reason> {
        let seen = self.read();
        if seen.holds(self.word, now) {
            return Err(Reason::PathHeld);
        }
        if !seen.vouches(self.word, now) {
            self.write(PathSeen { word: self.word, until_ns: now + PATH_SEEN_NS, hold_ns: 0, max_len: len, ..seen });
        } else if len > seen.max_len {
            self.write(PathSeen { max_len: len, ..seen });
        }
        Ok(Reason::PathSeen)
    }

    #[inline(always)]
    const fn read(&self) -> PathSeen {
        // SAFETY: the place is part of an element of a map, which lives until the program ends.
        unsafe { *self.at }
    }

    #[inline(always)]
    fn write(&self, seen: PathSeen) {
        // SAFETY: as for the read.
        let at = unsafe { &mut *self.at };
        let PathSeen { word, until_ns, hold_ns, max_len, check: _ } = seen;
        write(&mut at.word, word);
        write(&mut at.hold_ns, hold_ns);
        write(&mut at.max_len, max_len);
        write(&mut at.until_ns, until_ns);
    }
}

/// The peer's leg by this device.
#[inline(always)]
pub(crate) fn leg<F: Family>(peer: &Peer, device: u32) -> Option<*mut LegEntry> {
    LEGS.get_ptr_mut(LegKey::new(F::ETHERTYPE, peer.index(), device))
}

/// Writes to a map in program order.
#[inline(always)]
fn write<T>(at: &mut T, value: T) {
    // SAFETY: a reference is valid for writes.
    unsafe { write_volatile(at, value) };
}
