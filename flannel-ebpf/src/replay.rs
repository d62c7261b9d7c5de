//! Replaying: a packet of a known flow is treated as the kernel was seen to treat the one it was learned from.
//!
//! All gates come before the first change to the packet. Peer data is looked up for every packet and never kept in a flow.

use aya_ebpf::bindings::{BPF_F_ADJ_ROOM_FIXED_GSO, BPF_F_ADJ_ROOM_NO_CSUM_RESET, bpf_adj_room_mode::BPF_ADJ_ROOM_MAC};
use flannel_common::{
    checksum::address_difference,
    class::{Class, PathKey},
    end::End,
    flow::{Body, Exit},
    inner::{Frame, Plain},
    outer::{OuterHeaders, Varying},
    packet::{ETH_LEN, ETHERTYPE_IPV6, PROTO_UDP, decapsulated_tos, source_port},
    peer::Word,
    program::OWN_PACKET,
    reason::Reason,
};

use crate::{
    legs::{self, Waiting},
    node::{Node, Peer},
    seen::Path,
    skb::{Skb, redirect, redirect_neigh, redirect_peer},
    tables::{Bare, Encapsulated, Known, Tables},
    to_tunnel::ENCAP_FLAGS,
};

/// Where the headers are put together with which a packet leaves.
pub(crate) struct Leaves<'a, F> {
    pub(crate) sent: &'a mut Encapsulated<F>,
    pub(crate) bare: &'a mut Bare<F>,
    pub(crate) count: &'a mut u16,
    pub(crate) waiting: &'a mut Waiting,
    pub(crate) path: &'a mut PathKey,
    pub(crate) own: &'a mut u64,
}

/// A packet from a pod: into the tunnel, to a peer on our link, or into another pod of this node.
#[inline(always)]
pub(crate) fn from_pod<F: Tables>(
    skb: &Skb,
    node: &Node,
    frame: &Frame<F>,
    leaves: Leaves<'_, F>,
    packet: &Plain<F::Address>,
    known: &Known<'_, F::Address>,
) -> Result<Reason, Reason> {
    let body = &known.flow.body;
    as_seen::<F>(skb, frame, packet, body)?;
    match body.way {
        Exit::TUNNEL => into_tunnel(skb, node, frame, leaves, packet, body)?,
        Exit::DIRECT => onto_link(skb, node, (frame, leaves.bare), packet, body)?,
        Exit::POD => {
            if !node.unchanged() {
                return Err(Reason::NotConfigured);
            }
            into_pod(skb, (frame, leaves.bare), packet, body, packet.print.tos)?;
        }
        _ => return Err(Reason::FlowUnknown),
    }
    known.count();
    Ok(Reason::Replayed)
}

/// A tunnel packet for a pod, whose inner frame is `frame`.
#[inline(always)]
pub(crate) fn from_underlay<F: Tables>(
    skb: &Skb,
    node: &Node,
    peer: &Peer,
    outer_tos: u8,
    (frame, bare): (&Frame<F>, &mut Bare<F>),
    packet: &Plain<F::Address>,
    known: &Known<'_, F::Address>,
) -> Result<Reason, Reason> {
    let body = &known.flow.body;
    may_enter::<F>(skb, frame, packet, body)?;
    let tos = decapsulated_tos(outer_tos, packet.print.tos).ok_or(Reason::Congested)?;
    if !node.unchanged() || !peer.unchanged() {
        return Err(Reason::PeerChanging);
    }
    if !skb.shrink(OuterHeaders::<F>::OVERHEAD as i32, BPF_ADJ_ROOM_MAC, DECAP_FLAGS) {
        return Err(Reason::RoomRefused);
    }
    skb.drop_outer_checksum();
    into_pod(skb, (frame, bare), packet, body, tos)?;
    known.count();
    Ok(Reason::Replayed)
}

/// A packet for a pod, from a peer on our link.
#[inline(always)]
pub(crate) fn from_link<F: Tables>(
    skb: &Skb,
    node: &Node,
    peer: &Peer,
    (frame, bare): (&Frame<F>, &mut Bare<F>),
    packet: &Plain<F::Address>,
    known: &Known<'_, F::Address>,
) -> Result<Reason, Reason> {
    let body = &known.flow.body;
    may_enter::<F>(skb, frame, packet, body)?;
    if !node.unchanged() || !peer.unchanged() {
        return Err(Reason::PeerChanging);
    }
    into_pod(skb, (frame, bare), packet, body, packet.print.tos)?;
    known.count();
    Ok(Reason::Replayed)
}

