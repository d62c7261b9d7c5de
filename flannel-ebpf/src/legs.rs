//! Peers whose route has several next hops: for each packet the kernel's FIB is asked, which hashes as it would for its own tunnel
//! packet of that flow (`net.ipv4.fib_multipath_hash_policy`), knows weights, dead links and routers' reports of MTUs, and heals by
//! itself.
//!
//! What it answers is used only by a device for which the kernel's own packets to this peer vouch. The tunnel device remembers one
//! route per peer and CPU, so its packets would vouch for one leg forever: those that are to show the way are told to look
//! it up anew, and take the leg of their flow.
//!
//! The question takes more of the stack than is left where a packet is ready to go. There [`wait`] puts down in the scratch what is
//! known of it, with [`Reason::NoLeg`] for an answer, and the entry point's side calls on [`send`] or [`replay()`].

use aya_ebpf::bindings::{
    BPF_FIB_LKUP_RET_FRAG_NEEDED, BPF_FIB_LKUP_RET_NO_NEIGH, BPF_FIB_LKUP_RET_SUCCESS,
    bpf_adj_room_mode::BPF_ADJ_ROOM_MAC,
};
use flannel_common::{
    class::{Class, PathKey},
    outer::OuterHeaders,
    packet::PROTO_UDP,
    peer::Word,
    reason::Reason,
};

use crate::{
    family::{Family, NextHop, Route},
    node::{Node, Peer},
    replay,
    seen::{Path, leg},
    skb::{Skb, redirect_to_neighbour},
    tables::{self, Known, Tables},
    to_tunnel::ENCAP_FLAGS,
};

/// `lo`, by which the kernel routes what is made on this host.
const LOOPBACK: u32 = 1;

/// A packet that waits for its leg; its outer headers are in the scratch.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Waiting {
    /// The peer, and its word.
    word: Word,
    index: u32,
    /// Bytes of the largest segment on the wire.
    segment: u32,
    source_port: u16,
    /// With what class it leaves.
    class: Class,
}

/// Puts down what is known of a packet that only lacks its leg.
#[inline(always)]
pub(crate) fn wait(peer: &Peer, source_port: u16, segment: u32, class: Class, waiting: &mut Waiting) -> Reason {
    *waiting = Waiting { word: peer.word(), index: peer.index(), segment, source_port, class };
    Reason::NoLeg
}

/// Sends the packet that waits at the tunnel device. One that is to show the way shows that of its flow.
#[inline(never)]
pub(crate) fn send<F: Tables>(skb: &Skb, node: &Node) -> Reason {
    Reason::of(try_send::<F>(skb, node))
}

#[inline(always)]
fn try_send<F: Tables>(skb: &Skb, node: &Node) -> Result<Reason, Reason> {
    let scratch = tables::scratch::<F>()?;
    if let Err(reason) = take::<F>(skb, node, &scratch.waiting, &mut scratch.path) {
        if matches!(reason, Reason::PathUnseen) {
            skb.route_anew();
        }
        return Err(reason);
    }
    if !skb.store(0, &scratch.sent.outer) {
        return Err(Reason::StoreFailed);
    }
    skb.set_own(&mut scratch.own);
    Ok(Reason::Encapsulated)
}

/// Sends the packet of a known flow that waits at a pod's veth, or takes back what was done to it.
#[inline(never)]
pub(crate) fn replay<F: Tables>(skb: &Skb, node: &Node) -> Reason {
    Reason::of(try_replay::<F>(skb, node))
}

#[inline(always)]
fn try_replay<F: Tables>(skb: &Skb, node: &Node) -> Result<Reason, Reason> {
    let scratch = tables::scratch::<F>()?;
    let (body, packet) = (&scratch.flow.body, &scratch.packet);
    if let Err(reason) = take::<F>(skb, node, &scratch.waiting, &mut scratch.path) {
        replay::take_back::<F>(skb, packet, body)?;
        return Err(reason);
    }
    if !skb.store(0, &scratch.sent) {
        return Err(Reason::StoreFailed);
    }
    skb.set_class(body.mark, body.priority);
    skb.set_own(&mut scratch.own);
    if let Some(known) = Known::find::<F>(&packet.end) {
        known.count();
    }
    Ok(Reason::Replayed)
}

/// Finds the leg of the packet's flow, arranges that it leaves there (which takes effect with verdict redirect), and makes room for its
/// outer headers. On failure the packet is as it was.
#[inline(always)]
fn take<F: Family>(skb: &Skb, node: &Node, waiting: &Waiting, key: &mut PathKey) -> Result<(), Reason> {
    let peer = Peer::find::<F>(Some(waiting.index))?;
    if peer.word().0 != waiting.word.0 {
        return Err(Reason::PeerChanging);
    }
    choose::<F>(skb, node, &peer, waiting, key)?;
    if !node.unchanged() || !peer.unchanged() {
        return Err(Reason::PeerChanging);
    }
    if skb.grow(OuterHeaders::<F>::OVERHEAD as i32, BPF_ADJ_ROOM_MAC, ENCAP_FLAGS | F::ENCAP_L3) {
        Ok(())
    } else {
        Err(Reason::RoomRefused)
    }
}

#[inline(always)]
fn choose<F: Family>(skb: &Skb, node: &Node, peer: &Peer, waiting: &Waiting, key: &mut PathKey) -> Result<(), Reason> {
    let (family, entry, len) = (node.family::<F>(), peer.entry(), waiting.segment);
    let mut route = F::route(family.vtep, entry.vtep);
    route.0.ifindex = LOOPBACK;
    route.0.l4_protocol = PROTO_UDP;
    route.0.sport = waiting.source_port.to_be();
    route.0.dport = u16::from_ne_bytes(family.port);
    route.0.__bindgen_anon_1.tot_len = len as u16;
    match skb.look_up(&mut route) {
        BPF_FIB_LKUP_RET_SUCCESS => {}
        // A packet of ours that had to wait for its neighbour would be lost. The kernel's own waits and resolves it.
        BPF_FIB_LKUP_RET_NO_NEIGH => return Err(Reason::PathUnseen),
        BPF_FIB_LKUP_RET_FRAG_NEEDED => return Err(Reason::TooBig),
        _ => return Err(Reason::NoLeg),
    }
    let Route(route) = route;
    let leg = leg::<F>(peer, route.ifindex).ok_or(Reason::NoLeg)?;
    // SAFETY: the look-up gave an element of the map; one that is replaced meanwhile is not reused before the program ends (RCU).
    let leg = unsafe { &*leg };
    if len > leg.mtu {
        return Err(Reason::TooBig);
    }
    let mut path = Path { peer, class: waiting.class, key };
    if len > path.validated_len_by::<F>(leg, route.ifindex, node.now) {
        return Err(Reason::PathUnseen);
    }
    // SAFETY: all of the answer is initialised; an IPv4 address is the first word of it.
    let next_hop = unsafe { route.__bindgen_anon_4.ipv6_dst };
    redirect_to_neighbour(route.ifindex, NextHop::new(route.family.into(), next_hop));
    Ok(())
}
