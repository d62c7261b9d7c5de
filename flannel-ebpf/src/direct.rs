//! Mode `fast` on the external interface without a tunnel: packets between our pods and those of peers on our own link, to
//! which a plain route leads.
//!
//! `from_underlay` and `to_underlay` come here with every packet that is not of the tunnel. It is followed only if the far
//! end lies in the subnet of a direct peer: what enters the cluster from outside stays with the kernel.

use flannel_common::{
    fast::{Bucket, FastConfig},
    flow::Exit,
    mode::{Mode, ModeWord},
    packet::ETH_LEN,
    reason::Reason,
};

use crate::{
    learn::{self, Left},
    node::{self, Node, Peer, mode_word},
    notes, replay,
    skb::{PACKET_HOST, Skb},
    tables::{self, Known, Tables},
};

/// Ingress: puts packets of known flows into their pod, and notes those of unknown ones. Called, not inlined: the stack of
/// one program is too small.
#[inline(never)]
pub(crate) fn from_peer<F: Tables>(skb: &Skb, node: &Node) -> Result<Reason, Reason> {
    let mode = fast()?;
    let ip: &F = skb.view(ETH_LEN).ok_or(Reason::NotTunnel)?;
    let subnet = ip.source_subnet(node.family::<F>());
    let peer = Peer::direct::<F>(subnet, skb.ifindex()).ok_or(Reason::NotTunnel)?;
    if skb.pkt_type() != PACKET_HOST {
        return Err(Reason::NotPlain);
    }
    let scratch = tables::scratch::<F>()?;
    skb.load_frame(0, &mut scratch.frame)?;
    scratch.frame.read(skb.len(), skb.ifindex(), &mut scratch.packet)?;
    let packet = &scratch.packet;
    if packet.is_control {
        tables::end::<F>(&packet.end, packet.is_opening, node);
        return Err(Reason::TcpControl);
    }
    node.allows_replay()?;
    if !node::fast()?.has(FastConfig::FROM_UNDERLAY) {
        return Err(Reason::NotLearned);
    }
    let Some(at) = tables::place::<F>(&packet.end) else {
        notes::take_turn(&mut scratch.turn)?;
        return notes::note_new::<F>(skb, node, packet, Bucket::of_peer(subnet.unwrap_or(0)));
    };
    tables::copy(at, &mut scratch.flow);
    let known = Known::copied(at, &scratch.flow, &packet.end);
    match known.usable(mode.generation(), node) {
        Ok(()) => replay::from_link(skb, node, &peer, (&scratch.frame, &mut scratch.bare), packet, &known),
        Err(Reason::Refreshing) => notes::note_again::<F>(skb, node, packet),
        Err(reason) => Err(reason),
    }
}

/// Egress: learns from noted packets. Called for the same reason.
#[inline(never)]
pub(crate) fn to_peer<F: Tables>(skb: &Skb, node: &Node) -> Result<Reason, Reason> {
    let mode = fast()?;
    let note = notes::take::<F>(skb, node);
    let ip: &F = skb.view(ETH_LEN).ok_or(Reason::NotTunnel)?;
    let subnet = ip.destination_subnet(node.family::<F>());
    if Peer::direct::<F>(subnet, skb.ifindex()).is_none() {
        return Err(Reason::NotTunnel);
    }
    let scratch = tables::scratch::<F>()?;
    skb.load_frame(0, &mut scratch.frame)?;
    scratch.frame.read(skb.len(), skb.ifindex(), &mut scratch.packet)?;
    let packet = &scratch.packet;
    if packet.is_control {
        learn::close::<F>(packet, node);
        return Err(Reason::TcpControl);
    }
    let note = note?;
    let left = Left {
        generation: mode.generation(),
        way: Exit::DIRECT,
        mtu: skb.device_mtu(),
        mark: skb.mark(),
        priority: skb.priority(),
        hash: 0,
        flow_label: scratch.frame.ip().flow_label(),
        addresses: packet.addresses,
        takes_merged: true,
    };
    learn::learn::<F>(skb, node, note, packet, &left, &mut scratch.flow)
}

/// The mode, if it is `fast`.
#[inline(always)]
fn fast() -> Result<ModeWord, Reason> {
    let mode = mode_word();
    if mode.mode() == Mode::Fast { Ok(mode) } else { Err(Reason::NotTunnel) }
}
