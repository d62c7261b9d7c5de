//! The peers of WireGuard devices.

use serde::{Deserialize, Serialize};

/// A peer as the device last saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WireguardPeerStatus {
    /// Its public key.
    pub public_key: String,
    /// The peer's last address and port; before a handshake, those of its lease.
    pub endpoint: Option<String>,
    /// The time of the last handshake, in seconds since 1970 UTC; absent if there was none.
    pub last_handshake: Option<u64>,
    /// Bytes received from it, with all that the tunnel adds.
    pub received: u64,
    /// Bytes sent to it, likewise.
    pub sent: u64,
    /// Its state by the last handshake.
    pub state: PeerState,
}

/// The state of a peer by its last handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PeerState {
    /// A handshake within the last 180 s (`REJECT_AFTER_TIME` in [drivers/net/wireguard/messages.h,
    /// Linux 6.1](https://elixir.bootlin.com/linux/v6.1/source/drivers/net/wireguard/messages.h)):
    /// packets go both ways.
    Session,
    /// No handshake within the last 180 s, and no packet sent since then.
    Idle,
    /// No handshake within the last 180 s, although packets were sent: none of them is known to
    /// have arrived.
    Unanswered,
}

impl PeerState {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Session, Self::Idle, Self::Unanswered];

    /// Its name, in every output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Idle => "idle",
            Self::Unanswered => "unanswered",
        }
    }
}
