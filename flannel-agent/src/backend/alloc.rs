//! The alloc backend: a subnet for this node, `subnet.env`, and nothing in the kernel. Another
//! system carries the packets.

use flannel_host::family::Family;
use flannel_store::Peer;

use super::{Backend, Desired, Node, PeerWay, ProgramSet, Way};
use crate::underlay::Underlay;

/// The backend.
#[derive(Clone, Copy, Debug)]
pub struct Alloc;

impl Backend for Alloc {
    fn mtu(&self, _family: Family, external_mtu: u32) -> u32 {
        external_mtu
    }

    fn way(&self, _node: &Node, _underlay: &Underlay, _peer: &Peer) -> Way {
        Way::NotOnLink
    }

    fn desired(&self, _node: &Node, _peers: &[PeerWay]) -> Desired {
        Desired::default()
    }

    fn carries_packets(&self) -> bool {
        false
    }

    fn has_work_for_programs(&self) -> bool {
        false
    }

    fn programs(&self) -> Result<ProgramSet, &'static str> {
        Err("the backend alloc carries no packets")
    }
}
