//! Egress of the external interface: observes the kernel's own tunnel packets, so that `to_tunnel`
//! encapsulates only where its packets would leave the same way.
//!
//! Our packets skip the host's OUTPUT and POSTROUTING chains, its IPsec policies and its policy
//! routing. Every two seconds per peer one packet therefore goes through the vxlan device; if it
//! arrives here, whole, by the same device and with the headers we would have given it, nothing on
//! that stretch changes or stops our packets either. If it does not arrive, the path is not
//! validated and all packets take the kernel's.
//!
//! Rules can also see a packet's mark and priority, so a packet validates the path only for its
//! [`Class`](flannel_common::flow::class::Class), and only if it still has the one it had at the
//! tunnel device.
//!
//! Packets of pods to the tunnel port of a peer are the guard's: behind masquerade they would pass
//! for this node's.

use flannel_common::{
    abi::{mode::Mode, node::FamilyConfig, program::SELF_SENT, reason::Reason},
    packet::{
        ip::FragmentHeader,
        outer::{OuterHeaders, TunnelHeaders},
    },
};

use super::direct_route;
use crate::{
    flow::scratch::{self, FlowMaps},
    node::{Node, Peer, mode_word},
    packet::{
        family::{Family, by_family},
        load_buf::LoadBuf,
        segmentation::segment_len,
        skb::Skb,
    },
    tunnel::{path_probe::Path, source_filter},
};

#[inline(always)]
pub(crate) fn run(skb: &Skb) -> Reason {
    if skb.tc_index() == SELF_SENT {
        by_family!(skb, arrive(skb), else ());
        skb.set_tc_index(0);
        return Reason::SelfSent;
    }
    if skb.vlan_present() != 0 {
        return Reason::VlanTagged;
    }
    match Node::read() {
        Ok(node) => by_family!(skb, process(skb, &node), else Reason::NotTunnel),
        Err(reason) => reason,
    }
}

/// Notes that a packet of the programs has arrived.
#[inline(always)]
fn arrive<F: FlowMaps>(skb: &Skb) {
    if let Ok(scratch) = scratch::get::<F>() {
        scratch.redirected.arrive(skb);
    }
}

/// Dispatches tunnel packets and packets to direct peers.
#[inline(always)]
fn process<F: FlowMaps>(skb: &Skb, node: &Node) -> Reason {
    if !node.family::<F>().has_tunnel() {
        return direct_route::to_peer::<F>(skb, node);
    }
    match observe::<F>(skb, node) {
        Reason::NotTunnel => direct_route::to_peer::<F>(skb, node),
        observed => observed,
    }
}

/// A call for each family, not inlined: the stack of one program (512 bytes) is too small for both.
#[inline(never)]
fn observe<F: FlowMaps>(skb: &Skb, node: &Node) -> Reason {
    // The tunnel device's own packets count as made on this host: it clears the ingress device of
    // the inner packet.
    if skb.ingress_ifindex() != 0 {
        forwarded::<F>(skb, node)
    } else {
        Reason::of(probe_path::<F>(skb, node))
    }
}

/// Validates the path to a peer by a packet of the kernel's own.
#[inline(always)]
fn probe_path<F: FlowMaps>(skb: &Skb, node: &Node) -> Result<Reason, Reason> {
    let family = node.family::<F>();
    let outer: &OuterHeaders<F> = skb.view(0).ok_or(Reason::NotTunnel)?;
    if outer.ip().has_fragment_header() {
        return observe_fragment::<F>(skb, node);
    }
    if !outer.is_tunnel(family) {
        return Err(Reason::NotTunnel);
    }
    if outer.ip().is_later_fragment() {
        return Err(Reason::OuterFragment);
    }
    let (inner, peer) = inner_and_peer::<F>(skb, outer.tunnel(), OuterHeaders::<F>::LEN, family)?;
    let mut path = path::<F>(skb, &peer)?;
    if outer.ip().is_fragment() {
        path.hold_down::<F>(skb.ifindex(), node.now);
        return Err(Reason::PathFragmented);
    }
    let seen = path.by::<F>(skb.ifindex());
    let Some(seen) = seen.filter(|_| outer.equals_recipe(family, peer.entry(), inner.tos())) else {
        path.hold_down::<F>(skb.ifindex(), node.now);
        return Err(Reason::PathDiffers);
    };
    let frame_len = skb.len() - OuterHeaders::<F>::OVERHEAD as u32;
    let len = segment_len(skb, frame_len, OuterHeaders::<F>::LEN, inner)?;
    if !peer.unchanged() || !node.unchanged() {
        return Err(Reason::PeerChanging);
    }
    seen.validate(node.now, len)
}

/// Handles a packet that came into the host by a device: our own packet whose `tc_index` another
/// program has changed, or a packet for the guard.
#[inline(always)]
fn forwarded<F: FlowMaps>(skb: &Skb, node: &Node) -> Reason {
    let is_own =
        scratch::get::<F>().is_ok_and(|scratch| scratch.redirected.recognise(skb, node.now));
    if is_own {
        Reason::SelfSent
    } else {
        source_filter::check_pod_to_peer::<F>(skb, node)
    }
}

/// A packet with an IPv6 fragment header: the path of its peer is not plain.
#[inline(always)]
fn observe_fragment<F: FlowMaps>(skb: &Skb, node: &Node) -> Result<Reason, Reason> {
    let family = node.family::<F>();
    let tunnel = skb.behind_fragment_header::<F>(family)?;
    let inner_at = OuterHeaders::<F>::LEN + size_of::<FragmentHeader>();
    let (_, peer) = inner_and_peer::<F>(skb, tunnel, inner_at, family)?;
    path::<F>(skb, &peer)?.hold_down::<F>(skb.ifindex(), node.now);
    Err(Reason::PathFragmented)
}

/// The inner IP header, and the peer whose subnet its destination lies in.
#[inline(always)]
fn inner_and_peer<F: Family>(
    skb: &Skb,
    tunnel: &TunnelHeaders,
    inner_at: usize,
    family: &FamilyConfig,
) -> Result<(&'static F, Peer), Reason> {
    tunnel.vxlan(family)?;
    if !tunnel.inner().carries(F::ETHERTYPE) {
        return Err(Reason::OtherProtocol);
    }
    let inner: &F = skb
        .load(inner_at, LoadBuf::Inner)
        .ok_or(Reason::Malformed)?;
    let peer = Peer::find::<F>(inner.destination_subnet(family))?;
    Ok((inner, peer))
}

/// The path the packet is about. In mode `kernel` none: `to_tunnel` tags no packets then.
#[inline(always)]
fn path<'a, F: FlowMaps>(skb: &Skb, peer: &'a Peer) -> Result<Path<'a>, Reason> {
    if mode_word().mode() == Mode::Kernel {
        return Err(Reason::ModeKernel);
    }
    let class = skb.class();
    if skb.tc_index() != class.tag() {
        return Err(Reason::ClassChanged);
    }
    Ok(Path {
        peer,
        class,
        key: &mut scratch::get::<F>()?.path,
    })
}
