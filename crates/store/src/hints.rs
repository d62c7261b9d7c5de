//! The facts a store remembers of this node. Start-up reads them before it creates the device.

use std::net::{Ipv4Addr, Ipv6Addr};

use flannel_common::packet::addr::Mac;

use crate::NodeSettings;

/// The remembered facts. Each may be absent; etcd remembers none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Overrides `--public-ip`.
    pub public_ip: Option<Ipv4Addr>,
    /// Overrides `--public-ipv6`.
    pub public_ipv6: Option<Ipv6Addr>,
    /// The Ethernet address peers know for IPv4; a new device should have it.
    pub vtep_mac: Option<Mac>,
    /// The same for IPv6.
    pub vtep_mac_v6: Option<Mac>,
    /// Settings of this node that override its flags.
    pub settings: NodeSettings,
}
