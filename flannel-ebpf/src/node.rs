//! State of the node that every program reads first: may the maps be trusted, and which mode is in
//! force.

use aya_ebpf::helpers::generated::bpf_ktime_get_coarse_ns;
use core::{arch::asm, ptr::read_volatile};
use flannel_common::{
    abi::{
        entry_state::EntryState,
        fast::FastConfig,
        maps::ONLY,
        mode::ModeWord,
        node::{FamilyConfig, NodeConfig, heartbeat_allows_replay, heartbeat_is_fresh},
        peer::{PathProbe, PeerEntry},
        reason::Reason,
        tick::{Tick, tick},
    },
    packet::{addr::same_addr, outer::OuterHeaders},
};

use crate::{
    maps::{CONFIG, FAST, MODE},
    packet::family::Family,
};

/// The node's data, trusted at `now`.
pub(crate) struct Node {
    config: &'static NodeConfig,
    word: EntryState,
    /// `CLOCK_MONOTONIC_COARSE`, nanoseconds.
    pub(crate) now: u64,
}

impl Node {
    /// Reads the node's data. Fails without a recent heartbeat of the agent.
    #[inline(always)]
    pub(crate) fn read() -> Result<Self, Reason> {
        let config = CONFIG.get(ONLY).ok_or(Reason::NotConfigured)?;
        let word = current(&config.word);
        if !word.has(EntryState::VALID) {
            return Err(Reason::NotConfigured);
        }
        // SAFETY: the helper takes nothing and returns a number. Kernel 5.11.
        let now = unsafe { bpf_ktime_get_coarse_ns() };
        if heartbeat_is_fresh(now, config.heartbeat_ns) {
            Ok(Self { config, word, now })
        } else {
            Err(Reason::AgentGone)
        }
    }

    /// One family of the node.
    #[inline(always)]
    pub(crate) fn family<F: Family>(&self) -> &'static FamilyConfig {
        F::config(self.config)
    }

    /// The time, in ticks.
    #[inline(always)]
    pub(crate) const fn tick(&self) -> Tick {
        tick(self.now)
    }

    /// The agent was there recently enough for flows to be replayed.
    #[inline(always)]
    pub(crate) const fn allows_replay(&self) -> Result<(), Reason> {
        if heartbeat_allows_replay(self.now, self.config.heartbeat_ns) {
            Ok(())
        } else {
            Err(Reason::AgentLate)
        }
    }

    /// Up to when the agent has confirmed what was learned.
    #[inline(always)]
    pub(crate) const fn confirmed(&self) -> Tick {
        self.config.confirmed
    }

    /// Returns true if the data read so far is consistent. Called after the last read and before
    /// the first change to a packet.
    #[inline(always)]
    pub(crate) fn unchanged(&self) -> bool {
        current(&self.config.word).0 == self.word.0
    }
}

/// The settings of mode `fast`.
#[inline(always)]
pub(crate) fn fast() -> Result<&'static FastConfig, Reason> {
    FAST.get(ONLY).ok_or(Reason::NotConfigured)
}

/// Returns the active mode, with its generation.
#[inline(always)]
pub(crate) fn mode_word() -> ModeWord {
    MODE.get(ONLY).map_or_else(ModeWord::default, |word| *word)
}

/// A valid peer entry and the word under which it was found.
pub(crate) struct Peer {
    at: *mut PeerEntry,
    index: u32,
    word: EntryState,
}

impl Peer {
    /// The peer with this subnet number of the family's network.
    #[inline(always)]
    pub(crate) fn find<F: Family>(index: Option<u32>) -> Result<Self, Reason> {
        let index = index.ok_or(Reason::NoPeer)?;
        let at = F::peers().get_ptr_mut(index).ok_or(Reason::NoPeer)?;
        // SAFETY: the look-up gave an element of the array, which lives as long as the map.
        let word = current(unsafe { &(*at).word });
        if word.has(EntryState::VALID) {
            Ok(Self { at, index, word })
        } else {
            Err(Reason::NoPeer)
        }
    }

    /// The peer whose subnet has the inner source, if it sent the packet.
    #[inline(always)]
    pub(crate) fn of_sender<F: Family>(
        inner: &F,
        outer: &OuterHeaders<F>,
        family: &FamilyConfig,
    ) -> Result<Self, Reason> {
        match Self::find::<F>(inner.source_subnet(family)) {
            Ok(peer) if same_addr(peer.entry().vtep, outer.source()) => Ok(peer),
            // Perhaps no peer's at all: the source filter checks that.
            _ => Err(Reason::InnerOtherSource),
        }
    }

    /// The peer with this subnet number, if packets to and from it take a plain route by this
    /// device.
    #[inline(always)]
    pub(crate) fn direct<F: Family>(index: Option<u32>, device: u32) -> Option<Self> {
        let peer = Self::find::<F>(index).ok()?;
        if peer.word.has(EntryState::DIRECT) && peer.entry().oif == device {
            Some(peer)
        } else {
            None
        }
    }

    /// Number of its subnet.
    #[inline(always)]
    pub(crate) const fn index(&self) -> u32 {
        self.index
    }

    /// Slot of its counters.
    #[inline(always)]
    pub(crate) fn traffic(&self) -> u32 {
        self.entry().traffic.into()
    }

    /// Returns true if its route has several next hops, so that it has ECMP paths instead of one
    /// device and next hop.
    #[inline(always)]
    pub(crate) const fn has_ecmp_paths(&self) -> bool {
        self.word.has(EntryState::ECMP)
    }

    /// The word under which the entry was found.
    #[inline(always)]
    pub(crate) const fn word(&self) -> EntryState {
        self.word
    }

    /// The entry's body. Meaningful only if [`Self::unchanged`] says so after the last read.
    #[inline(always)]
    pub(crate) const fn entry(&self) -> &PeerEntry {
        // SAFETY: as in `find`. The agent may write at the same time; fields are plain numbers and
        // the word is compared afterwards.
        unsafe { &*self.at }
    }

    /// Returns the place of the entry's path validation.
    #[inline(always)]
    pub(crate) const fn seen(&self) -> *mut PathProbe {
        // SAFETY: as in `find`.
        unsafe { &raw mut (*self.at).seen }
    }

    /// Returns true if the entry was not rewritten since it was found.
    #[inline(always)]
    pub(crate) fn unchanged(&self) -> bool {
        current(&self.entry().word).0 == self.word.0
    }
}

/// Reads an entry state again from the map: volatile, or the compiler would compare one read with
/// itself; and no access before it may be moved behind it.
#[inline(always)]
fn current(word: &EntryState) -> EntryState {
    // SAFETY: no instruction at all.
    unsafe { asm!("", options(nostack, preserves_flags)) };
    // SAFETY: a reference is valid for reads.
    unsafe { read_volatile(word) }
}
