//! Peers whose route has several next hops: the kernel's FIB is asked for each packet. It hashes as
//! it would for its own tunnel packet of that flow (`net.ipv4.fib_multipath_hash_policy`,
//! `fib_multipath_hash()` in [net/ipv4/route.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv4/route.c)), and it knows weights, dead
//! links and MTUs that routers reported.
//!
//! Its answer is used only for a device on which the kernel's own packets to this peer have
//! validated the path. The tunnel device caches one route per peer and CPU (`vxlan_get_route()` in
//! [drivers/net/vxlan/vxlan_core.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/drivers/net/vxlan/vxlan_core.c)), so its
//! packets would validate one path forever: probes are made to look their route up again, and take
//! the path of their flow.
//!
//! The question takes more of the stack than is left where a packet is ready to go. There [`defer`]
//! stores it, returning [`Reason::NoEcmpPath`], and the hook calls [`take_path`] from a function of
//! its own.

use aya_ebpf::bindings::{
    BPF_FIB_LKUP_RET_FRAG_NEEDED, BPF_FIB_LKUP_RET_NO_NEIGH, BPF_FIB_LKUP_RET_SUCCESS,
};
use flannel_common::{
    abi::{entry_state::EntryState, reason::Reason},
    flow::class::{Class, PathKey},
    packet::PROTO_UDP,
};

use super::{
    encapsulation,
    path_probe::{Path, ecmp_path},
};
use crate::{
    node::{Node, Peer},
    packet::{
        family::{Family, NextHop, Route},
        skb::{Skb, redirect_to_neighbour},
    },
};

/// `lo`: the kernel routes packets of this host as if they came in there.
const LOOPBACK: u32 = 1;

/// A packet that still needs an ECMP path; its outer headers are in the scratch.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PendingEcmp {
    /// State of the peer's entry when it was read.
    word: EntryState,
    /// Number of the peer's subnet.
    index: u32,
    /// Bytes of the largest segment on the wire.
    segment: u32,
    source_port: u16,
    /// Slot of the peer's counters.
    pub(crate) traffic: u16,
    /// Mark and priority with which it leaves.
    class: Class,
}

/// Stores the open question of a packet that only lacks its path.
#[inline(always)]
pub(crate) fn defer(
    peer: &Peer,
    source_port: u16,
    segment: u32,
    class: Class,
    pending: &mut PendingEcmp,
) -> Reason {
    let traffic = peer.entry().traffic;
    *pending = PendingEcmp {
        word: peer.word(),
        index: peer.index(),
        segment,
        source_port,
        traffic,
        class,
    };
    Reason::NoEcmpPath
}

/// Chooses the path of the packet's flow, sets the redirect to it (which takes effect with verdict
/// redirect), and makes room for the outer headers. On failure the packet is unchanged.
#[inline(always)]
pub(crate) fn take_path<F: Family>(
    skb: &Skb,
    node: &Node,
    pending: &PendingEcmp,
    key: &mut PathKey,
) -> Result<(), Reason> {
    let peer = Peer::find::<F>(Some(pending.index))?;
    if peer.word().0 != pending.word.0 {
        return Err(Reason::PeerChanging);
    }
    choose::<F>(skb, node, &peer, pending, key)?;
    if !node.unchanged() || !peer.unchanged() {
        return Err(Reason::PeerChanging);
    }
    encapsulation::make_room::<F>(skb)
}

#[inline(always)]
fn choose<F: Family>(
    skb: &Skb,
    node: &Node,
    peer: &Peer,
    pending: &PendingEcmp,
    key: &mut PathKey,
) -> Result<(), Reason> {
    let (family, entry, len) = (node.family::<F>(), peer.entry(), pending.segment);
    let mut route = F::route(family.vtep, entry.vtep);
    route.0.ifindex = LOOPBACK;
    route.0.l4_protocol = PROTO_UDP;
    route.0.sport = pending.source_port.to_be();
    route.0.dport = u16::from_ne_bytes(family.port);
    route.0.__bindgen_anon_1.tot_len = len as u16;
    match skb.look_up(&mut route) {
        BPF_FIB_LKUP_RET_SUCCESS => {}
        // Our packet would be dropped while its neighbour is resolved. The kernel's own waits and
        // resolves it.
        BPF_FIB_LKUP_RET_NO_NEIGH => return Err(Reason::PathUnseen),
        BPF_FIB_LKUP_RET_FRAG_NEEDED => return Err(Reason::TooBig),
        _ => return Err(Reason::NoEcmpPath),
    }
    let Route(route) = route;
    let path = ecmp_path::<F>(peer, route.ifindex).ok_or(Reason::NoEcmpPath)?;
    // SAFETY: the look-up gave an element of the map; even a replaced element is not reused before
    // the program ends (RCU).
    let path = unsafe { &*path };
    if len > path.mtu {
        return Err(Reason::TooBig);
    }
    let mut probes = Path {
        peer,
        class: pending.class,
        key,
    };
    if len > probes.validated_len_by::<F>(path, route.ifindex, node.now) {
        return Err(Reason::PathUnseen);
    }
    // SAFETY: all of the answer is initialised; an IPv4 address is the first word of it.
    let next_hop = unsafe { route.__bindgen_anon_4.ipv6_dst };
    redirect_to_neighbour(route.ifindex, NextHop::new(route.family.into(), next_hop));
    Ok(())
}
