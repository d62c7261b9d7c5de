//! Ingress of the external interface: says what each tunnel packet is, and in mode `fast` puts
//! those of known flows straight into their pod. What may be no peer's is the guard's
//! ([`source_filter`]). All others are received by the vxlan device, which is also where a UDP
//! checksum is checked, or that there is none (`udpv6_rcv()` in [net/ipv6/udp.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/ipv6/udp.c)).

use flannel_common::{
    abi::{mode::Mode, node::FamilyConfig, reason::Reason},
    flow::arrival::Arrival,
    packet::PROTO_ICMPV6,
    packet::{ethernet::same_mac, ip::Ipv6Header, outer::OuterHeaders},
};

use super::direct_route;
use crate::{
    flow::{
        arrival, close_guard, pending, reception,
        replay::Replay,
        scratch::{self, FlowMaps, Scratch},
        table,
    },
    node::{Node, Peer, mode_word},
    packet::{
        family::{Family, by_family},
        load_buf::LoadBuf,
        skb::{PACKET_HOST, Skb},
    },
    traffic,
    tunnel::{
        packet_too_big,
        source_filter::{self, check_double_tagged, check_tagged},
    },
};

#[inline(always)]
pub(crate) fn run(skb: &Skb) -> Reason {
    pending::clear(skb);
    if skb.vlan_present() != 0 {
        return tagged(skb);
    }
    match Node::read() {
        Ok(node) => by_family!(skb, process(skb, &node), else Reason::NotTunnel),
        Err(reason) => reason,
    }
}

/// A packet with a tag is left to the kernel, but for what the guard refuses.
#[inline(never)]
fn tagged(skb: &Skb) -> Reason {
    let Ok(node) = Node::read() else {
        return Reason::VlanTagged;
    };
    if skb.is_of_vlan() {
        return Reason::VlanTagged;
    }
    let double_tagged = [Reason::UnknownVtep, Reason::RefusedVtep];
    let checked =
        by_family!(skb, check_tagged(skb, &node), else check_double_tagged(skb, double_tagged));
    if matches!(checked, Reason::UnknownVtep | Reason::RefusedVtep) {
        checked
    } else {
        Reason::VlanTagged
    }
}

/// Dispatches tunnel packets, those that the source filter has to check, and packets of direct
/// peers.
#[inline(always)]
fn process<F: FlowMaps>(skb: &Skb, node: &Node) -> Reason {
    if !node.family::<F>().has_tunnel() {
        return direct_route::from_peer::<F>(skb, node);
    }
    let is_long = skb.len() as usize >= OuterHeaders::<F>::LEN;
    let received = match if is_long {
        receive::<F>(skb, node)
    } else {
        Reason::OuterUnusual
    } {
        Reason::TcpControl => close_guard::judge::<F>(node),
        received => received,
    };
    let received = if received.is_decapsulated() {
        reception::decapsulate::<F>(skb, node, received)
    } else {
        received
    };
    let checked = match received {
        found if found.is_for_guard() => source_filter::check::<F>(skb, node, found),
        found => found,
    };
    if matches!(checked, Reason::NotTunnel) {
        direct_route::from_peer::<F>(skb, node)
    } else {
        checked
    }
}

/// A call for each family, not inlined: the stack of one program (512 bytes) is too small for both.
#[inline(never)]
fn receive<F: FlowMaps>(skb: &Skb, node: &Node) -> Reason {
    Reason::of(examine::<F>(skb, node))
}

#[inline(always)]
fn examine<F: FlowMaps>(skb: &Skb, node: &Node) -> Result<Reason, Reason> {
    let family = node.family::<F>();
    let outer: &OuterHeaders<F> = skb.view(0).ok_or(Reason::OuterUnusual)?;
    if outer.ip().has_fragment_header() {
        return receive_fragment(skb, outer, family);
    }
    if is_icmpv6(outer, family) {
        return Err(packet_too_big::on_packet_too_big(skb, node));
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
        let inner = skb
            .load(OuterHeaders::<F>::LEN, LoadBuf::Inner)
            .ok_or(Reason::Malformed)?;
        let peer = Peer::of_sender(inner, outer, family)?;
        count::<F>(skb, &peer);
        return Ok(Reason::TunnelGood);
    }
    let scratch = scratch::get::<F>()?;
    skb.load_frame(OuterHeaders::<F>::OVERHEAD, &mut scratch.frame)?;
    let peer = Peer::of_sender(scratch.frame.ip(), outer, family)?;
    count::<F>(skb, &peer);
    arrived_whole(skb, outer)?;
    let outer = Outer {
        arrival: outer.arrival(skb.ifindex()),
        tos: outer.ip().tos(),
    };
    deliver(skb, node, &peer, &outer, mode.generation(), scratch)
        .inspect_err(|_| arrival::note::<F>(skb, &outer.arrival, peer.index(), mode.generation()))
}

