//! Replaying: a packet of a known flow is treated as the kernel was seen to treat the one it was learned from.
//!
//! All gates come before the first change to the packet. Peer data is looked up for every packet and never kept in a flow.

use aya_ebpf::bindings::{BPF_F_ADJ_ROOM_FIXED_GSO, BPF_F_ADJ_ROOM_NO_CSUM_RESET, bpf_adj_room_mode::BPF_ADJ_ROOM_MAC};
use flannel_common::{
    checksum::address_difference,
    end::End,
    flow::{Body, Exit},
    inner::{Frame, FrameAddresses, Plain},
    outer::{OuterHeaders, Varying},
    packet::{ETH_LEN, ETHERTYPE_IPV6, PROTO_UDP, decapsulated_tos, source_port},
    peer::Word,
    program::OWN_PACKET,
    reason::Reason,
};

use crate::{
    legs::{self, Waiting},
    node::{Node, Peer},
    skb::{Skb, redirect, redirect_neigh, redirect_peer},
    tables::{Encapsulated, Known, Tables},
    to_tunnel::ENCAP_FLAGS,
};

/// A packet from a pod: into the tunnel, to a peer on our link, or into another pod of this node.
#[inline(always)]
pub(crate) fn from_pod<F: Tables>(
    skb: &Skb,
    node: &Node,
    frame: &Frame<F>,
    leaves: (&mut Encapsulated<F>, &mut Waiting),
    packet: &Plain<F::Address>,
    known: &Known<'_, F::Address>,
) -> Result<Reason, Reason> {
    let body = &known.flow.body;
    as_seen::<F>(skb, packet, body)?;
    match body.way {
        Exit::TUNNEL => into_tunnel(skb, node, frame, leaves, packet, body)?,
        Exit::DIRECT => onto_link(skb, node, frame, packet, body)?,
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

/// A tunnel packet for a pod, whose inner frame is `frame`.
#[inline(always)]
pub(crate) fn from_underlay<F: Tables>(
    skb: &Skb,
    node: &Node,
    peer: &Peer,
    outer_tos: u8,
    frame: &Frame<F>,
    packet: &Plain<F::Address>,
    known: &Known<'_, F::Address>,
) -> Result<Reason, Reason> {
    let body = &known.flow.body;
    may_enter::<F>(skb, packet, body)?;
    let tos = decapsulated_tos(outer_tos, packet.print.tos).ok_or(Reason::Congested)?;
    if !node.unchanged() || !peer.unchanged() {
        return Err(Reason::PeerChanging);
    }
    if !skb.shrink(OuterHeaders::<F>::OVERHEAD as i32, BPF_ADJ_ROOM_MAC, DECAP_FLAGS) {
        return Err(Reason::RoomRefused);
    }
    skb.drop_outer_checksum();
    into_pod(skb, frame, packet, body, tos)?;
    known.count();
    Ok(Reason::Replayed)
}

/// A packet for a pod, from a peer on our link.
#[inline(always)]
pub(crate) fn from_link<F: Tables>(
    skb: &Skb,
    node: &Node,
    peer: &Peer,
    frame: &Frame<F>,
    packet: &Plain<F::Address>,
    known: &Known<'_, F::Address>,
) -> Result<Reason, Reason> {
    let body = &known.flow.body;
    may_enter::<F>(skb, packet, body)?;
    if !node.unchanged() || !peer.unchanged() {
        return Err(Reason::PeerChanging);
    }
    into_pod(skb, frame, packet, body, packet.print.tos)?;
    known.count();
    Ok(Reason::Replayed)
}

/// Segments keep their size, and checksums their state.
pub(crate) const DECAP_FLAGS: u64 = BPF_F_ADJ_ROOM_FIXED_GSO as u64 | BPF_F_ADJ_ROOM_NO_CSUM_RESET as u64;

/// The flow leads into a pod, and the packet is one that may go there as it is.
#[inline(always)]
fn may_enter<F: Tables>(skb: &Skb, packet: &Plain<F::Address>, body: &Body<F::Address>) -> Result<(), Reason> {
    as_seen::<F>(skb, packet, body)?;
    if body.way.0 != Exit::POD.0 {
        return Err(Reason::FlowUnknown);
    }
    if packet.is_udp() && skb.gso_size() != 0 {
        return Err(Reason::Merged);
    }
    Ok(())
}

/// The frame is as those seen, no larger than the way out takes, and can be rewritten.
#[inline(always)]
fn as_seen<F: Tables>(skb: &Skb, packet: &Plain<F::Address>, body: &Body<F::Address>) -> Result<(), Reason> {
    if !body.entry.same(&packet.addresses) {
        return Err(Reason::FrameDiffers);
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
    (sent, waiting): (&mut Encapsulated<F>, &mut Waiting),
    packet: &Plain<F::Address>,
    body: &Body<F::Address>,
) -> Result<(), Reason> {
    let family = node.family::<F>();
    sent.ip = frame.ip().rewritten(&packet.end, &body.out, body.ttl_step, packet.print.tos);
    let peer = Peer::find::<F>(sent.ip.destination_subnet(family))?;
    if !peer.word().has(Word::PLAIN) {
        return Err(Reason::PeerNotPlain);
    }
    let entry = peer.entry();
    if !peer.has_legs() && !entry.path_vouches(node.now) {
        return Err(Reason::PathUnseen);
    }
    let whole = skb.len() + (OuterHeaders::<F>::OVERHEAD - ETH_LEN) as u32;
    let segment = packet.segment_len(skb.gso_size()) + OuterHeaders::<F>::OVERHEAD as u32;
    if whole > u32::from(u16::MAX) || !(peer.has_legs() || entry.fits(segment)) {
        return Err(Reason::TooBig);
    }
    let (oif, next_hop) = (entry.oif, entry.next_hop);
    let mut varying =
        Varying { frame_len: skb.len(), inner_tos: packet.print.tos, id: F::identification(), source_port: 0 };
    if !node.unchanged() || !peer.unchanged() {
        return Err(Reason::PeerChanging);
    }
    // The kernel's device hashes what NAT has made of the packet.
    if !packet.end.same_tuple(&body.out) {
        rewrite(skb, &packet.end, &body.out, &sent.ip)?;
    }
    let hash = skb.flow_hash();
    varying.source_port = source_port(hash, family.source_port_min, family.source_port_max);
    sent.outer = OuterHeaders::build(family, entry, &varying);
    if hash != 0 && peer.has_legs() {
        return Err(legs::wait(&peer, varying.source_port, segment, waiting));
    }
    if hash == 0 || !skb.grow(OuterHeaders::<F>::OVERHEAD as i32, BPF_ADJ_ROOM_MAC, ENCAP_FLAGS | F::ENCAP_L3) {
        take_back(skb, packet, body, frame.ip())?;
        return Err(if hash == 0 { Reason::NoHash } else { Reason::RoomRefused });
    }
    if !skb.store(0, sent) {
        return Err(Reason::StoreFailed);
    }
    skb.set_class(body.mark, body.priority);
    skb.set_tc_index(OWN_PACKET);
    redirect_neigh::<F>(oif, next_hop);
    Ok(())
}

/// Gives a packet back the addresses and ports it came with, if the flow translates them.
#[inline(always)]
pub(crate) fn take_back<F: Tables>(
    skb: &Skb,
    packet: &Plain<F::Address>,
    body: &Body<F::Address>,
    ip: &F,
) -> Result<(), Reason> {
    if packet.end.same_tuple(&body.out) { Ok(()) } else { rewrite(skb, &body.out, &packet.end, ip) }
}

/// Ethernet and IP header with which a packet leaves where there is no tunnel.
#[repr(C)]
struct Headers<F> {
    addresses: FrameAddresses,
    ethertype: u16,
    ip: F,
}

impl<F: Tables> Headers<F> {
    /// As they were seen to leave.
    #[inline(always)]
    fn seen(frame: &Frame<F>, packet: &Plain<F::Address>, body: &Body<F::Address>, tos: u8) -> Self {
        Self {
            addresses: body.exit,
            ethertype: u16::from_ne_bytes(F::ETHERTYPE),
            ip: frame.ip().rewritten(&packet.end, &body.out, body.ttl_step, tos),
        }
    }

    /// Gives them to the packet, and the ports and the checksum that belong to them.
    #[inline(always)]
    fn put_on(&self, skb: &Skb, packet: &Plain<F::Address>, body: &Body<F::Address>) -> Result<(), Reason> {
        if !packet.end.same_tuple(&body.out) {
            rewrite_transport::<F>(skb, &packet.end, &body.out)?;
        }
        if skb.store(0, self) { Ok(()) } else { Err(Reason::RewriteFailed) }
    }
}

/// To a peer on our link, with the Ethernet addresses seen.
#[inline(always)]
fn onto_link<F: Tables>(
    skb: &Skb,
    node: &Node,
    frame: &Frame<F>,
    packet: &Plain<F::Address>,
    body: &Body<F::Address>,
) -> Result<(), Reason> {
    let headers = Headers::seen(frame, packet, body, packet.print.tos);
    let subnet = headers.ip.destination_subnet(node.family::<F>());
    let peer = Peer::direct::<F>(subnet, body.out.device).ok_or(Reason::NoPeer)?;
    if !node.unchanged() || !peer.unchanged() {
        return Err(Reason::PeerChanging);
    }
    headers.put_on(skb, packet, body)?;
    skb.set_class(body.mark, body.priority);
    skb.set_tc_index(OWN_PACKET);
    redirect(body.out.device);
    Ok(())
}

#[inline(always)]
fn into_pod<F: Tables>(
    skb: &Skb,
    frame: &Frame<F>,
    packet: &Plain<F::Address>,
    body: &Body<F::Address>,
    tos: u8,
) -> Result<(), Reason> {
    Headers::seen(frame, packet, body, tos).put_on(skb, packet, body)?;
    if !skb.scrub() {
        return Err(Reason::RewriteFailed);
    }
    redirect_peer(body.out.device);
    Ok(())
}

/// Gives a packet the addresses and ports of another end, and this IP header.
#[inline(always)]
fn rewrite<F: Tables>(skb: &Skb, from: &End<F::Address>, to: &End<F::Address>, ip: &F) -> Result<(), Reason> {
    rewrite_transport::<F>(skb, from, to)?;
    if skb.store(ETH_LEN, ip) { Ok(()) } else { Err(Reason::RewriteFailed) }
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
