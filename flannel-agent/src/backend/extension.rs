//! The extension backend: commands of the operator carry the packets of pods. Nothing of it is in
//! the kernel but for what they make.

use flannel_host::family::Family;
use flannel_store::{Peer, RawJson};

use super::{Backend, Desired, Node, OwnEnd, PeerWay, ProgramSet, Way};
use crate::underlay::Underlay;

/// The backend.
#[derive(Clone, Debug, Default)]
pub struct Extension {
    /// The output of `PreStartupCommand`, as a JSON text; `None` where there is no such command.
    pub published: Option<RawJson>,
}

impl Backend for Extension {
    fn mtu(&self, _family: Family, external_mtu: u32) -> u32 {
        external_mtu
    }

    fn published(&self, _family: Family, _end: Option<OwnEnd>) -> Option<RawJson> {
        self.published.clone()
    }

    fn way(&self, _node: &Node, _underlay: &Underlay, _peer: &Peer) -> Way {
        Way::Extension
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
        Err("the commands of the backend extension carry the packets")
    }
}
