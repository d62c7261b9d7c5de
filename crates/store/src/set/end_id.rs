//! By what an end of a tunnel is known.

use std::fmt;

use flannel_common::packet::addr::Mac;
use flannel_host::wireguard_key::PublicKey;

/// By what an end is known: two nodes cannot have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndId {
    /// The Ethernet address of a vxlan device.
    Mac(Mac),
    /// The public key of a WireGuard device.
    Key(PublicKey),
}

impl fmt::Display for EndId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac(mac) => write!(f, "VTEP MAC {mac}"),
            Self::Key(key) => write!(f, "public key {key}"),
        }
    }
}

impl EndId {
    /// The replacement for an end that another node has, in words.
    pub(super) const fn another(&self) -> &'static str {
        match self {
            Self::Mac(_) => "another address",
            Self::Key(_) => "another key (delete its key file and restart its agent)",
        }
    }
}
