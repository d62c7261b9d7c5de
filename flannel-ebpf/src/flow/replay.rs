//! Replaying a flow: a packet of a known flow is treated as the kernel treated the packet it was
//! learned from.
//!
//! All gates come before the first change to the packet. Peer data is looked up for every packet
//! and never kept in a flow.

use flannel_common::{
    abi::{entry_state::EntryState, program::SELF_SENT, reason::Reason},
    flow::{Egress, Flow, FlowAction},
    flow::{
        class::{Class, PathKey},
        flow_key::FlowKey,
    },
    packet::{ETH_LEN, ETHERTYPE_IPV4, ETHERTYPE_IPV6, PROTO_UDP, decapsulated_tos, source_port},
    packet::{
        checksum::address_difference,
        inner::{Frame, ParsedPacket},
        ip::Varying,
        outer::OuterHeaders,
    },
};

use super::{
    outside,
    scratch::{self, Encapsulated, FlowMaps, PlainHeaders},
};
use crate::{
    node::{Node, Peer},
    packet::skb::{Skb, redirect, redirect_neigh, redirect_peer},
    traffic,
    tunnel::{
        ecmp::{self, PendingEcmp},
        encapsulation,
        path_probe::Path,
        redirected::Redirected,
    },
};

/// A packet and the usable flow it belongs to.
pub(crate) struct Replay<'a, F: FlowMaps> {
    pub(crate) skb: &'a Skb,
    pub(crate) node: &'a Node,
    pub(crate) frame: &'a Frame<F>,
    pub(crate) packet: &'a ParsedPacket<F::Address>,
    pub(crate) flow: &'a Flow<F::Address>,
}

/// Parts of the scratch in which the headers of a packet from a pod are composed.
pub(crate) struct ScratchRefs<'a, F> {
    pub(crate) sent: &'a mut Encapsulated<F>,
    pub(crate) plain: &'a mut PlainHeaders<F>,
    pub(crate) identification: &'a mut u16,
    pub(crate) ecmp: &'a mut PendingEcmp,
    pub(crate) path: &'a mut PathKey,
    pub(crate) redirected: &'a mut Redirected,
}

