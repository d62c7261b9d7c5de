//! A node to send to.

use std::{net::IpAddr, sync::Arc};

use ipnet::IpNet;

use super::{TunnelEnd, Vtep};

/// A node to send to: one family of one accepted lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// Its pods.
    pub subnet: IpNet,
    /// The address at which the node is reached, of the family of the subnet.
    pub public_ip: IpAddr,
    /// The node's end of the tunnel; `None` where the backend has no tunnels.
    pub end: Option<TunnelEnd>,
    /// The name of the store entry it comes from.
    pub key: Arc<str>,
}

impl Peer {
    /// The node's end of a VXLAN tunnel.
    pub fn vtep(&self) -> Option<Vtep> {
        self.end.as_ref().and_then(TunnelEnd::vtep)
    }

    /// Returns true if the node is reached through our tunnel.
    pub fn has_tunnel(&self) -> bool {
        self.end.as_ref().and_then(TunnelEnd::id).is_some()
    }

    /// The text that the node published for the commands of the backend extension.
    pub fn text(&self) -> Option<&str> {
        match &self.end {
            Some(TunnelEnd::Text(text)) => Some(text),
            _ => None,
        }
    }
}
