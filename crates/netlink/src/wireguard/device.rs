//! A WireGuard device and its peers.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::SystemTime,
};

use flannel_host::wireguard_key::{PublicKey, SecretKey};
use ipnet::IpNet;

/// The settings of one peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireguardPeer {
    /// Its address and port; `None` if they are not known.
    pub endpoint: Option<SocketAddr>,
    /// The prefixes that are behind it: where its packets may come from, and which go to it.
    pub allowed: BTreeSet<IpNet>,
    /// The secret shared with it in addition to the keys.
    pub preshared_key: Option<SecretKey>,
    /// Seconds between two packets that keep an idle tunnel open.
    pub keepalive: Option<u16>,
}

/// A peer, and what has come of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireguardPeerState {
    /// Its settings. The endpoint is the one it was last heard from.
    pub peer: WireguardPeer,
    /// When it last proved its key; `None` if it never did.
    pub last_handshake: Option<SystemTime>,
    /// Bytes received from it, with all that the tunnel adds.
    pub received: u64,
    /// Bytes sent to it, likewise.
    pub sent: u64,
}

/// A WireGuard device as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WireguardDevice {
    /// Its key; `None` if none is set.
    pub private_key: Option<SecretKey>,
    /// Its UDP port.
    pub port: u16,
    /// Its peers.
    pub peers: BTreeMap<PublicKey, WireguardPeerState>,
}