impl<F: FlowMaps> Replay<'_, F> {
    /// Sends a packet from a pod into the tunnel, to a direct peer, or into another pod of this
    /// node. Fails with [`Reason::OtherRoute`] for one that goes outside.
    #[inline(always)]
    pub(crate) fn send(&self, refs: ScratchRefs<'_, F>) -> Result<Reason, Reason> {
        self.matches_flow()?;
        match self.action().egress {
            Egress::TUNNEL => self.encapsulate(refs)?,
            Egress::DIRECT => self.send_direct(refs.plain)?,
            Egress::POD => {
                if !self.node.unchanged() {
                    return Err(Reason::NotConfigured);
                }
                self.put_into_pod(refs.plain, self.packet.fingerprint.tos)?;
            }
            // The way is asked for by `from_pod_to_outside`.
            Egress::OUTSIDE => return Err(Reason::OtherRoute),
            _ => return Err(Reason::FlowUnknown),
        }
        Ok(Reason::Replayed)
    }

    /// Puts the inner frame of a tunnel packet into its pod.
    #[inline(always)]
    pub(crate) fn deliver_inner(
        &self,
        peer: &Peer,
        outer_tos: u8,
        plain: &mut PlainHeaders<F>,
    ) -> Result<Reason, Reason> {
        self.can_deliver()?;
        let tos =
            decapsulated_tos(outer_tos, self.packet.fingerprint.tos).ok_or(Reason::Congested)?;
        if !self.node.unchanged() || !peer.unchanged() {
            return Err(Reason::PeerChanging);
        }
        encapsulation::remove_outer::<F>(self.skb)?;
        self.skb.drop_outer_checksum();
        self.put_into_pod(plain, tos)?;
        Ok(Reason::Replayed)
    }

    /// Puts a packet of a direct peer, or of a host outside, into its pod. It came with a link
    /// header of `LINK` bytes: Ethernet or none.
    #[inline(always)]
    pub(crate) fn deliver<const LINK: usize>(
        &self,
        peer: Option<&Peer>,
        plain: &mut PlainHeaders<F>,
    ) -> Result<Reason, Reason> {
        self.can_deliver()?;
        if !self.node.unchanged() || peer.is_some_and(|peer| !peer.unchanged()) {
            return Err(Reason::PeerChanging);
        }
        if LINK != ETH_LEN && !self.skb.add_link_header() {
            return Err(Reason::RoomRefused);
        }
        self.put_into_pod(plain, self.packet.fingerprint.tos)?;
        Ok(Reason::Replayed)
    }

    #[inline(always)]
    const fn action(&self) -> &FlowAction<F::Address> {
        &self.flow.action
    }

    #[inline(always)]
    fn is_translated(&self) -> bool {
        !self.packet.key.same_tuple(&self.action().out)
    }

    /// Checks that the flow leads into a pod, which takes this packet.
    #[inline(always)]
    fn can_deliver(&self) -> Result<(), Reason> {
        self.matches_flow()?;
        if self.action().egress.0 != Egress::POD.0 {
            return Err(Reason::FlowUnknown);
        }
        if self.skb.gso_size() != 0 && (self.packet.is_udp() || self.action().takes_merged == 0) {
            return Err(Reason::Merged);
        }
        Ok(())
    }

    /// Checks that the packet is as the flow's were, no larger than its egress takes, and can be
    /// rewritten.
    #[inline(always)]
    fn matches_flow(&self) -> Result<(), Reason> {
        let (skb, packet, action) = (self.skb, self.packet, self.action());
        if !action.entry.same(&packet.addresses) {
            return Err(Reason::FrameDiffers);
        }
        if !action.has_fields(packet.fingerprint.tos, packet.fingerprint.ttl)
            || self.frame.ip().flow_label() != action.flow_label
        {
            return Err(Reason::FieldsDiffer);
        }
        if packet.segment_len(skb.gso_size()) > u32::from(action.mtu) {
            return Err(Reason::TooBig);
        }
        // IPv6 has no header checksum, so a changed address changes the sum of the packet
        // (CHECKSUM_COMPLETE), which the kernel's helper does not update.
        let is_v6 = F::ETHERTYPE[0] == ETHERTYPE_IPV6[0];
        if is_v6 && self.is_translated() && skb.whole_sum().is_some() {
            return Err(Reason::ChecksumComplete);
        }
        Ok(())
    }

    #[inline(always)]
    fn encapsulate(&self, refs: ScratchRefs<'_, F>) -> Result<(), Reason> {
        let (skb, node, frame, packet, action) =
            (self.skb, self.node, self.frame, self.packet, self.action());
        let ScratchRefs {
            sent,
            identification,
            ecmp,
            path,
            redirected,
            ..
        } = refs;
        let family = node.family::<F>();
        frame.ip().write_rewritten(
            &packet.key,
            &action.out,
            action.ttl_step,
            packet.fingerprint.tos,
            &mut sent.ip,
        );
        let peer = Peer::find::<F>(sent.ip.destination_subnet(family))?;
        if !peer.word().has(EntryState::PLAIN) {
            return Err(Reason::PeerNotPlain);
        }
        let (entry, class) = (peer.entry(), action.class());
        let largest = self.largest(&peer, class, path);
        if largest == 0 {
            return Err(Reason::PathUnseen);
        }
        let whole = skb.len() + (OuterHeaders::<F>::OVERHEAD - ETH_LEN) as u32;
        let segment = packet.segment_len(skb.gso_size()) + OuterHeaders::<F>::OVERHEAD as u32;
        if whole > u32::from(u16::MAX) || segment > largest {
            return Err(Reason::TooBig);
        }
        let is_translated = self.is_translated();
        let varying = self.varying(identification);
        sent.outer.write(family, entry, &varying);
        let (oif, next_hop) = (entry.oif, entry.next_hop);
        if !node.unchanged() || !peer.unchanged() {
            return Err(Reason::PeerChanging);
        }
        if is_translated {
            rewrite_transport::<F>(skb, &packet.key, &action.out)?;
        }
        if peer.has_ecmp_paths() {
            let port = varying.source_port;
            return Err(ecmp::defer(&peer, port, segment, class, ecmp));
        }
        let len = skb.len();
        if let Err(reason) = encapsulation::make_room::<F>(skb) {
            undo::<F>(skb, packet, action)?;
            return Err(reason);
        }
        traffic::count_sent::<F>(peer.traffic(), len);
        if !skb.store(0, sent) {
            return Err(Reason::StoreFailed);
        }
        skb.set_class(action.mark, action.priority);
        redirected.mark(skb, node.now);
        redirect_neigh::<F>(oif, next_hop);
        Ok(())
    }

    /// The largest outer packet to this peer; 0 while no path to it was seen.
    #[inline(always)]
    fn largest(&self, peer: &Peer, class: Class, key: &mut PathKey) -> u32 {
        if peer.has_ecmp_paths() {
            return u32::MAX;
        }
        Path { peer, class, key }
            .validated_len::<F>(self.node.now)
            .min(peer.entry().mtu)
    }

    #[inline(always)]
    fn varying(&self, identification: &mut u16) -> Varying {
        let (skb, family) = (self.skb, self.node.family::<F>());
        let hash = match skb.carried_hash() {
            Some(hash) => hash,
            // The hash that the kernel's device used for a packet with these addresses, ports and
            // label, behind NAT.
            None => self.action().egress_data,
        };
        let source_port = source_port(hash, family.source_port_min, family.source_port_max);
        Varying {
            frame_len: skb.len(),
            inner_tos: self.packet.fingerprint.tos,
            id: F::identification(identification, skb.segments()),
            source_port,
        }
    }

    /// Sends the packet to a direct peer, with the Ethernet addresses of the kernel's packet. A
    /// device without Ethernet gets it without that header: `bpf_redirect()` removes it
    /// (`__bpf_redirect_no_mac()` in [net/core/filter.c, Linux
    /// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/filter.c)).
    #[inline(always)]
    fn send_direct(&self, plain: &mut PlainHeaders<F>) -> Result<(), Reason> {
        let action = self.action();
        plain.write(self, self.packet.fingerprint.tos);
        let subnet = plain.ip.destination_subnet(self.node.family::<F>());
        let peer = Peer::direct::<F>(subnet, action.out.device).ok_or(Reason::NoPeer)?;
        let remote = peer.entry().vtep;
        if !self.node.unchanged() || !peer.unchanged() {
            return Err(Reason::PeerChanging);
        }
        // Devices without a fixed far end carry only IPv4.
        let is_v4 = F::ETHERTYPE[0] == ETHERTYPE_IPV4[0];
        if is_v4 && peer.word().has(EntryState::KEYED) && !self.skb.set_tunnel_key(remote) {
            return Err(Reason::RewriteFailed);
        }
        self.leave(plain)?;
        traffic::count_sent::<F>(peer.traffic(), self.skb.len());
        Ok(())
    }

    /// Sends the packet with these headers by the device of its flow.
    #[inline(always)]
    fn leave(&self, plain: &PlainHeaders<F>) -> Result<(), Reason> {
        let action = self.action();
        plain.apply(self)?;
        self.skb.set_class(action.mark, action.priority);
        self.skb.set_tc_index(SELF_SENT);
        redirect(action.out.device);
        Ok(())
    }

    #[inline(always)]
    fn put_into_pod(&self, plain: &mut PlainHeaders<F>, tos: u8) -> Result<(), Reason> {
        plain.write(self, tos);
        plain.apply(self)?;
        if !self.skb.scrub() {
            return Err(Reason::RewriteFailed);
        }
        traffic::count_put_into_pod(self.action().egress_data, self.skb.len());
        redirect_peer(self.action().out.device);
        Ok(())
    }
}