/// Segments keep their size, and checksums their state.
pub(crate) const DECAP_FLAGS: u64 = BPF_F_ADJ_ROOM_FIXED_GSO as u64 | BPF_F_ADJ_ROOM_NO_CSUM_RESET as u64;

/// The flow leads into a pod, and the packet is one that may go there as it is.
#[inline(always)]
fn may_enter<F: Tables>(
    skb: &Skb,
    frame: &Frame<F>,
    packet: &Plain<F::Address>,
    body: &Body<F::Address>,
) -> Result<(), Reason> {
    as_seen::<F>(skb, frame, packet, body)?;
    if body.way.0 != Exit::POD.0 {
        return Err(Reason::FlowUnknown);
    }
    if skb.gso_size() != 0 && (packet.is_udp() || body.takes_merged == 0) {
        return Err(Reason::Merged);
    }
    Ok(())
}

/// The frame is as those seen, no larger than the way out takes, and can be rewritten.
#[inline(always)]
fn as_seen<F: Tables>(
    skb: &Skb,
    frame: &Frame<F>,
    packet: &Plain<F::Address>,
    body: &Body<F::Address>,
) -> Result<(), Reason> {
    if !body.entry.same(&packet.addresses) {
        return Err(Reason::FrameDiffers);
    }
    if !body.has_fields(packet.print.tos, packet.print.ttl) || frame.ip().flow_label() != body.flow_label {
        return Err(Reason::FieldsDiffer);
    }
    if packet.segment_len(skb.gso_size()) > u32::from(body.mtu) {
        return Err(Reason::TooBig);
    }
    // Without a header checksum the change of an address shows in the sum of the packet, which the kernel's helper
    // does not know.
    let is_v6 = F::ETHERTYPE[0] == ETHERTYPE_IPV6[0];
    if is_v6 && !packet.end.same_tuple(&body.out) && skb.has_whole_sum() {
        return Err(Reason::WholeSum);
    }
    Ok(())
}

#[inline(always)]
fn into_tunnel<F: Tables>(
    skb: &Skb,
    node: &Node,
    frame: &Frame<F>,
    Leaves { sent, count, waiting, path, own, .. }: Leaves<'_, F>,
    packet: &Plain<F::Address>,
    body: &Body<F::Address>,
) -> Result<(), Reason> {
    let family = node.family::<F>();
    frame.ip().write_rewritten(&packet.end, &body.out, body.ttl_step, packet.print.tos, &mut sent.ip);
    let peer = Peer::find::<F>(sent.ip.destination_subnet(family))?;
    if !peer.word().has(Word::PLAIN) {
        return Err(Reason::PeerNotPlain);
    }
    let (entry, class) = (peer.entry(), Class { mark: body.mark, priority: body.priority });
    let largest = if peer.has_legs() {
        u32::MAX
    } else {
        Path { peer: &peer, class, key: path }.validated_len::<F>(node.now).min(entry.mtu)
    };
    if largest == 0 {
        return Err(Reason::PathUnseen);
    }
    let whole = skb.len() + (OuterHeaders::<F>::OVERHEAD - ETH_LEN) as u32;
    let segment = packet.segment_len(skb.gso_size()) + OuterHeaders::<F>::OVERHEAD as u32;
    if whole > u32::from(u16::MAX) || segment > largest {
        return Err(Reason::TooBig);
    }
    let is_translated = !packet.end.same_tuple(&body.out);
    let hash = match skb.carried_hash() {
        Some(hash) => hash,
        // The one that the kernel's device made of a packet with these addresses, ports and label, behind NAT.
        None => body.hash,
    };
    let source_port = source_port(hash, family.source_port_min, family.source_port_max);
    let id = F::identification(count, skb.segments());
    sent.outer.write(family, entry, &Varying { frame_len: skb.len(), inner_tos: packet.print.tos, id, source_port });
    let (oif, next_hop) = (entry.oif, entry.next_hop);
    if !node.unchanged() || !peer.unchanged() {
        return Err(Reason::PeerChanging);
    }
    if is_translated {
        rewrite_transport::<F>(skb, &packet.end, &body.out)?;
    }
    if peer.has_legs() {
        return Err(legs::wait(&peer, source_port, segment, class, waiting));
    }
    if !skb.grow(OuterHeaders::<F>::OVERHEAD as i32, BPF_ADJ_ROOM_MAC, ENCAP_FLAGS | F::ENCAP_L3) {
        take_back::<F>(skb, packet, body)?;
        return Err(Reason::RoomRefused);
    }
    if !skb.store(0, sent) {
        return Err(Reason::StoreFailed);
    }
    skb.set_class(body.mark, body.priority);
    skb.set_own(own);
    redirect_neigh::<F>(oif, next_hop);
    Ok(())
}

