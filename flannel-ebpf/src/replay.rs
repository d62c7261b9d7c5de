//! Replaying: a packet of a known flow is treated as the kernel was seen to treat the one it was learned from.
//!
//! All gates come before the first change to the packet. Peer data is looked up for every packet and never kept in a flow.

use aya_ebpf::{
    bindings::{BPF_F_ADJ_ROOM_FIXED_GSO, BPF_F_ADJ_ROOM_NO_CSUM_RESET, bpf_adj_room_mode::BPF_ADJ_ROOM_MAC},
    helpers::generated::bpf_get_prandom_u32,
};
use flannel_common::{
    checksum::address_difference,
    end::{Address, End},
    flow::{Body, Exit},
    inner::{Frame, FrameAddresses, FrameV4, Ipv4Words, Plain},
    outer::{OuterBytes, Varying, build_v4},
    packet::{ETH_LEN, ETHERTYPE_IPV4, OUTER_LEN, OVERHEAD_V4, decapsulated_tos, source_port},
    peer::{Word, subnet_index_v4},
    program::OWN_PACKET,
    reason::Reason,
};

use crate::{
    node::{Node, Peer},
    skb::{Skb, redirect_neigh_v4, redirect_peer},
    tables::Known,
    to_tunnel::ENCAP_FLAGS,
};

type V4 = [u32; 1];

/// A packet from a pod: into the tunnel, or into another pod of this node.
#[inline(always)]
pub(crate) fn from_pod(
    skb: &Skb,
    node: &Node,
    frame: &FrameV4,
    sent: &mut Encapsulated,
    packet: &Plain<V4>,
    known: &Known<'_, V4>,
) -> Result<Reason, Reason> {
    let body = &known.flow.body;
    as_seen(skb, packet, body)?;
    match body.way {
        Exit::TUNNEL => into_tunnel(skb, node, frame, sent, packet, body)?,
        Exit::POD => {
            if !node.unchanged() {
                return Err(Reason::NotConfigured);
            }
            into_pod(skb, frame, packet, body, packet.print.tos)?;
        }
        _ => return Err(Reason::FlowUnknown),
    }
    known.count();
    Ok(Reason::Replayed)
}

/// A tunnel packet for a pod, whose inner frame starts at the Ethernet header of `frame`.
#[inline(always)]
pub(crate) fn from_underlay(
    skb: &Skb,
    node: &Node,
    peer: &Peer,
    outer_tos: u8,
    frame: &FrameV4,
    packet: &Plain<V4>,
    known: &Known<'_, V4>,
) -> Result<Reason, Reason> {
    let body = &known.flow.body;
    as_seen(skb, packet, body)?;
    if body.way.0 != Exit::POD.0 {
        return Err(Reason::FlowUnknown);
    }
    if packet.is_udp() && skb.gso_size() != 0 {
        return Err(Reason::Merged);
    }
    let tos = decapsulated_tos(outer_tos, packet.print.tos).ok_or(Reason::Congested)?;
    if !node.unchanged() || !peer.unchanged() {
        return Err(Reason::PeerChanging);
    }
    if !skb.shrink(OVERHEAD_V4 as i32, BPF_ADJ_ROOM_MAC, DECAP_FLAGS) {
        return Err(Reason::RoomRefused);
    }
    skb.drop_outer_checksum();
    into_pod(skb, frame, packet, body, tos)?;
    known.count();
    Ok(Reason::Replayed)
}

/// Segments keep their size, and checksums their state.
const DECAP_FLAGS: u64 = BPF_F_ADJ_ROOM_FIXED_GSO as u64 | BPF_F_ADJ_ROOM_NO_CSUM_RESET as u64;

/// The frame is as those seen, and no larger than the way out takes.
#[inline(always)]
fn as_seen<A: Address>(skb: &Skb, packet: &Plain<A>, body: &Body<A>) -> Result<(), Reason> {
    if !body.entry.same(&packet.addresses) {
        return Err(Reason::FrameDiffers);
    }
    if packet.segment_len(skb.gso_size()) > u32::from(body.mtu) { Err(Reason::TooBig) } else { Ok(()) }
}

/// Outer headers and the inner IP header behind them.
#[repr(C)]
pub(crate) struct Encapsulated {
    outer: OuterBytes,
    ip: Ipv4Words,
}