impl<F: FlowMaps> PlainHeaders<F> {
    /// Composes the headers with which the kernel sent the flow's packet.
    #[inline(always)]
    fn write(&mut self, replay: &Replay<'_, F>, tos: u8) {
        let action = replay.action();
        action.exit.write(&mut self.ethernet, F::ETHERTYPE);
        let from = replay.frame.ip();
        from.write_rewritten(
            &replay.packet.key,
            &action.out,
            action.ttl_step,
            tos,
            &mut self.ip,
        );
    }

    /// Writes them to the packet, with the ports and the checksum that belong to them.
    #[inline(always)]
    fn apply(&self, replay: &Replay<'_, F>) -> Result<(), Reason> {
        let skb = replay.skb;
        if replay.is_translated() {
            rewrite_transport::<F>(skb, &replay.packet.key, &replay.action().out)?;
        }
        // The sum of a whole IPv6 packet (CHECKSUM_COMPLETE) includes the header; rewriting an IPv4
        // header does not change the sum. Translated packets are left to the kernel
        // (`matches_flow`).
        if F::ETHERTYPE[0] == ETHERTYPE_IPV6[0] {
            skb.update_whole_sum(replay.frame.ip().difference(&self.ip));
        }
        if skb.store(0, self) {
            Ok(())
        } else {
            Err(Reason::RewriteFailed)
        }
    }
}

