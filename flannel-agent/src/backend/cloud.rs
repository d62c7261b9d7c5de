//! The backends whose packets the cloud routes: nothing of them is in the kernel. The default route
//! leads packets into the cloud's network, and its route tables lead them to their node.

use flannel_host::family::Family;
use flannel_store::Peer;

use super::{Backend, Desired, Node, PeerWay, ProgramSet, Way};
use crate::underlay::Underlay;

/// The backend.
#[derive(Clone, Copy, Debug)]
pub struct CloudRouted;

impl Backend for CloudRouted {
    fn mtu(&self, _family: Family, external_mtu: u32) -> u32 {
        external_mtu
    }

    fn way(&self, _node: &Node, _underlay: &Underlay, _peer: &Peer) -> Way {
        Way::Cloud
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
        Err("the routes of the cloud carry the packets")
    }
}
