//! Orders and results of the trials of checksum offload.

use std::net::IpAddr;

use flannel_host::family::Family;

/// The round of trials that is due for each family; `None` while nothing is offloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffloadTrials {
    /// Of IPv4.
    pub v4: Option<u32>,
    /// Of IPv6.
    pub v6: Option<u32>,
}

impl OffloadTrials {
    /// The round of this family.
    pub const fn of(self, family: Family) -> Option<u32> {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }
}

/// A peer to which packets with offloaded checksums are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostOffloaded {
    /// The round of trials that showed it.
    pub round: u32,
    /// The public address of the peer.
    pub peer: IpAddr,
}
