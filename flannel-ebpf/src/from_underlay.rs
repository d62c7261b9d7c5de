//! Ingress of the external interface: says what each tunnel packet is, and in mode `fast` puts those of known flows straight
//! into their pod. All others are received by the vxlan device.

use flannel_common::{
    addr::Addr,
    inner::{Frame as _, FrameV4},
    mode::Mode,
    node::FamilyConfig,
    outer::{Outer, same4, same6},
    packet::OUTER_LEN,
    peer::subnet_index_v4,
    reason::Reason,
};

use crate::{
    maps::VTEPS,
    node::{Node, Peer, mode_word},
    replay::{self, INNER_AT},
    skb::{PACKET_HOST, Skb},
    tables::{self, Known},
};

#[inline(always)]
pub(crate) fn run(skb: &Skb) -> Result<Reason, Reason> {
    let bytes = skb.outer_bytes()?;
    let node = Node::read()?;
    let family = node.v4();
    let outer = Outer::read(&bytes, family).ok_or(Reason::NotTunnel)?;
    outer_is_ours(outer, family)?;
    if !same6(outer.inner_destination_mac(), family.vtep_mac) {
        return Err(Reason::InnerOtherMac);
    }
    if !outer.inner_is_ipv4() {
        return Err(Reason::OtherProtocol);
    }
    let source: [u8; 4] = skb.load(OUTER_LEN + IPV4_SOURCE_AT).ok_or(Reason::Malformed)?;
    let peer = sender(outer, family, source)?;
    let mode = mode_word();
    if mode.mode() == Mode::Fast {
        deliver(skb, &node, &peer, outer, mode.generation())
    } else {
        Ok(Reason::TunnelGood)
    }
}

/// Where an IPv4 header has its source address.
const IPV4_SOURCE_AT: usize = 12;

#[inline(always)]
fn outer_is_ours(outer: Outer<'_>, family: &FamilyConfig) -> Result<(), Reason> {
    if !same4(outer.destination(), family.vtep.v4_bytes()) {
        return Err(Reason::NotForUs);
    }
    if outer.is_fragment() {
        return Err(Reason::OuterFragment);
    }
    outer.vxlan(family)
}

/// The peer in whose subnet the inner source lies, if it sent the packet.
#[inline(always)]
fn sender(outer: Outer<'_>, family: &FamilyConfig, inner_source: [u8; 4]) -> Result<Peer, Reason> {
    if let Some(index) = subnet_index_v4(family, inner_source)
        && let Ok(peer) = Peer::find(index)
        && same4(peer.entry().vtep.v4_bytes(), outer.source())
    {
        return Ok(peer);
    }
    // SAFETY: nothing of the value is read.
    let is_known = unsafe { VTEPS.get(Addr::from_v4_bytes(outer.source())) }.is_some();
    Err(if is_known { Reason::InnerOtherSource } else { Reason::UnknownVtep })
}

/// Puts a packet of a known flow into its pod.
#[inline(always)]
fn deliver(skb: &Skb, node: &Node, peer: &Peer, outer: Outer<'_>, generation: u32) -> Result<Reason, Reason> {
    let room = tables::room::<FrameV4>()?;
    skb.load_frame(INNER_AT, &mut room.frame)?;
    let packet = room.frame.plain(skb.len() - INNER_AT, node.v4().tunnel_ifindex)?;
    if packet.is_control {
        tables::end::<FrameV4>(&packet.end, packet.is_opening(), node.tick(), node.fast().interval);
        return Err(Reason::TcpControl);
    }
    let at = tables::place::<FrameV4>(&packet.end).ok_or(Reason::FlowUnknown)?;
    tables::copy(at, &mut room.flow);
    let known = Known::copied(at, &room.flow, &packet.end);
    known.usable(generation, node.tick())?;
    if skb.pkt_type() != PACKET_HOST || !outer.has_length(skb.len()) {
        return Err(Reason::NotPlain);
    }
    if !outer.has_no_checksum() && skb.gso_size() == 0 && skb.verified_checksums() < 0 {
        return Err(Reason::OuterChecksum);
    }
    replay::from_underlay(skb, node, peer, outer.tos(), &room.frame, &packet, &known)
}
