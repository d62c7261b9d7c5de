//! The prologue of the hooks that work in mode `fast` alone.

use flannel_common::{mode::Mode, reason::Reason};

use crate::{
    node::{Node, mode_word},
    packet::skb::Skb,
};

/// The node's data, trusted for this packet, and the generation of flows in force.
pub(super) struct Context {
    pub(super) node: Node,
    pub(super) generation: u32,
}

impl Context {
    /// Reads the context of a packet. Fails in other modes, for a packet with a VLAN tag, and
    /// without an agent.
    #[inline(always)]
    pub(super) fn read(skb: &Skb) -> Result<Self, Reason> {
        let mode = mode_word();
        if mode.mode() != Mode::Fast {
            return Err(Reason::ModeKernel);
        }
        if skb.vlan_present() != 0 {
            return Err(Reason::VlanTagged);
        }
        Ok(Self { node: Node::read()?, generation: mode.generation() })
    }
}