/// Gives a packet back the ports it came with, if the flow translates them: its IP header was not written yet.
#[inline(always)]
pub(crate) fn take_back<F: Tables>(
    skb: &Skb,
    packet: &Plain<F::Address>,
    body: &Body<F::Address>,
) -> Result<(), Reason> {
    if packet.end.same_tuple(&body.out) { Ok(()) } else { rewrite_transport::<F>(skb, &body.out, &packet.end) }
}

impl<F: Tables> Bare<F> {
    /// Makes them those with which the flow was seen to leave.
    #[inline(always)]
    fn write(&mut self, frame: &Frame<F>, packet: &Plain<F::Address>, body: &Body<F::Address>, tos: u8) {
        body.exit.write(&mut self.ethernet, F::ETHERTYPE);
        frame.ip().write_rewritten(&packet.end, &body.out, body.ttl_step, tos, &mut self.ip);
    }

    /// Gives them to the packet, and the ports and the checksum that belong to them.
    #[inline(always)]
    fn put_on(&self, skb: &Skb, before: &F, packet: &Plain<F::Address>, body: &Body<F::Address>) -> Result<(), Reason> {
        if !packet.end.same_tuple(&body.out) {
            rewrite_transport::<F>(skb, &packet.end, &body.out)?;
        }
        // Where an IPv6 packet is summed as a whole, its header is part of that; of an IPv4 header the sum does not
        // change. Translated ones are left to the kernel (`as_seen`).
        if F::ETHERTYPE[0] == ETHERTYPE_IPV6[0] {
            skb.update_whole_sum(before.difference(&self.ip));
        }
        if skb.store(0, self) { Ok(()) } else { Err(Reason::RewriteFailed) }
    }
}

/// To a peer on our link, with the Ethernet addresses seen.
#[inline(always)]
fn onto_link<F: Tables>(
    skb: &Skb,
    node: &Node,
    (frame, bare): (&Frame<F>, &mut Bare<F>),
    packet: &Plain<F::Address>,
    body: &Body<F::Address>,
) -> Result<(), Reason> {
    bare.write(frame, packet, body, packet.print.tos);
    let subnet = bare.ip.destination_subnet(node.family::<F>());
    let peer = Peer::direct::<F>(subnet, body.out.device).ok_or(Reason::NoPeer)?;
    if !node.unchanged() || !peer.unchanged() {
        return Err(Reason::PeerChanging);
    }
    bare.put_on(skb, frame.ip(), packet, body)?;
    skb.set_class(body.mark, body.priority);
    skb.set_tc_index(OWN_PACKET);
    redirect(body.out.device);
    Ok(())
}

#[inline(always)]
fn into_pod<F: Tables>(
    skb: &Skb,
    (frame, bare): (&Frame<F>, &mut Bare<F>),
    packet: &Plain<F::Address>,
    body: &Body<F::Address>,
    tos: u8,
) -> Result<(), Reason> {
    bare.write(frame, packet, body, tos);
    bare.put_on(skb, frame.ip(), packet, body)?;
    if !skb.scrub() {
        return Err(Reason::RewriteFailed);
    }
    redirect_peer(body.out.device);
    Ok(())
}

/// Gives a packet the ports of another end, and the transport checksum that belongs to its addresses and ports.
#[inline(always)]
fn rewrite_transport<F: Tables>(skb: &Skb, from: &End<F::Address>, to: &End<F::Address>) -> Result<(), Reason> {
    let is_udp = from.protocol == u32::from(PROTO_UDP);
    let checksum_at = Frame::<F>::TRANSPORT_AT + if is_udp { 6 } else { 16 };
    let difference = address_difference(from, to);
    let done = skb.update_checksum(checksum_at, difference, [from.ports, to.ports], is_udp)
        && skb.store(Frame::<F>::TRANSPORT_AT, &to.ports);
    if done { Ok(()) } else { Err(Reason::RewriteFailed) }
}
