//! The peers.

use serde::{Deserialize, Serialize};

use crate::{IpsecPeerStatus, PeerEchoStatus, WireguardPeerStatus};

/// One peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PeerStatus {
    /// The name of its Node in Kubernetes; absent with etcd, whose leases have no names.
    #[serde(default)]
    pub node: Option<String>,
    /// Its subnet.
    pub subnet: String,
    /// Its public IP.
    pub public_ip: String,
    /// Its `VtepMAC`; `-` where the backend has none.
    pub vtep_mac: String,
    /// The path of packets to it: `direct` (a route, no tunnel), `tunnel` (the programs may
    /// encapsulate), `kernel` (the vxlan device in every mode), `wireguard` (the WireGuard device),
    /// `ipsec` (IPsec policies of the kernel), `ipip` (the ipip device), `udp` (datagrams of a
    /// process), `extension` (commands), `cloud` (the cloud's route tables), `none` (no path).
    #[cfg_attr(test, schemars(with = "crate::schema::WayName"))]
    pub way: String,
    /// The reason why the programs may not encapsulate or the path is missing; with several next
    /// hops, the note that the kernel chooses.
    pub reason: Option<String>,
    /// Its answers to echo requests; absent if it is not sent any.
    #[serde(default)]
    pub echo: Option<PeerEchoStatus>,
    /// Its WireGuard device as ours last saw it; absent with another backend.
    #[serde(default)]
    pub wireguard: Option<WireguardPeerStatus>,
    /// Its IPsec tunnel; absent with another backend.
    #[serde(default)]
    pub ipsec: Option<IpsecPeerStatus>,
}