#[inline(always)]
fn into_tunnel(
    skb: &Skb,
    node: &Node,
    frame: &FrameV4,
    sent: &mut Encapsulated,
    packet: &Plain<V4>,
    body: &Body<V4>,
) -> Result<(), Reason> {
    let family = node.v4();
    let subnet = subnet_index_v4(family, body.out.destination[0].to_ne_bytes()).ok_or(Reason::NoPeer)?;
    let peer = Peer::find(subnet)?;
    if !peer.word().has(Word::PLAIN) {
        return Err(Reason::PeerNotPlain);
    }
    let entry = peer.entry();
    if !entry.path_vouches(node.now) {
        return Err(Reason::PathUnseen);
    }
    let whole = skb.len() + (OVERHEAD_V4 - ETH_LEN) as u32;
    if whole > u32::from(u16::MAX) || !entry.fits(packet.segment_len(skb.gso_size()) + OVERHEAD_V4 as u32) {
        return Err(Reason::TooBig);
    }
    let (oif, next_hop) = (entry.oif, entry.next_hop);
    if !node.unchanged() || !peer.unchanged() {
        return Err(Reason::PeerChanging);
    }
    let is_rewritten = !packet.end.same_tuple(&body.out);
    if is_rewritten {
        rewrite(skb, &packet.end, &body.out)?;
    }
    let hash = skb.flow_hash();
    // SAFETY: the helper takes nothing and returns a number.
    let random = unsafe { bpf_get_prandom_u32() };
    let varying = Varying {
        frame_len: skb.len(),
        inner_tos: packet.print.tos,
        id: random as u16,
        source_port: source_port(hash, family.source_port_min, family.source_port_max),
    };
    sent.outer = build_v4(family, entry, &varying);
    sent.ip = frame.rewritten(&packet.end, &body.out, body.ttl_step, packet.print.tos);
    if hash == 0 || !skb.grow(OVERHEAD_V4 as i32, BPF_ADJ_ROOM_MAC, ENCAP_FLAGS) {
        if is_rewritten {
            rewrite(skb, &body.out, &packet.end)?;
        }
        return Err(if hash == 0 { Reason::NoHash } else { Reason::RoomRefused });
    }
    if !skb.store(0, sent) {
        return Err(Reason::StoreFailed);
    }
    skb.set_class(body.mark, body.priority);
    skb.set_tc_index(OWN_PACKET);
    redirect_neigh_v4(oif, &next_hop);
    Ok(())
}

/// Ethernet and IP header of a packet for a pod.
#[repr(C)]
struct Delivered {
    pad: [u8; 2],
    addresses: FrameAddresses,
    ethertype: [u8; 2],
    ip: Ipv4Words,
}

#[inline(always)]
fn into_pod(skb: &Skb, frame: &FrameV4, packet: &Plain<V4>, body: &Body<V4>, tos: u8) -> Result<(), Reason> {
    if !packet.end.same_tuple(&body.out) {
        rewrite_transport(skb, &packet.end, &body.out)?;
    }
    let headers = Delivered {
        pad: [0; 2],
        addresses: body.exit,
        ethertype: ETHERTYPE_IPV4,
        ip: frame.rewritten(&packet.end, &body.out, body.ttl_step, tos),
    };
    if !skb.store_from(0, &headers, 2) || !skb.scrub() {
        return Err(Reason::RewriteFailed);
    }
    redirect_peer(body.out.device);
    Ok(())
}

/// Gives a packet the addresses and ports of another end; its TTL stays.
#[inline(always)]
fn rewrite(skb: &Skb, from: &End<V4>, to: &End<V4>) -> Result<(), Reason> {
    rewrite_transport(skb, from, to)?;
    let addresses = [to.source[0], to.destination[0]];
    if skb.store(FrameV4::TRANSPORT_AT - 8, &addresses) { Ok(()) } else { Err(Reason::RewriteFailed) }
}

/// Gives a packet the ports of another end, and the transport checksum that belongs to its addresses and ports.
#[inline(always)]
fn rewrite_transport(skb: &Skb, from: &End<V4>, to: &End<V4>) -> Result<(), Reason> {
    let is_udp = from.protocol == u32::from(flannel_common::packet::PROTO_UDP);
    let checksum_at = FrameV4::TRANSPORT_AT + if is_udp { 6 } else { 16 };
    let difference = address_difference(from, to);
    let done = skb.update_checksum(checksum_at, difference, [from.ports, to.ports], is_udp)
        && skb.store(FrameV4::TRANSPORT_AT, &to.ports);
    if done { Ok(()) } else { Err(Reason::RewriteFailed) }
}

/// Where the inner frame of a tunnel packet starts.
pub(crate) const INNER_AT: u32 = (OUTER_LEN - ETH_LEN) as u32;
