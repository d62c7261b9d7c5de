//! What was seen of the kernel's own packets to a peer: where that is kept, and how it is written.
//!
//! It is kept with the peer, or with its leg by the device in question where its route has several next hops. The time comes last:
//! until it is there, nothing vouches for the path. Only programs write this, and two that race both saw the path.

use core::ptr::write_volatile;

use flannel_common::{
    leg::{LegEntry, LegKey},
    peer::{PATH_SEEN_NS, PathSeen, Word},
    reason::Reason,
};

use crate::{family::Family, maps::LEGS, node::Peer};

/// A place for what is seen.
pub(crate) struct Seen {
    at: *mut PathSeen,
    word: Word,
}

impl Seen {
    /// Of packets to this peer that leave by this device; none if that is none of the peer's.
    #[inline(always)]
    pub(crate) fn by<F: Family>(peer: &Peer, device: u32) -> Option<Self> {
        if !peer.has_legs() {
            return if peer.entry().oif == device { Some(Self::at_all(peer)) } else { None };
        }
        let leg = leg::<F>(peer, device)?;
        // SAFETY: the look-up gave an element of the map; one that is replaced meanwhile is not reused before the program ends
        // (RCU), and what is written to it is lost.
        Some(Self { at: unsafe { &raw mut (*leg).seen }, word: peer.word() })
    }

    /// Of packets to this peer by any device.
    #[inline(always)]
    pub(crate) const fn at_all(peer: &Peer) -> Self {
        Self { at: peer.seen(), word: peer.word() }
    }

    /// Nothing vouches for the path for one interval.
    #[inline(always)]
    pub(crate) fn hold(&self, now: u64) {
        self.write(PathSeen { word: self.word, until_ns: 0, hold_ns: now + PATH_SEEN_NS, ..self.read() });
    }

    /// Vouches for the path: for one interval, for packets up to the largest seen in it.
    #[inline(always)]
    pub(crate) fn vouch(&self, now: u64, len: u32) -> Result<Reason, Reason> {
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
        let PathSeen { word, until_ns, hold_ns, max_len, reserved: _ } = seen;
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
