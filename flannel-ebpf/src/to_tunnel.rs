//! Egress of the tunnel device: encapsulates what the kernel routed there, after all of netfilter has seen it.
//!
//! Takes a packet whose destination lies in the subnet of a peer with a plain path, framed exactly as the
//! kernel's own neighbour entry frames it. Everything else goes on into the vxlan device, which is always right.
//!
//! One program serves both tunnel devices. An IPv6 packet leaves with UDP checksum 0, in every segment of it: the
//! kernel, told of a tunnel without checksum, fills none in.

use aya_ebpf::bindings::{
    BPF_F_ADJ_ROOM_ENCAP_L2_ETH, BPF_F_ADJ_ROOM_ENCAP_L4_UDP, BPF_F_ADJ_ROOM_FIXED_GSO, BPF_F_ADJ_ROOM_NO_CSUM_RESET,
    bpf_adj_room_mode::BPF_ADJ_ROOM_MAC,
};
use flannel_common::{
    addr::Mac,
    ethernet::{EthernetHeader, same_mac},
    flow::Exit,
    inner::FrameAddresses,
    ip::{Ipv4Header, Ipv6Header},
    mode::{Mode, ModeWord},
    node::FamilyConfig,
    outer::{OuterHeaders, Varying},
    packet::{ETH_LEN, source_port},
    peer::Word,
    program::Program,
    reason::Reason,
};

use crate::{
    family::Family as _,
    learn::{self, Left},
    legs,
    node::{self, Node, Peer, mode_word},
    notes,
    seen::Path,
    segment::segment_len,
    skb::{Skb, redirect_neigh},
    stats,
    tables::{self, Tables},
};

/// GSO sizes stay as they are (segments would outgrow the path otherwise), checksum state too, and the kernel is
/// told what was put on, so that it can still segment and offload.
pub(crate) const ENCAP_FLAGS: u64 = BPF_F_ADJ_ROOM_FIXED_GSO as u64
    | BPF_F_ADJ_ROOM_NO_CSUM_RESET as u64
    | BPF_F_ADJ_ROOM_ENCAP_L4_UDP as u64
    | BPF_F_ADJ_ROOM_ENCAP_L2_ETH as u64
    | (ETH_LEN as u64) << 56;

/// The packet's headers as they stand before encapsulation.
#[repr(C)]
#[derive(Clone, Copy)]
struct Headers<F> {
    ethernet: EthernetHeader,
    ip: F,
}

#[inline(always)]
pub(crate) fn run(skb: &Skb) -> Result<Reason, Reason> {
    let mode = mode_word();
    if mode.mode() == Mode::Kernel {
        return Err(Reason::ModeKernel);
    }
    let node = Node::read()?;
    if skb.vlan_present() != 0 {
        return Err(Reason::VlanTagged);
    }
    match skb.protocol() {
        Ipv4Header::PROTOCOL => Ok(look::<Ipv4Header>(skb, &node, mode)),
        Ipv6Header::PROTOCOL => Ok(look::<Ipv6Header>(skb, &node, mode)),
        _ => Err(Reason::OtherProtocol),
    }
}

#[inline(always)]
fn look<F: Tables>(skb: &Skb, node: &Node, mode: ModeWord) -> Reason {
    if mode.mode() == Mode::Fast {
        watch::<F>(skb, node, mode.generation());
    }
    let reason = match Reason::of(send::<F>(skb, node)) {
        Reason::NoLeg => legs::send::<F>(skb, node),
        sent => sent,
    };
    if reason as u8 != Reason::Encapsulated as u8 {
        skb.tag_class();
    }
    reason
}

/// One function for each family, called, not inlined: the stack of one program is too small for both.
#[inline(never)]
fn send<F: Tables>(skb: &Skb, node: &Node) -> Result<Reason, Reason> {
    let headers: &Headers<F> = skb.view(0).ok_or(Reason::Malformed)?;
    let family = node.family::<F>();
    let peer = Peer::find::<F>(headers.ip.destination_subnet(family))?;
    if !peer.word().has(Word::PLAIN) {
        return Err(Reason::PeerNotPlain);
    }
    framed_by_the_kernel(&headers.ethernet, family, peer.entry().mac)?;
    let segment = fits(skb, &headers.ip, node, &peer)?;
    encapsulate(skb, &headers.ip, node, &peer, segment)
}

/// Learns from a noted packet. Whether it did is counted beside what becomes of the packet itself; here, because counting
/// may tell a monitor, which takes stack that those who learn and send have not left.
#[inline(always)]
fn watch<F: Tables>(skb: &Skb, node: &Node, generation: u32) {
    let outcome = Reason::of(learn_from::<F>(skb, node, generation));
    if outcome as u8 != Reason::NotFollowed as u8 {
        stats::record(skb, Program::ToTunnel, outcome);
    }
}