/// Sends the packet of a pod whose ECMP path was left open, or restores it. Not inlined: the stack
/// of one program (512 bytes) is too small.
#[inline(never)]
pub(crate) fn from_pod_by_ecmp<F: FlowMaps>(skb: &Skb, node: &Node) -> Reason {
    Reason::of(send_by_ecmp::<F>(skb, node))
}

#[inline(always)]
fn send_by_ecmp<F: FlowMaps>(skb: &Skb, node: &Node) -> Result<Reason, Reason> {
    let scratch = scratch::get::<F>()?;
    let (action, packet) = (&scratch.flow.action, &scratch.packet);
    if let Err(reason) = ecmp::take_path::<F>(skb, node, &scratch.ecmp, &mut scratch.path) {
        undo::<F>(skb, packet, action)?;
        return Err(reason);
    }
    if !skb.store(0, &scratch.sent) {
        return Err(Reason::StoreFailed);
    }
    traffic::count_sent::<F>(
        scratch.ecmp.traffic.into(),
        skb.len() - OuterHeaders::<F>::OVERHEAD as u32,
    );
    skb.set_class(action.mark, action.priority);
    scratch.redirected.mark(skb, node.now);
    Ok(Reason::Replayed)
}

/// Sends the packet of a pod to a host outside, if the kernel's FIB gives it the way of its flow.
/// Not inlined: the stack of one program (512 bytes) is too small.
#[inline(never)]
pub(crate) fn from_pod_to_outside<F: FlowMaps>(skb: &Skb, node: &Node) -> Reason {
    Reason::of(send_outside::<F>(skb, node))
}

#[inline(always)]
fn send_outside<F: FlowMaps>(skb: &Skb, node: &Node) -> Result<Reason, Reason> {
    let scratch = scratch::get::<F>()?;
    let replay = Replay {
        skb,
        node,
        frame: &scratch.frame,
        packet: &scratch.packet,
        flow: &scratch.flow,
    };
    outside::is_on_its_way::<F>(replay.skb, replay.packet, &replay.flow.action)?;
    if !node.unchanged() {
        return Err(Reason::NotConfigured);
    }
    scratch.plain.write(&replay, replay.packet.fingerprint.tos);
    replay.leave(&scratch.plain)?;
    Ok(Reason::Replayed)
}

/// Restores the ports of a packet that the flow translates. Its IP header was not written yet.
#[inline(always)]
fn undo<F: FlowMaps>(
    skb: &Skb,
    packet: &ParsedPacket<F::Address>,
    action: &FlowAction<F::Address>,
) -> Result<(), Reason> {
    if packet.key.same_tuple(&action.out) {
        Ok(())
    } else {
        rewrite_transport::<F>(skb, &action.out, &packet.key)
    }
}

/// Replaces the ports of a packet by those of `to`, and updates the transport checksum for
/// addresses and ports.
#[inline(always)]
fn rewrite_transport<F: FlowMaps>(
    skb: &Skb,
    from: &FlowKey<F::Address>,
    to: &FlowKey<F::Address>,
) -> Result<(), Reason> {
    let is_udp = from.protocol == u32::from(PROTO_UDP);
    let checksum_at = Frame::<F>::TRANSPORT_AT + if is_udp { 6 } else { 16 };
    let difference = address_difference(from, to);
    let done = skb.update_checksum(checksum_at, difference, [from.ports, to.ports], is_udp)
        && skb.store(Frame::<F>::TRANSPORT_AT, &to.ports);
    if done {
        Ok(())
    } else {
        Err(Reason::RewriteFailed)
    }
}
