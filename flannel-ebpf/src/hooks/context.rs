//! The prologues that hooks of mode `fast` share.

use flannel_common::abi::{fast::PodEntry, mode::Mode, reason::Reason};

use crate::{
    flow::{
        learn,
        scratch::{self, FlowMaps, Scratch},
        table,
    },
    maps::PODS,
    node::{Node, mode_word},
    packet::skb::Skb,
};

/// The node's data, trusted for this packet, and the current generation of flows.
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
        Ok(Self {
            node: Node::read()?,
            generation: mode.generation(),
        })
    }
}

/// Parses a packet at an entry hook of a device with a link header of `LINK` bytes. Fails for a
/// control packet of TCP, which ends its flow, unless that is a SYN-ACK; and without a recent
/// heartbeat of the agent.
#[inline(always)]
pub(super) fn enter<F: FlowMaps, const LINK: usize>(
    skb: &Skb,
    node: &Node,
) -> Result<&'static mut Scratch<F>, Reason> {
    let scratch = scratch::get::<F>()?;
    scratch.parse::<LINK>(skb)?;
    let ended = table::end_if_control::<F>(scratch, node);
    if !scratch.packet.is_answer() {
        ended?;
        table::allows_replay::<F>(&scratch.packet, node)?;
    } else if node.allows_replay().is_err() {
        return Err(Reason::TcpControl);
    }
    Ok(scratch)
}

/// Parses a packet at an exit hook of a device with a link header of `LINK` bytes. Fails for a
/// control packet of TCP, which ends the reverse flow, unless that is a recorded SYN-ACK. A reply
/// by UDP that is not recorded has its flow expected.
#[inline(always)]
pub(super) fn exit<F: FlowMaps, const LINK: usize>(
    skb: &Skb,
    node: &Node,
    is_recorded: bool,
) -> Result<&'static mut Scratch<F>, Reason> {
    let scratch = scratch::get::<F>()?;
    scratch.parse::<LINK>(skb)?;
    scratch::forget(scratch);
    learn::close_if_control::<F>(scratch, is_recorded, node)?;
    scratch::forget(scratch);
    if !is_recorded && scratch.packet.is_udp() {
        learn::expect_after_reply::<F>(skb, node, scratch);
    }
    Ok(scratch)
}

/// Checks that packets of the pod at this device may be recorded.
#[inline(always)]
pub(super) fn can_learn(ifindex: u32) -> Result<(), Reason> {
    // SAFETY: the value is read at once; even a freed element is not reused before the program ends
    // (RCU).
    match unsafe { PODS.get(ifindex) } {
        Some(pod) if pod.has(PodEntry::SENDS) => Ok(()),
        _ => Err(Reason::NotLearned),
    }
}
