//! The backends of which nothing is in the kernel: something else carries the packets of pods, and
//! the external interface leads there.

use flannel_host::family::Family;
use flannel_store::{Peer, RawJson};

use super::{Backend, Desired, Node, OwnEnd, PeerWay, ProgramSet, Way};
use crate::underlay::Underlay;

/// Such a backend.
#[derive(Clone, Debug)]
pub struct Unmanaged {
    /// The way to every peer.
    way: Way,
    /// The data in the lease, as a JSON text.
    published: Option<RawJson>,
    /// The reason why the programs have nothing to do.
    no_programs: &'static str,
}

impl Unmanaged {
    /// The backend alloc: a subnet for this node, and `subnet.env`.
    pub const fn alloc() -> Self {
        Self { way: Way::NotOnLink, published: None, no_programs: "the backend alloc carries no packets" }
    }

    /// The backend extension: commands of the operator carry the packets. `published` is the output
    /// of `PreStartupCommand`; `None` where there is no such command.
    pub const fn extension(published: Option<RawJson>) -> Self {
        let no_programs = "the commands of the backend extension carry the packets";
        Self { way: Way::Extension, published, no_programs }
    }

    /// The routes of a cloud: the default route leads packets into the cloud's network, and its
    /// route tables lead them to their node.
    pub const fn cloud() -> Self {
        Self { way: Way::Cloud, published: None, no_programs: "the routes of the cloud carry the packets" }
    }
}

impl Backend for Unmanaged {
    fn mtu(&self, _family: Family, external_mtu: u32) -> u32 {
        external_mtu
    }

    fn published(&self, _family: Family, _end: Option<OwnEnd>) -> Option<RawJson> {
        self.published.clone()
    }

    fn way(&self, _node: &Node, _underlay: &Underlay, _peer: &Peer) -> Way {
        self.way.clone()
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
        Err(self.no_programs)
    }
}
