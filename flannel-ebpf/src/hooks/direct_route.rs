//! Mode `fast` on the external interface without a tunnel: packets between our pods and those of
//! peers on our own link, which a direct route leads to.
//!
//! `from_underlay` and `to_underlay` call this for every packet that is not of the tunnel. It is
//! replayed or recorded only if the far end is in the subnet of a direct peer: traffic from outside
//! the cluster stays with the kernel.

use flannel_common::{
    fast::{Bucket, FastConfig},
    flow::Egress,
    mode::{Mode, ModeWord},
    packet::ETH_LEN,
    reason::Reason,
};

use super::context;
use crate::{
    flow::{
        learn::{self, EgressState},
        pending,
        replay::Replay,
        scratch::FlowMaps,
        table,
    },
    node::{self, Node, Peer, mode_word},
    packet::skb::{PACKET_HOST, Skb},
};

/// Ingress: puts packets of known flows into their pod, and records those of unknown ones. Not
/// inlined: the stack of one program (512 bytes) is too small.
#[inline(never)]
pub(super) fn from_peer<F: FlowMaps>(skb: &Skb, node: &Node) -> Reason {
    Reason::of(replay_or_record::<F>(skb, node))
}

#[inline(always)]
fn replay_or_record<F: FlowMaps>(skb: &Skb, node: &Node) -> Result<Reason, Reason> {
    let mode = fast_mode()?;
    let ip: &F = skb.view(ETH_LEN).ok_or(Reason::NotTunnel)?;
    let subnet = ip.source_subnet(node.family::<F>());
    let peer = Peer::direct::<F>(subnet, skb.ifindex()).ok_or(Reason::NotTunnel)?;
    if skb.pkt_type() != PACKET_HOST {
        return Err(Reason::NotPlain);
    }
    let scratch = context::enter::<F>(skb, node)?;
    let packet = &scratch.packet;
    let learns = node::fast()?.has(FastConfig::FROM_UNDERLAY);
    if packet.is_answer() {
        return if learns { pending::record_answer::<F>(skb, node, packet) } else { Err(Reason::TcpControl) };
    }
    if !learns {
        return Err(Reason::NotLearned);
    }
    let bucket = Bucket::of_peer(subnet.unwrap_or(0));
    let flow = &mut scratch.flow;
    let Some(usable) = table::load_and_count::<F>(&packet.key, mode.generation(), node, flow) else {
        pending::sample(&mut scratch.random)?;
        return pending::record_new::<F>(skb, node, packet, bucket);
    };
    let flow = &scratch.flow;
    match usable {
        Ok(()) => Replay { skb, node, frame: &scratch.frame, packet, flow }.deliver(&peer, &mut scratch.plain),
        Err(reason) => pending::record_again::<F>(skb, node, packet, flow, reason, bucket),
    }
}

/// Egress: learns from recorded packets. Not inlined for the same reason.
#[inline(never)]
pub(super) fn to_peer<F: FlowMaps>(skb: &Skb, node: &Node) -> Reason {
    Reason::of(learn::<F>(skb, node))
}

#[inline(always)]
fn learn<F: FlowMaps>(skb: &Skb, node: &Node) -> Result<Reason, Reason> {
    let mode = fast_mode()?;
    let pending = pending::take::<F>(skb, node);
    let ip: &F = skb.view(ETH_LEN).ok_or(Reason::NotTunnel)?;
    let subnet = ip.destination_subnet(node.family::<F>());
    if Peer::direct::<F>(subnet, skb.ifindex()).is_none() {
        return Err(Reason::NotTunnel);
    }
    let scratch = context::exit::<F>(skb, node, pending.is_ok())?;
    let packet = &scratch.packet;
    let pending = pending?;
    let state = EgressState {
        generation: mode.generation(),
        egress: Egress::DIRECT,
        mtu: skb.device_mtu(),
        mark: skb.mark(),
        priority: skb.priority(),
        hash: 0,
        flow_label: scratch.frame.ip().flow_label(),
        addresses: packet.addresses,
        takes_merged: true,
    };
    learn::learn::<F>(skb, node, pending, scratch, &state)
}

/// Returns the mode, if it is `fast`.
#[inline(always)]
fn fast_mode() -> Result<ModeWord, Reason> {
    let mode = mode_word();
    if mode.mode() == Mode::Fast { Ok(mode) } else { Err(Reason::NotTunnel) }
}
