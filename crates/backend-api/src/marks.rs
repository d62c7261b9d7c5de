//! By what the objects of backends are known, whichever of them this node has.

use flannel_netlink::{Link, TunnelPolicy, TunnelPolicyKey};
use ipnet::IpNet;

/// By what the objects of all backends are known: a node may have had another backend before.
#[derive(Clone, Copy, Debug)]
pub struct Marks {
    /// Returns true for a tunnel device that some backend makes.
    pub is_tunnel: fn(&Link) -> bool,
    /// Returns true for an IPsec policy that some backend makes in this pod network.
    pub is_policy: fn(&TunnelPolicyKey, &TunnelPolicy, IpNet) -> bool,
}
