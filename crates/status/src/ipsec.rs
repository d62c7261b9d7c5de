//! The process that agrees on keys, and the tunnels of the backend ipsec.

use serde::{Deserialize, Serialize};

/// The process that agrees on keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IpsecStatus {
    /// Its process id; absent while there is none.
    pub pid: Option<u32>,
    /// The number of times that this agent started one. Zero if it found one and kept it.
    pub starts: u64,
    /// True if encrypted packets travel in UDP datagrams.
    pub udp_encap: bool,
    /// The reason why the process does not run, or why it cannot be asked.
    pub error: Option<String>,
    /// The reason why the kernel has no associations: it lacks ESP.
    pub kernel: Option<String>,
}

/// The tunnel to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IpsecPeerStatus {
    /// Its state.
    pub state: IpsecPeerState,
    /// Since when the nodes know each other (the IKE_SA is established), in seconds since 1970 UTC;
    /// absent if they do not.
    pub since: Option<u64>,
    /// Bytes of pods received by the present associations.
    pub received: u64,
    /// Bytes sent by them.
    pub sent: u64,
    /// The reason why the kernel has no associations, if this node knows it.
    pub error: Option<String>,
}

/// The state of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum IpsecPeerState {
    /// The kernel has the associations (the CHILD_SA is installed): packets go both ways.
    Installed,
    /// The nodes know each other, and have no associations: the kernel drops the packets.
    Established,
    /// The peer has not answered yet.
    Connecting,
    /// Nothing, and no attempt is under way.
    #[default]
    Missing,
}

impl IpsecPeerState {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Installed,
        Self::Established,
        Self::Connecting,
        Self::Missing,
    ];

    /// Its name, in every output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Installed => "installed",
            Self::Established => "established",
            Self::Connecting => "connecting",
            Self::Missing => "missing",
        }
    }

    /// Returns true if the kernel has no associations, and charon itself tries no further.
    pub const fn needs_attempt(self) -> bool {
        matches!(self, Self::Established | Self::Missing)
    }
}