#[inline(never)]
fn learn_from<F: Tables>(skb: &Skb, node: &Node, generation: u32) -> Result<Reason, Reason> {
    let note = notes::take::<F>(skb, node);
    let scratch = tables::scratch::<F>()?;
    skb.load_frame(0, &mut scratch.frame)?;
    scratch.frame.read(skb.len(), skb.ifindex(), &mut scratch.packet)?;
    let packet = &scratch.packet;
    if packet.is_control {
        learn::close::<F>(packet, node);
        return Err(Reason::TcpControl);
    }
    let note = note?;
    // What leaves by another VTEP than the subnet's is not for the peer map to send.
    let family = node.family::<F>();
    let peer = Peer::find::<F>(scratch.frame.ip().destination_subnet(family))?;
    if !packet.addresses.same(&FrameAddresses::new(peer.entry().mac, family.vtep_mac)) {
        return Err(Reason::ForeignFrame);
    }
    let hash = skb.flow_hash();
    if hash == 0 {
        return Err(Reason::NoHash);
    }
    let left = Left {
        generation,
        way: Exit::TUNNEL,
        mtu: F::tunnel_mtu(node::fast()?),
        mark: skb.mark(),
        priority: skb.priority(),
        hash,
        flow_label: scratch.frame.ip().flow_label(),
        addresses: FrameAddresses::default(),
        takes_merged: true,
    };
    learn::learn::<F>(skb, node, note, packet, &left, &mut scratch.flow)
}

/// The kernel's neighbour entry framed the packet for this very VTEP: the vxlan device would send it there too.
#[inline(always)]
const fn framed_by_the_kernel(frame: &EthernetHeader, family: &FamilyConfig, peer_mac: Mac) -> Result<(), Reason> {
    if same_mac(frame.destination(), peer_mac) && same_mac(frame.source(), family.vtep_mac) {
        Ok(())
    } else {
        Err(Reason::ForeignFrame)
    }
}

/// The kernel's own packets of this class were seen to leave plainly, and this one is no larger than those; with legs, that
/// is for the leg to say. Returns how large it will be on the wire.
#[inline(always)]
fn fits<F: Tables>(skb: &Skb, ip: &F, node: &Node, peer: &Peer) -> Result<u32, Reason> {
    let largest = if peer.has_legs() {
        u32::MAX
    } else {
        let key = &mut tables::scratch::<F>()?.path;
        Path { peer, class: skb.class(), key }.validated_len::<F>(node.now).min(peer.entry().mtu)
    };
    if largest == 0 {
        return Err(Reason::PathUnseen);
    }
    let whole = skb.len() + (OuterHeaders::<F>::OVERHEAD - ETH_LEN) as u32;
    let segment = segment_len(skb, skb.len(), ETH_LEN, ip)?;
    if u16::try_from(whole).is_ok() && segment <= largest { Ok(segment) } else { Err(Reason::TooBig) }
}

#[inline(always)]
fn encapsulate<F: Tables>(skb: &Skb, ip: &F, node: &Node, peer: &Peer, segment: u32) -> Result<Reason, Reason> {
    let (family, entry) = (node.family::<F>(), peer.entry());
    let hash = skb.flow_hash();
    if hash == 0 {
        return Err(Reason::NoHash);
    }
    let scratch = tables::scratch::<F>()?;
    let varying = Varying {
        frame_len: skb.len(),
        inner_tos: ip.tos(),
        id: F::identification(&mut scratch.count, skb.segments()),
        source_port: source_port(hash, family.source_port_min, family.source_port_max),
    };
    let outer = &mut scratch.sent.outer;
    outer.write(family, entry, &varying);
    if peer.has_legs() {
        return Err(legs::wait(peer, varying.source_port, segment, skb.class(), &mut scratch.waiting));
    }
    let (oif, next_hop) = (entry.oif, entry.next_hop);
    if !node.unchanged() || !peer.unchanged() {
        return Err(Reason::PeerChanging);
    }
    if !skb.grow(OuterHeaders::<F>::OVERHEAD as i32, BPF_ADJ_ROOM_MAC, ENCAP_FLAGS | F::ENCAP_L3) {
        return Err(Reason::RoomRefused);
    }
    if !skb.store(0, outer) {
        return Err(Reason::StoreFailed);
    }
    skb.set_own(&mut scratch.own);
    redirect_neigh::<F>(oif, next_hop);
    Ok(Reason::Encapsulated)
}
