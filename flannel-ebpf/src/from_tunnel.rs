//! Ingress of the tunnel device: notes packets the device has decapsulated. It takes none; those of known flows never
//! come here, because `from_underlay` takes them.
//!
//! Not on the external interface: between that and here the kernel queues packets, merges and splits them, so what
//! enters there is not what leaves here. From here to the pod it is.

use flannel_common::{
    fast::{Bucket, FastConfig},
    ip::{Ipv4Header, Ipv6Header},
    mode::{Mode, ModeWord},
    reason::Reason,
};

use crate::{
    family::Family as _,
    node::{self, Node, mode_word},
    notes,
    skb::Skb,
    tables::{self, Known, Tables},
};

#[inline(always)]
pub(crate) fn run(skb: &Skb) -> Result<Reason, Reason> {
    notes::clear(skb);
    let mode = mode_word();
    if mode.mode() != Mode::Fast {
        return Err(Reason::ModeKernel);
    }
    if skb.vlan_present() != 0 {
        return Err(Reason::VlanTagged);
    }
    let node = Node::read()?;
    match skb.protocol() {
        Ipv4Header::PROTOCOL => look::<Ipv4Header>(skb, &node, mode),
        Ipv6Header::PROTOCOL => look::<Ipv6Header>(skb, &node, mode),
        _ => Err(Reason::OtherProtocol),
    }
}

/// One function for each family, called, not inlined: the stack of one program is too small for both.
#[inline(never)]
fn look<F: Tables>(skb: &Skb, node: &Node, mode: ModeWord) -> Result<Reason, Reason> {
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
    let Some(known) = Known::find::<F>(&packet.end) else {
        notes::take_turn(&mut scratch.turn)?;
        let subnet = scratch.frame.ip().source_subnet(node.family::<F>());
        return notes::note_new::<F>(skb, node, packet, Bucket::of_peer(subnet.unwrap_or(0)));
    };
    match known.usable(mode.generation(), node) {
        Ok(()) => Err(Reason::NotFollowed),
        Err(Reason::Refreshing) => notes::note_again::<F>(skb, node, packet),
        Err(reason) => Err(reason),
    }
}
