//! Mode `fast` where routes lead to the far end: packets between our pods and those of direct
//! peers, and, where [`FastConfig::OUTSIDE`] says so, hosts outside the cluster's pod networks.
//!
//! `from_underlay` and `to_underlay` call this for every packet that is not of the tunnel, the
//! programs of [`super::l3_tunnel`] for every packet of their device. Most of these packets are the
//! host's own and must cost little. So flows with outside hosts are sampled only at the pod: what a
//! pod sends there is recorded on its veth, and when it is learned, or a reply is seen, the reverse
//! flow is expected. From outside only SYN-ACKs and packets of known or expected flows are
//! recorded.

use flannel_common::{
    abi::{
        fast::{Bucket, FastConfig},
        mode::{Mode, ModeWord},
        reason::Reason,
    },
    flow::Egress,
    packet::ETH_LEN,
};

use super::context;
use crate::{
    flow::{
        close_guard,
        learn::{self, EgressState},
        pending,
        replay::Replay,
        scratch::FlowMaps,
        table, transport_checksum,
    },
    node::{self, Node, Peer, mode_word},
    packet::skb::{PACKET_HOST, Skb},
    traffic,
};

/// Ingress: puts packets of known flows into their pod, and records those of unknown ones.
#[inline(always)]
pub(super) fn from_peer<F: FlowMaps>(skb: &Skb, node: &Node) -> Reason {
    match from_direct_peer::<F>(skb, node) {
        Reason::NotTunnel => match from_outside::<F>(skb, node) {
            Reason::TcpControl if !matches!(close_guard::judge::<F>(node), Reason::ForgedClose) => {
                Reason::NotTunnel
            }
            Reason::TcpControl => Reason::ForgedClose,
            done => done,
        },
        Reason::TcpControl => close_guard::judge::<F>(node),
        done => done,
    }
}

/// Not inlined: the stack of one program (512 bytes) is too small.
#[inline(never)]
fn from_direct_peer<F: FlowMaps>(skb: &Skb, node: &Node) -> Reason {
    Reason::of(
        fast_mode().and_then(|mode| replay_or_record::<F, ETH_LEN>(skb, node, mode.generation())),
    )
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
    let len = frame_len::<LINK>(skb);
    traffic::count_received::<F>(peer.traffic(), len);
    let scratch = context::enter::<F, LINK>(skb, node)?;
    let packet = &scratch.packet;
    let learns = node::fast()?.has(FastConfig::FROM_UNDERLAY);
    if packet.is_answer() {
        return if learns {
            pending::record_answer::<F>(skb, node, packet)
        } else {
            Err(Reason::TcpControl)
        };
    }
    if !learns {
        return Err(Reason::NotLearned);
    }
    let bucket = Bucket::of_peer(subnet.unwrap_or(0));
    let flow = &mut scratch.flow;
    let Some(usable) = table::load_and_count::<F>(packet, len, generation, node, flow) else {
        pending::sample(&mut scratch.random)?;
        return pending::record_new::<F>(skb, node, packet, bucket);
    };
    let flow = &scratch.flow;
    match usable {
        Ok(()) => Replay {
            skb,
            node,
            frame: &scratch.frame,
            packet,
            flow,
        }
        .deliver::<LINK>(Some(&peer), &mut scratch.plain),
        Err(reason) => pending::record_again::<F>(skb, node, packet, flow, reason, bucket),
    }
}

/// The same for packets of hosts outside; most are for the host. Not inlined: the stack of one
/// program (512 bytes) is too small.
#[inline(never)]
fn from_outside<F: FlowMaps>(skb: &Skb, node: &Node) -> Reason {
    Reason::of(
        fast_mode().and_then(|mode| replay_or_record_outside::<F>(skb, node, mode.generation())),
    )
}

