//! Egress of the tunnel device: encapsulates what the kernel routed there, after all of netfilter has seen it.
//!
//! Takes an IPv4 packet whose destination lies in the subnet of a peer with a plain path, framed exactly as the
//! kernel's own neighbour entry frames it. Everything else goes on into the vxlan device, which is always right.

use aya_ebpf::bindings::{
    BPF_F_ADJ_ROOM_ENCAP_L2_ETH, BPF_F_ADJ_ROOM_ENCAP_L3_IPV4, BPF_F_ADJ_ROOM_ENCAP_L4_UDP, BPF_F_ADJ_ROOM_FIXED_GSO,
    BPF_F_ADJ_ROOM_NO_CSUM_RESET, bpf_adj_room_mode::BPF_ADJ_ROOM_MAC,
};
use aya_ebpf::helpers::generated::bpf_get_prandom_u32;
use flannel_common::{
    addr::Mac,
    flow::Exit,
    inner::{Frame as _, FrameAddresses, FrameV4},
    mode::Mode,
    node::FamilyConfig,
    outer::{Varying, build_v4, same6},
    packet::{ETH_LEN, ETHERTYPE_IPV4, IPV4_LEN, OVERHEAD_V4, source_port},
    peer::{Word, subnet_index_v4},
    program::{OWN_PACKET, Program},
    reason::Reason,
};

use crate::{
    learn::{self, Left},
    node::{Node, Peer, mode_word},
    notes,
    segment::segment_len,
    skb::{Skb, redirect_neigh_v4},
    stats, tables,
};

/// GSO sizes stay as they are (segments would outgrow the path otherwise), checksum state too, and the kernel is
/// told what was put on, so that it can still segment and offload.
pub(crate) const ENCAP_FLAGS: u64 = BPF_F_ADJ_ROOM_FIXED_GSO as u64
    | BPF_F_ADJ_ROOM_NO_CSUM_RESET as u64
    | BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 as u64
    | BPF_F_ADJ_ROOM_ENCAP_L4_UDP as u64
    | BPF_F_ADJ_ROOM_ENCAP_L2_ETH as u64
    | (ETH_LEN as u64) << 56;

const ETH_IPV4_LEN: usize = ETH_LEN + IPV4_LEN;

/// Ethernet and IPv4 header of the packet as it stands before encapsulation.
type Headers = [u8; ETH_IPV4_LEN];

#[inline(always)]
pub(crate) fn run(skb: &Skb) -> Result<Reason, Reason> {
    let mode = mode_word();
    if mode.mode() == Mode::Kernel {
        return Err(Reason::ModeKernel);
    }
    let node = Node::read()?;
    let headers = ipv4_headers(skb)?;
    let family = node.v4();
    if mode.mode() == Mode::Fast {
        watch(skb, &node, mode.generation());
    }
    let peer = Peer::find(subnet_index_v4(family, destination(&headers)).ok_or(Reason::NoPeer)?)?;
    if !peer.word().has(Word::PLAIN) {
        return Err(Reason::PeerNotPlain);
    }
    framed_by_the_kernel(&headers, family, peer.entry().mac)?;
    fits(skb, &headers, &node, &peer)?;
    encapsulate(skb, &headers, &node, &peer)
}

/// Learns from a noted packet. Whether it did is counted beside what becomes of the packet itself.
#[inline(always)]
fn watch(skb: &Skb, node: &Node, generation: u32) {
    let (Ok(outcome) | Err(outcome)) = learn_from(skb, node, generation);
    if outcome as u8 != Reason::NotFollowed as u8 {
        stats::count(skb, Program::ToTunnel, outcome);
    }
}

#[inline(always)]
fn learn_from(skb: &Skb, node: &Node, generation: u32) -> Result<Reason, Reason> {
    let note = notes::take::<FrameV4>(skb, node);
    let room = tables::room::<FrameV4>()?;
    skb.load_frame(0, &mut room.frame)?;
    let packet = room.frame.plain(skb.len(), skb.ifindex())?;
    if packet.is_control {
        learn::close::<FrameV4>(&packet, node);
        return Err(Reason::TcpControl);
    }
    let left = Left {
        generation,
        way: Exit::TUNNEL,
        mtu: node.fast().tunnel_mtu,
        mark: skb.mark(),
        priority: skb.priority(),
        addresses: FrameAddresses::default(),
    };
    learn::learn::<FrameV4>(skb, node, note?, &packet, &left, &mut room.flow)
}

#[inline(always)]
fn ipv4_headers(skb: &Skb) -> Result<Headers, Reason> {
    if skb.vlan_present() != 0 {
        return Err(Reason::VlanTagged);
    }
    if skb.protocol() != u32::from(u16::from_ne_bytes(ETHERTYPE_IPV4)) {
        return Err(Reason::OtherProtocol);
    }
    skb.load(0).ok_or(Reason::Malformed)
}

#[inline(always)]
const fn destination(headers: &Headers) -> [u8; 4] {
    let at = ETH_LEN + 16;
    [headers[at], headers[at + 1], headers[at + 2], headers[at + 3]]
}

/// The kernel's neighbour entry framed the packet for this very VTEP: the vxlan device would send it there too.
#[inline(always)]
const fn framed_by_the_kernel(headers: &Headers, family: &FamilyConfig, peer_mac: Mac) -> Result<(), Reason> {
    let h = headers;
    let destination = Mac([h[0], h[1], h[2], h[3], h[4], h[5]]);
    let source = Mac([h[6], h[7], h[8], h[9], h[10], h[11]]);
    if same6(destination, peer_mac) && same6(source, family.vtep_mac) { Ok(()) } else { Err(Reason::ForeignFrame) }
}

/// The kernel's own packets were seen to leave plainly of late, and this one is no larger than those.
#[inline(always)]
fn fits(skb: &Skb, headers: &Headers, node: &Node, peer: &Peer) -> Result<(), Reason> {
    if !peer.entry().path_vouches(node.now) {
        return Err(Reason::PathUnseen);
    }
    let whole = skb.len() + (OVERHEAD_V4 - ETH_LEN) as u32;
    let segment = segment_len(skb, skb.len(), ETH_LEN, headers[ETH_LEN], headers[ETH_LEN + 9])?;
    if u16::try_from(whole).is_ok() && peer.entry().fits(segment) { Ok(()) } else { Err(Reason::TooBig) }
}

#[inline(always)]
fn encapsulate(skb: &Skb, headers: &Headers, node: &Node, peer: &Peer) -> Result<Reason, Reason> {
    let (family, entry) = (node.v4(), peer.entry());
    let hash = skb.flow_hash();
    if hash == 0 {
        return Err(Reason::NoHash);
    }
    // SAFETY: the helper takes nothing and returns a number.
    let random = unsafe { bpf_get_prandom_u32() };
    let varying = Varying {
        frame_len: skb.len(),
        inner_tos: headers[ETH_LEN + 1],
        id: random as u16,
        source_port: source_port(hash, family.source_port_min, family.source_port_max),
    };
    let outer = build_v4(family, entry, &varying);
    let (oif, next_hop) = (entry.oif, entry.next_hop);
    if !node.unchanged() || !peer.unchanged() {
        return Err(Reason::PeerChanging);
    }
    if !skb.grow(OVERHEAD_V4 as i32, BPF_ADJ_ROOM_MAC, ENCAP_FLAGS) {
        return Err(Reason::RoomRefused);
    }
    if !skb.store(0, &outer) {
        return Err(Reason::StoreFailed);
    }
    skb.set_tc_index(OWN_PACKET);
    redirect_neigh_v4(oif, &next_hop);
    Ok(Reason::Encapsulated)
}