/// Counts a tunnel packet of this peer, whatever becomes of it.
#[inline(always)]
fn count<F: Family>(skb: &Skb, peer: &Peer) {
    traffic::count_received::<F>(
        peer.traffic(),
        skb.len() - OuterHeaders::<F>::OVERHEAD as u32,
    );
}

/// Facts about the outer packet, whose headers are removed.
struct Outer {
    arrival: Arrival,
    tos: u8,
}

/// A packet with an IPv6 fragment header.
#[inline(always)]
fn receive_fragment<F: Family>(
    skb: &Skb,
    outer: &OuterHeaders<F>,
    family: &FamilyConfig,
) -> Result<Reason, Reason> {
    // Our port may be behind further headers.
    skb.behind_fragment_header::<F>(family)
        .or(Err(Reason::OuterUnusual))?;
    Err(if outer.is_for_us(family) {
        Reason::OuterFragment
    } else {
        Reason::NotForUs
    })
}

/// Returns true for ICMPv6 to this node, which may report one of our tunnel packets.
#[inline(always)]
fn is_icmpv6<F: Family>(outer: &OuterHeaders<F>, family: &FamilyConfig) -> bool {
    F::PROTOCOL == Ipv6Header::PROTOCOL
        && outer.ip().protocol() == PROTO_ICMPV6
        && outer.is_for_us(family)
}

#[inline(always)]
fn outer_is_ours<F: Family>(outer: &OuterHeaders<F>, family: &FamilyConfig) -> Result<(), Reason> {
    if !outer.is_tunnel(family) {
        return Err(if outer.ip().may_hide_udp() {
            Reason::OuterUnusual
        } else {
            Reason::NotTunnel
        });
    }
    if !outer.is_for_us(family) {
        return Err(Reason::NotForUs);
    }
    if outer.ip().is_fragment() {
        return Err(Reason::OuterFragment);
    }
    outer.tunnel().vxlan(family)
}

/// Checks that the packet is for this host, complete, and that its outer checksum is verified or
/// absent.
#[inline(always)]
fn arrived_whole<F: Family>(skb: &Skb, outer: &OuterHeaders<F>) -> Result<(), Reason> {
    if skb.pkt_type() != PACKET_HOST || !outer.has_length(skb.len()) {
        return Err(Reason::NotPlain);
    }
    if !outer.ip().has_right_checksum() {
        return Err(Reason::OuterIpChecksum);
    }
    // The kernel merges only packets whose checksums are right.
    if outer.tunnel().has_checksum() && skb.gso_size() == 0 && !skb.has_verified_checksum() {
        return Err(Reason::OuterChecksum);
    }
    Ok(())
}

/// Puts a packet of a known flow into its pod.
#[inline(always)]
fn deliver<F: FlowMaps>(
    skb: &Skb,
    node: &Node,
    peer: &Peer,
    outer: &Outer,
    generation: u32,
    scratch: &mut Scratch<F>,
) -> Result<Reason, Reason> {
    let len = skb.len() - OuterHeaders::<F>::OVERHEAD as u32;
    scratch
        .frame
        .read(len, node.family::<F>().tunnel_ifindex, &mut scratch.packet)?;
    table::end_if_control::<F>(scratch, node)?;
    table::allows_replay::<F>(&scratch.packet, node)?;
    let packet = &scratch.packet;
    let usable = table::load_and_count::<F>(packet, len, generation, node, &mut scratch.flow);
    usable.ok_or(Reason::FlowUnknown)??;
    if !scratch.flow.arrival.same(&outer.arrival) {
        return Err(Reason::OuterDiffers);
    }
    let replay = Replay {
        skb,
        node,
        frame: &scratch.frame,
        packet,
        flow: &scratch.flow,
    };
    replay.deliver_inner(peer, outer.tos, &mut scratch.plain)
}
