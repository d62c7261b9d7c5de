//! Egress of the tunnel device: encapsulates what the kernel routed there, after all of netfilter
//! has seen it.
//!
//! Takes a packet whose destination lies in the subnet of a peer with a plain path, framed exactly
//! as the kernel's own neighbour entry frames it. Everything else goes on into the vxlan device,
//! which is always right.
//!
//! One program serves both tunnel devices. An IPv6 packet leaves with UDP checksum 0 in every
//! segment ([RFC 6935](https://www.rfc-editor.org/rfc/rfc6935)): the tunnel type given to the
//! kernel has no checksum, so it fills none in.

use flannel_common::{
    abi::{
        entry_state::EntryState,
        mode::{Mode, ModeWord},
        node::FamilyConfig,
        program::Program,
        reason::Reason,
    },
    flow::Egress,
    packet::{ETH_LEN, source_port},
    packet::{
        addr::Mac,
        ethernet::{EthernetHeader, same_mac},
        inner::FrameAddresses,
        ip::Varying,
        outer::OuterHeaders,
    },
};

use super::context;
use crate::{
    flow::{
        learn::{self, EgressState},
        pending,
        scratch::{self, FlowMaps},
    },
    node::{self, Node, Peer, mode_word},
    packet::{
        family::by_family,
        segmentation::segment_len,
        skb::{Skb, redirect_neigh},
    },
    stats, traffic,
    tunnel::{ecmp, encapsulation, path_probe::Path},
};

/// The packet's headers as they stand before encapsulation.
#[repr(C)]
#[derive(Clone, Copy)]
struct Headers<F> {
    ethernet: EthernetHeader,
    ip: F,
}

#[inline(always)]
pub(crate) fn run(skb: &Skb) -> Reason {
    let mode = mode_word();
    if mode.mode() == Mode::Kernel {
        return count_only(skb);
    }
    match Node::read() {
        Ok(_) if skb.vlan_present() != 0 => Reason::VlanTagged,
        Ok(node) => by_family!(skb, process(skb, &node, mode), else Reason::OtherProtocol),
        Err(reason) => reason,
    }
}

/// Counts a packet that is left to the kernel unseen.
#[inline(always)]
fn count_only(skb: &Skb) -> Reason {
    if let Ok(node) = Node::read() {
        by_family!(skb, count(skb, &node), else ());
    }
    Reason::ModeKernel
}

#[inline(always)]
fn count<F: FlowMaps>(skb: &Skb, node: &Node) {
    let headers: Option<&Headers<F>> = skb.view(0);
    if let Some(headers) = headers
        && let Ok(peer) = Peer::find::<F>(headers.ip.destination_subnet(node.family::<F>()))
    {
        traffic::count_sent::<F>(peer.traffic(), skb.len());
    }
}

#[inline(always)]
fn process<F: FlowMaps>(skb: &Skb, node: &Node, mode: ModeWord) -> Reason {
    if mode.mode() == Mode::Fast {
        observe::<F>(skb, node, mode.generation());
    }
    let reason = match send::<F>(skb, node) {
        Reason::NoEcmpPath => send_by_ecmp::<F>(skb, node),
        sent => sent,
    };
    if !matches!(reason, Reason::Encapsulated) {
        skb.tag_class();
    }
    reason
}

/// A call for each family, not inlined: the stack of one program (512 bytes) is too small for both.
#[inline(never)]
fn send<F: FlowMaps>(skb: &Skb, node: &Node) -> Reason {
    Reason::of(try_send::<F>(skb, node))
}

#[inline(always)]
fn try_send<F: FlowMaps>(skb: &Skb, node: &Node) -> Result<Reason, Reason> {
    let headers: &Headers<F> = skb.view(0).ok_or(Reason::Malformed)?;
    let family = node.family::<F>();
    let peer = Peer::find::<F>(headers.ip.destination_subnet(family))?;
    traffic::count_sent::<F>(peer.traffic(), skb.len());
    if !peer.word().has(EntryState::PLAIN) {
        return Err(Reason::PeerNotPlain);
    }
    check_frame(&headers.ethernet, family, peer.entry().mac)?;
    let segment = check_path(skb, &headers.ip, node, &peer)?;
    encapsulate(skb, &headers.ip, node, &peer, segment)
}

/// Learns from a recorded packet. The outcome is counted in addition to the packet's own verdict.
/// It is counted here, because the monitor takes stack that learning and sending do not leave.
#[inline(always)]
fn observe<F: FlowMaps>(skb: &Skb, node: &Node, generation: u32) {
    let outcome = learn::<F>(skb, node, generation);
    if !matches!(outcome, Reason::NotFollowed) {
        stats::record(skb, Program::ToTunnel, outcome);
    }
}

#[inline(never)]
fn learn<F: FlowMaps>(skb: &Skb, node: &Node, generation: u32) -> Reason {
    Reason::of(try_learn::<F>(skb, node, generation))
}

