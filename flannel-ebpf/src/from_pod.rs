//! Ingress of the host side of a pod's veth: sends packets of known flows on as the kernel was seen to send them, and
//! notes packets of unknown ones.

use flannel_common::{
    fast::{Bucket, PodEntry},
    inner::{Frame as _, FrameV4},
    mode::Mode,
    packet::ETHERTYPE_IPV4,
    reason::Reason,
};

use crate::{
    maps::PODS,
    node::{Node, mode_word},
    notes, replay,
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
    let Some(at) = tables::place::<FrameV4>(&packet.end) else {
        sends(skb.ifindex())?;
        return notes::note_new::<FrameV4>(skb, &node, &packet, Bucket::of_pod(skb.ifindex()));
    };
    tables::copy(at, &mut room.flow);
    let known = Known::copied(at, &room.flow, &packet.end);
    match known.usable(mode.generation(), node.tick()) {
        Ok(()) => replay::from_pod(skb, &node, &room.frame, &mut room.sent, &packet, &known),
        Err(Reason::Refreshing) => {
            sends(skb.ifindex())?;
            notes::note_again::<FrameV4>(skb, &node, &packet)
        }
        Err(reason) => Err(reason),
    }
}

/// Packets of the pod may be noted.
#[inline(always)]
fn sends(ifindex: u32) -> Result<(), Reason> {
    // SAFETY: the value is read at once; an element freed meanwhile is not reused before the program ends (RCU).
    match unsafe { PODS.get(ifindex) } {
        Some(pod) if pod.has(PodEntry::SENDS) => Ok(()),
        _ => Err(Reason::NotLearned),
    }
}
