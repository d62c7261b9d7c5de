//! Ingress of the external interface: says what each tunnel packet is, and in mode `fast` puts those of known flows straight
//! into their pod. What may be no peer's is the guard's ([`guard`]). All others are received by the vxlan device, which is also
//! where a UDP checksum is checked, or that there is none.

use flannel_common::{
    addr::same_addr,
    ethernet::same_mac,
    ip::{Ipv4Header, Ipv6Header},
    mode::Mode,
    node::FamilyConfig,
    outer::OuterHeaders,
    packet::PROTO_ICMPV6,
    reason::Reason,
};

use crate::{
    bytes::Room,
    direct,
    family::Family,
    guard,
    node::{Node, Peer, mode_word},
    notes, replay,
    skb::{PACKET_HOST, Skb},
    tables::{self, Known, Scratch, Tables},
    too_big,
};

#[inline(always)]
pub(crate) fn run(skb: &Skb) -> Result<Reason, Reason> {
    notes::clear(skb);
    if skb.vlan_present() != 0 {
        return Ok(tagged(skb));
    }
    let node = Node::read()?;
    match skb.protocol() {
        Ipv4Header::PROTOCOL => Ok(follow::<Ipv4Header>(skb, &node)),
        Ipv6Header::PROTOCOL => Ok(follow::<Ipv6Header>(skb, &node)),
        _ => Err(Reason::NotTunnel),
    }
}

/// A packet with a tag is left to the kernel, but for what the guard refuses.
#[inline(never)]
fn tagged(skb: &Skb) -> Reason {
    let Ok(node) = Node::read() else { return Reason::VlanTagged };
    let looked = match skb.protocol() {
        _ if skb.is_of_vlan() => Reason::VlanTagged,
        Ipv4Header::PROTOCOL => guard::look_behind_tag::<Ipv4Header>(skb, &node),
        Ipv6Header::PROTOCOL => guard::look_behind_tag::<Ipv6Header>(skb, &node),
        _ => guard::tag_in_tag(skb, [Reason::UnknownVtep, Reason::RefusedVtep]),
    };
    if matches!(looked, Reason::UnknownVtep | Reason::RefusedVtep) { looked } else { Reason::VlanTagged }
}

/// What is no tunnel packet may come from a peer that needs no tunnel; what is one and from nobody known is the guard's.
#[inline(always)]
fn follow<F: Tables>(skb: &Skb, node: &Node) -> Reason {
    if !node.family::<F>().has_tunnel() {
        return Reason::of(direct::from_peer::<F>(skb, node));
    }
    let is_long = skb.len() as usize >= OuterHeaders::<F>::LEN;
    let judged = if is_long { look::<F>(skb, node) } else { Reason::OuterUnusual };
    let judged = if guard::concerns(judged) { guard::look::<F>(skb, node, judged) } else { judged };
    match judged {
        Reason::NotTunnel => Reason::of(direct::from_peer::<F>(skb, node)),
        judged => judged,
    }
}

/// One function for each family, called, not inlined: the stack of one program is too small for both.
#[inline(never)]
fn look<F: Tables>(skb: &Skb, node: &Node) -> Reason {
    Reason::of(judge::<F>(skb, node))
}

#[inline(always)]
fn judge<F: Tables>(skb: &Skb, node: &Node) -> Result<Reason, Reason> {
    let family = node.family::<F>();
    let outer: &OuterHeaders<F> = skb.view(0).ok_or(Reason::OuterUnusual)?;
    if outer.ip().has_fragment_header() {
        return judge_fragment(skb, outer, family);
    }
    if is_icmpv6(outer, family) {
        return Err(too_big::heed(skb, node));
    }
    outer_is_ours(outer, family)?;
    let inner = outer.tunnel().inner();
    if !same_mac(inner.destination(), family.vtep_mac) {
        return Err(Reason::InnerOtherMac);
    }
    if !inner.carries(F::ETHERTYPE) {
        return Err(Reason::OtherProtocol);
    }
    let mode = mode_word();
    if mode.mode() != Mode::Fast {
        let inner = skb.load(OuterHeaders::<F>::LEN, Room::Inner).ok_or(Reason::Malformed)?;
        sender(inner, outer, family)?;
        return Ok(Reason::TunnelGood);
    }
    let scratch = tables::scratch::<F>()?;
    skb.load_frame(OuterHeaders::<F>::OVERHEAD, &mut scratch.frame)?;
    let peer = sender(scratch.frame.ip(), outer, family)?;
    arrived_whole(skb, outer)?;
    deliver(skb, node, &peer, outer.ip().tos(), mode.generation(), scratch)
}

