//! Mode `fast` where routes lead to peers: packets between our pods and those of direct peers.
//!
//! `from_underlay` and `to_underlay` call this for every packet that is not of the tunnel, the
//! programs of [`super::l3_tunnel`] for every packet of their device. It is replayed or recorded
//! only if the far end is in the subnet of a direct peer: traffic from outside the cluster stays
//! with the kernel.

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
    Reason::of(fast_mode().and_then(|mode| replay_or_record::<F, ETH_LEN>(skb, node, mode.generation())))
}

/// The same on a device with a link header of `LINK` bytes: Ethernet or none.
#[inline(always)]
pub(super) fn replay_or_record<F: FlowMaps, const LINK: usize>(
    skb: &Skb,
    node: &Node,
    generation: u32,
) -> Result<Reason, Reason> {
    let ip: &F = skb.view(LINK).ok_or(const { of_others(LINK) })?;
    let subnet = ip.source_subnet(node.family::<F>());
    let peer = Peer::direct::<F>(subnet, skb.ifindex()).ok_or(const { of_others(LINK) })?;
    if LINK == ETH_LEN && skb.pkt_type() != PACKET_HOST {
        return Err(Reason::NotPlain);
    }
    let scratch = context::enter::<F, LINK>(skb, node)?;
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
    let Some(usable) = table::load_and_count::<F>(&packet.key, generation, node, flow) else {
        pending::sample(&mut scratch.random)?;
        return pending::record_new::<F>(skb, node, packet, bucket);
    };
    let flow = &scratch.flow;
    match usable {
        Ok(()) => Replay { skb, node, frame: &scratch.frame, packet, flow }.deliver::<LINK>(&peer, &mut scratch.plain),
        Err(reason) => pending::record_again::<F>(skb, node, packet, flow, reason, bucket),
    }
}

/// Egress: learns from recorded packets. Not inlined for the same reason.
#[inline(never)]
pub(super) fn to_peer<F: FlowMaps>(skb: &Skb, node: &Node) -> Reason {
    Reason::of(fast_mode().and_then(|mode| learn::<F, ETH_LEN>(skb, node, mode.generation())))
}

/// The same on a device with a link header of `LINK` bytes.
#[inline(always)]
pub(super) fn learn<F: FlowMaps, const LINK: usize>(skb: &Skb, node: &Node, generation: u32) -> Result<Reason, Reason> {
    let pending = pending::take::<F>(skb, node);
    let ip: &F = skb.view(LINK).ok_or(const { of_others(LINK) })?;
    let subnet = ip.destination_subnet(node.family::<F>());
    if Peer::direct::<F>(subnet, skb.ifindex()).is_none() {
        return Err(const { of_others(LINK) });
    }
    let scratch = context::exit::<F, LINK>(skb, node, pending.is_ok())?;
    let packet = &scratch.packet;
    let pending = pending?;
    let state = EgressState {
        generation,
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

/// The reason of a packet whose far end is no direct peer's.
const fn of_others(link: usize) -> Reason {
    if link == ETH_LEN { Reason::NotTunnel } else { Reason::NoPeer }
}

/// Returns the mode, if it is `fast`.
#[inline(always)]
fn fast_mode() -> Result<ModeWord, Reason> {
    let mode = mode_word();
    if mode.mode() == Mode::Fast { Ok(mode) } else { Err(Reason::NotTunnel) }
}
