//! The pod network, as this node was configured.

use serde::{Deserialize, Serialize};

/// The pod network, as this node was configured: nodes that differ lose packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NetworkStatus {
    /// The pod network of each address family.
    pub networks: Vec<String>,
    /// The backend, as its type is written in the network configuration.
    pub backend: String,
    /// The VXLAN network identifier; absent with another backend.
    pub vni: Option<u32>,
    /// The UDP port of the vxlan devices, which all nodes share; absent with another backend.
    pub port: Option<u16>,
    /// The MTU of pods in bytes, as in `subnet.env`; absent until it is known.
    pub mtu: Option<u32>,
}
