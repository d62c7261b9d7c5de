//! A peer as its map has it.

use flannel_common::{
    abi::{entry_state::EntryState, mode::Mode, peer::PeerEntry},
    packet::addr::Mac,
};
use ipnet::IpNet;

/// A peer as its map has it.
#[derive(Clone, Copy, Debug)]
pub struct PinnedPeer {
    /// Number of its subnet.
    pub index: u32,
    /// Its subnet.
    pub subnet: IpNet,
    /// Its entry.
    pub entry: PeerEntry,
}

impl PinnedPeer {
    /// The Ethernet address of its tunnel device, as text: `-` without a tunnel.
    pub fn vtep_mac(&self) -> String {
        if self.entry.mac == Mac::default() {
            "-".to_owned()
        } else {
            self.entry.mac.to_string()
        }
    }

    /// Returns true if the programs count its packets in this mode. Without mode `fast` no program
    /// is where packets of a direct peer pass.
    pub fn is_counted(&self, mode: Mode) -> bool {
        mode == Mode::Fast || !self.entry.word.has(EntryState::DIRECT)
    }

    /// The path to it: `direct`, `tunnel` where programs may encapsulate, or `kernel`.
    pub const fn way(&self) -> &'static str {
        match self.entry.word {
            word if word.has(EntryState::DIRECT) => "direct",
            word if word.has(EntryState::PLAIN) => "tunnel",
            _ => "kernel",
        }
    }
}
