//! The state of an entry that is not replaced atomically: of a peer in `PEERS` and `PEERS6`, and
//! of `CONFIG`.

#![expect(
    clippy::cast_possible_truncation,
    reason = "the flags are the low half of the word"
)]

/// Flags (low 32 bits) and generation (high 32 bits) of an entry.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryState(pub u64);

impl EntryState {
    /// The entry may be read.
    pub const VALID: u32 = 1 << 0;
    /// The outer path is plain, so the programs may encapsulate to this peer.
    pub const PLAIN: u32 = 1 << 1;
    /// The peer is on our own segment and reached by a route, without a tunnel.
    pub const DIRECT: u32 = 1 << 2;
    /// The route has several next hops. The kernel's FIB chooses one for each packet, and the
    /// peer's ECMP paths ([`crate::abi::ecmp`]) hold what was seen. The entry itself has no device
    /// and no next hop.
    pub const ECMP: u32 = 1 << 3;
    /// The peer's device has no fixed far end. The kernel sends a routed packet to the gateway of
    /// its route, and a redirected one to the address in its tunnel key.
    pub const KEYED: u32 = 1 << 4;

    /// A word from its flags and generation.
    pub const fn new(flags: u32, generation: u32) -> Self {
        Self(flags as u64 | (generation as u64) << 32)
    }

    /// Returns true if all of `flags` are set.
    #[inline(always)]
    pub const fn has(self, flags: u32) -> bool {
        self.0 as u32 & flags == flags
    }

    /// The flags.
    pub const fn flags(self) -> u32 {
        self.0 as u32
    }

    /// The generation; it grows with every rewrite.
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The same word without its valid bit.
    #[must_use]
    pub const fn invalid(self) -> Self {
        Self(self.0 & !(Self::VALID as u64))
    }
}