#[inline(always)]
fn replay_or_record_outside<F: FlowMaps>(
    skb: &Skb,
    node: &Node,
    generation: u32,
) -> Result<Reason, Reason> {
    let learns = node::fast()?.has(FastConfig::OUTSIDE | FastConfig::FROM_UNDERLAY);
    if !learns || skb.pkt_type() != PACKET_HOST {
        return Err(Reason::NotTunnel);
    }
    let ip: &F = skb.view(ETH_LEN).ok_or(Reason::NotTunnel)?;
    if ip.source_subnet(node.family::<F>()).is_some() {
        return Err(Reason::NotTunnel);
    }
    let scratch = match context::enter::<F, ETH_LEN>(skb, node) {
        Ok(scratch) => scratch,
        Err(reason @ Reason::TcpControl) => return Err(reason),
        Err(_) => return Err(Reason::NotTunnel),
    };
    let packet = &scratch.packet;
    if packet.is_answer() {
        return pending::record_answer::<F>(skb, node, packet);
    }
    let usable = table::load_and_count::<F>(packet, skb.len(), generation, node, &mut scratch.flow);
    let flow = &scratch.flow;
    match usable.ok_or(Reason::NotTunnel)? {
        Ok(()) => {
            transport_checksum::check::<F>(skb, packet)?;
            Replay {
                skb,
                node,
                frame: &scratch.frame,
                packet,
                flow,
            }
            .deliver::<ETH_LEN>(None, &mut scratch.plain)
        }
        Err(reason) => {
            pending::record_again::<F>(skb, node, packet, flow, reason, Bucket::OF_OUTSIDE)
        }
    }
}

/// Egress: learns from recorded packets. Not inlined for the same reason.
#[inline(never)]
pub(super) fn to_peer<F: FlowMaps>(skb: &Skb, node: &Node) -> Reason {
    Reason::of(fast_mode().and_then(|mode| learn::<F, ETH_LEN>(skb, node, mode.generation())))
}

/// The same on a device with a link header of `LINK` bytes.
#[inline(always)]
pub(super) fn learn<F: FlowMaps, const LINK: usize>(
    skb: &Skb,
    node: &Node,
    generation: u32,
) -> Result<Reason, Reason> {
    let pending = pending::take::<F>(skb, node);
    let ip: &F = skb.view(LINK).ok_or(const { of_others(LINK) })?;
    let subnet = ip.destination_subnet(node.family::<F>());
    let peer = Peer::direct::<F>(subnet, skb.ifindex());
    if let Some(peer) = &peer {
        traffic::count_sent::<F>(peer.traffic(), frame_len::<LINK>(skb));
    }
    let is_direct = peer.is_some();
    let is_outside = !is_direct && LINK == ETH_LEN && subnet.is_none() && is_forwarded_outside(skb);
    if !is_direct && !is_outside {
        return Err(const { of_others(LINK) });
    }
    let scratch = context::exit::<F, LINK>(skb, node, pending.is_ok())?;
    let packet = &scratch.packet;
    let pending = pending?;
    if is_outside {
        context::can_learn(pending.key.device)?;
    }
    let state = EgressState {
        generation,
        egress: if is_outside {
            Egress::OUTSIDE
        } else {
            Egress::DIRECT
        },
        mtu: skb.device_mtu(),
        mark: skb.mark(),
        priority: skb.priority(),
        egress_data: if is_outside { skb.ingress_ifindex() } else { 0 },
        flow_label: scratch.frame.ip().flow_label(),
        addresses: packet.addresses,
        takes_merged: true,
    };
    learn::learn::<F>(skb, node, pending, scratch, &state)
}

/// Returns the length of the packet with an Ethernet header, in bytes.
#[inline(always)]
fn frame_len<const LINK: usize>(skb: &Skb) -> u32 {
    skb.len() + (ETH_LEN - LINK) as u32
}

/// Returns true if flows with the outside are learned, and the packet is not the host's own.
#[inline(always)]
fn is_forwarded_outside(skb: &Skb) -> bool {
    skb.ingress_ifindex() != 0 && node::fast().is_ok_and(|fast| fast.has(FastConfig::OUTSIDE))
}

/// Returns the reason of a packet whose far end is not a direct peer.
const fn of_others(link: usize) -> Reason {
    if link == ETH_LEN {
        Reason::NotTunnel
    } else {
        Reason::NoPeer
    }
}

/// Returns the mode, if it is `fast`.
#[inline(always)]
fn fast_mode() -> Result<ModeWord, Reason> {
    let mode = mode_word();
    if mode.mode() == Mode::Fast {
        Ok(mode)
    } else {
        Err(Reason::NotTunnel)
    }
}