/// A packet with an IPv6 fragment header.
#[inline(always)]
fn judge_fragment<F: Family>(skb: &Skb, outer: &OuterHeaders<F>, family: &FamilyConfig) -> Result<Reason, Reason> {
    // What does not show our port behind that header may do so behind others.
    skb.behind_fragment_header::<F>(family).or(Err(Reason::OuterUnusual))?;
    Err(if outer.is_for_us(family) { Reason::OuterFragment } else { Reason::NotForUs })
}

/// Somebody says something to this node, perhaps of a packet of ours.
#[inline(always)]
fn is_icmpv6<F: Family>(outer: &OuterHeaders<F>, family: &FamilyConfig) -> bool {
    F::PROTOCOL == Ipv6Header::PROTOCOL && outer.ip().protocol() == PROTO_ICMPV6 && outer.is_for_us(family)
}

#[inline(always)]
fn outer_is_ours<F: Family>(outer: &OuterHeaders<F>, family: &FamilyConfig) -> Result<(), Reason> {
    if !outer.is_tunnel(family) {
        return Err(if outer.ip().may_hide_udp() { Reason::OuterUnusual } else { Reason::NotTunnel });
    }
    if !outer.is_for_us(family) {
        return Err(Reason::NotForUs);
    }
    if outer.ip().is_fragment() {
        return Err(Reason::OuterFragment);
    }
    outer.tunnel().vxlan(family)
}

/// The peer in whose subnet the inner source lies, if it sent the packet.
#[inline(always)]
fn sender<F: Family>(inner: &F, outer: &OuterHeaders<F>, family: &FamilyConfig) -> Result<Peer, Reason> {
    match Peer::find::<F>(inner.source_subnet(family)) {
        Ok(peer) if same_addr(peer.entry().vtep, outer.source()) => Ok(peer),
        // Or not even a peer's: the guard looks.
        _ => Err(Reason::InnerOtherSource),
    }
}

/// The packet is for this host, as long as it says, and nobody has still to look at its outer checksum.
#[inline(always)]
fn arrived_whole<F: Family>(skb: &Skb, outer: &OuterHeaders<F>) -> Result<(), Reason> {
    if skb.pkt_type() != PACKET_HOST || !outer.has_length(skb.len()) {
        return Err(Reason::NotPlain);
    }
    // The kernel merges only packets whose checksums are right.
    if outer.tunnel().has_checksum() && skb.gso_size() == 0 && !skb.has_verified_checksum() {
        return Err(Reason::OuterChecksum);
    }
    Ok(())
}

/// Puts a packet of a known flow into its pod.
#[inline(always)]
fn deliver<F: Tables>(
    skb: &Skb,
    node: &Node,
    peer: &Peer,
    outer_tos: u8,
    generation: u32,
    scratch: &mut Scratch<F>,
) -> Result<Reason, Reason> {
    let len = skb.len() - OuterHeaders::<F>::OVERHEAD as u32;
    scratch.frame.read(len, node.family::<F>().tunnel_ifindex, &mut scratch.packet)?;
    let packet = &scratch.packet;
    if packet.is_control {
        tables::end::<F>(&packet.end, packet.is_opening, node);
        return Err(Reason::TcpControl);
    }
    node.allows_replay()?;
    let at = tables::place::<F>(&packet.end).ok_or(Reason::FlowUnknown)?;
    tables::copy(at, &mut scratch.flow);
    let known = Known::copied(at, &scratch.flow, &packet.end);
    known.usable(generation, node)?;
    let headers = (&scratch.frame, &mut scratch.bare);
    replay::from_underlay(skb, node, peer, outer_tos, headers, packet, &known)
}
