//! Orders and results of the trials of checksum offload.

use std::net::IpAddr;

use flannel_host::family::ByFamily;

/// The round of trials that is due for each family; `None` if checksums are not offloaded.
pub type OffloadTrials = ByFamily<Option<u32>>;

/// A peer to which packets with offloaded checksums are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostOffloaded {
    /// The round of trials that showed it.
    pub round: u32,
    /// The public address of the peer.
    pub peer: IpAddr,
}
