//! The promise of a backend. Pure: nothing here reads or writes the kernel.

use std::fmt;

use flannel_common::abi::node;
use flannel_host::family::Family;
use flannel_iface::End;
use flannel_store::{Peer, RawJson};

use crate::{
    Desired, Node, OwnEnd, PeerWay, ProgramSet, TunnelDevice, TunnelUnderlay, Way,
    error::{BackendError, IPV6_MIN_MTU},
    underlay::Underlay,
};

/// A way of carrying packets between nodes. Every method speaks of one address family.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Returns the MTU of pods, in bytes, for an external interface with an MTU of `external_mtu`
    /// bytes.
    fn mtu(&self, family: Family, external_mtu: u32) -> u32;

    /// Checks that the backend can serve from this end of the external interface.
    fn accept(&self, _end: &End) -> Result<(), BackendError> {
        Ok(())
    }

    /// The UDP port of its tunnel, if it has one.
    fn port(&self) -> Option<u16> {
        None
    }

    /// The device of its tunnel, if it has one.
    fn device(&self, _lower: &TunnelUnderlay) -> Option<Box<dyn TunnelDevice>> {
        None
    }

    /// Returns the data that a node with this end of the tunnel publishes in its lease in addition
    /// to its address of this family, if any.
    fn published(&self, _family: Family, _end: Option<OwnEnd>) -> Option<RawJson> {
        None
    }

    /// The way to a peer.
    fn way(&self, node: &Node, underlay: &Underlay, peer: &Peer) -> Way;

    /// Everything the node and its peers need, each peer by its way.
    fn desired(&self, node: &Node, peers: &[PeerWay]) -> Desired;

    /// Returns the node's configuration for the programs; `None` where they have nothing to do.
    fn node_config(&self, _node: &Node) -> Option<node::FamilyConfig> {
        None
    }

    /// Returns true if its routes carry the packets between pods of different nodes, and no other
    /// routes do.
    fn carries_packets(&self) -> bool {
        true
    }

    /// Returns true if one of its routes is for the whole pod network, so that no packet for it
    /// leaves by the default route.
    fn routes_whole_network(&self) -> bool {
        false
    }

    /// Returns true if its nodes know each other by keys.
    fn has_keys(&self) -> bool {
        false
    }

    /// Returns true if IPsec policies of the kernel encrypt the packets to peers.
    fn encrypts_by_policies(&self) -> bool {
        false
    }

    /// Returns true if this kind of backend has work for programs. Settings may still prevent it:
    /// then [`Self::programs`] has the reason.
    fn has_work_for_programs(&self) -> bool {
        true
    }

    /// Returns the traffic that the programs serve, or the reason there is none.
    fn programs(&self) -> Result<ProgramSet, &'static str>;
}

/// Returns the MTU of pods of this family, in bytes; an error if IPv6 pods would get less than IPv6
/// needs.
pub fn usable_mtu(
    backend: &dyn Backend,
    family: Family,
    external: u32,
) -> Result<u32, BackendError> {
    let left = backend.mtu(family, external);
    if family == Family::V6 && left < IPV6_MIN_MTU {
        Err(BackendError::TooSmallForIpv6 { external, left })
    } else {
        Ok(left)
    }
}