#[inline(always)]
fn try_learn<F: FlowMaps>(skb: &Skb, node: &Node, generation: u32) -> Result<Reason, Reason> {
    let pending = pending::take::<F>(skb, node);
    let scratch = context::exit::<F, ETH_LEN>(skb, node, pending.is_ok())?;
    let packet = &scratch.packet;
    let pending = pending?;
    // A packet to another VTEP than the subnet's is not for the peer map to send.
    let family = node.family::<F>();
    let peer = Peer::find::<F>(scratch.frame.ip().destination_subnet(family))?;
    if !packet
        .addresses
        .same(&FrameAddresses::new(peer.entry().mac, family.vtep_mac))
    {
        return Err(Reason::UnexpectedMac);
    }
    let hash = skb.flow_hash();
    if hash == 0 {
        return Err(Reason::NoHash);
    }
    let state = EgressState {
        generation,
        egress: Egress::TUNNEL,
        mtu: F::tunnel_mtu(node::fast()?),
        mark: skb.mark(),
        priority: skb.priority(),
        egress_data: hash,
        flow_label: scratch.frame.ip().flow_label(),
        addresses: FrameAddresses::default(),
        takes_merged: true,
    };
    learn::learn::<F>(skb, node, pending, scratch, &state)
}

/// Checks that the kernel's neighbour entry framed the packet for this VTEP: the vxlan device would
/// send it there too.
#[inline(always)]
const fn check_frame(
    frame: &EthernetHeader,
    family: &FamilyConfig,
    peer_mac: Mac,
) -> Result<(), Reason> {
    if same_mac(frame.destination(), peer_mac) && same_mac(frame.source(), family.vtep_mac) {
        Ok(())
    } else {
        Err(Reason::UnexpectedMac)
    }
}

/// Checks that the path is validated for this class and size of packet; with ECMP the chosen path
/// is checked later. Returns the size on the wire, in bytes.
#[inline(always)]
fn check_path<F: FlowMaps>(skb: &Skb, ip: &F, node: &Node, peer: &Peer) -> Result<u32, Reason> {
    let largest = if peer.has_ecmp_paths() {
        u32::MAX
    } else {
        let key = &mut scratch::get::<F>()?.path;
        Path {
            peer,
            class: skb.class(),
            key,
        }
        .validated_len::<F>(node.now)
        .min(peer.entry().mtu)
    };
    if largest == 0 {
        return Err(Reason::PathUnseen);
    }
    let whole = skb.len() + (OuterHeaders::<F>::OVERHEAD - ETH_LEN) as u32;
    let segment = segment_len(skb, skb.len(), ETH_LEN, ip)?;
    if u16::try_from(whole).is_ok() && segment <= largest {
        Ok(segment)
    } else {
        Err(Reason::TooBig)
    }
}

#[inline(always)]
fn encapsulate<F: FlowMaps>(
    skb: &Skb,
    ip: &F,
    node: &Node,
    peer: &Peer,
    segment: u32,
) -> Result<Reason, Reason> {
    let (family, entry) = (node.family::<F>(), peer.entry());
    let hash = skb.flow_hash();
    if hash == 0 {
        return Err(Reason::NoHash);
    }
    let scratch = scratch::get::<F>()?;
    let varying = Varying {
        frame_len: skb.len(),
        inner_tos: ip.tos(),
        id: F::identification(&mut scratch.identification, skb.segments()),
        source_port: source_port(hash, family.source_port_min, family.source_port_max),
    };
    let outer = &mut scratch.sent.outer;
    outer.write(family, entry, &varying);
    if peer.has_ecmp_paths() {
        return Err(ecmp::defer(
            peer,
            varying.source_port,
            segment,
            skb.class(),
            &mut scratch.ecmp,
        ));
    }
    let (oif, next_hop) = (entry.oif, entry.next_hop);
    if !node.unchanged() || !peer.unchanged() {
        return Err(Reason::PeerChanging);
    }
    encapsulation::make_room::<F>(skb)?;
    if !skb.store(0, outer) {
        return Err(Reason::StoreFailed);
    }
    scratch.redirected.mark(skb, node.now);
    redirect_neigh::<F>(oif, next_hop);
    Ok(Reason::Encapsulated)
}

/// Sends the packet whose ECMP path was left open. A probe takes the path of its flow. Not inlined:
/// the stack of one program (512 bytes) is too small.
#[inline(never)]
fn send_by_ecmp<F: FlowMaps>(skb: &Skb, node: &Node) -> Reason {
    Reason::of(try_send_by_ecmp::<F>(skb, node))
}

#[inline(always)]
fn try_send_by_ecmp<F: FlowMaps>(skb: &Skb, node: &Node) -> Result<Reason, Reason> {
    let scratch = scratch::get::<F>()?;
    if let Err(reason) = ecmp::take_path::<F>(skb, node, &scratch.ecmp, &mut scratch.path) {
        if matches!(reason, Reason::PathUnseen) {
            skb.look_up_route();
        }
        return Err(reason);
    }
    if !skb.store(0, &scratch.sent.outer) {
        return Err(Reason::StoreFailed);
    }
    scratch.redirected.mark(skb, node.now);
    Ok(Reason::Encapsulated)
}
