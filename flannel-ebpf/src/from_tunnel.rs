//! Ingress of the tunnel device: notes packets the device has decapsulated. It takes none; those of known flows never
//! come here, because `from_underlay` takes them.
//!
//! Not on the external interface: between that and here the kernel queues packets, merges and splits them, so what
//! enters there is not what leaves here. From here to the pod it is.

use flannel_common::{
    inner::{Frame as _, FrameV4},
    mode::Mode,
    packet::ETHERTYPE_IPV4,
    peer::subnet_index_v4,
    reason::Reason,
};

use crate::{
    node::{Node, mode_word},
    notes,
    skb::Skb,
    tables::{self, Known},
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
    if skb.protocol() != u32::from(u16::from_ne_bytes(ETHERTYPE_IPV4)) {
        return Err(Reason::OtherProtocol);
    }
    let node = Node::read()?;
    let room = tables::room::<FrameV4>()?;
    skb.load_frame(0, &mut room.frame)?;
    let packet = room.frame.plain(skb.len(), skb.ifindex())?;
    if packet.is_control {
        tables::end::<FrameV4>(&packet.end, packet.is_opening(), node.tick(), node.fast().interval);
        return Err(Reason::TcpControl);
    }
    let Some(known) = Known::find::<FrameV4>(&packet.end) else {
        let subnet = subnet_index_v4(node.v4(), packet.end.source[0].to_ne_bytes());
        return notes::note_new::<FrameV4>(skb, &node, &packet, notes::bucket_of_peer(subnet));
    };
    match known.usable(mode.generation(), node.tick()) {
        Ok(()) => Err(Reason::NotFollowed),
        Err(Reason::Refreshing) => notes::note_again::<FrameV4>(skb, &node, &packet),
        Err(reason) => Err(reason),
    }
}
