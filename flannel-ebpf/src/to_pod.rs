//! Egress of the host side of a pod's veth: learns what the kernel did to a noted packet on its way into the pod.

use flannel_common::{
    fast::PodEntry,
    flow::Exit,
    inner::{Frame as _, FrameV4},
    mode::Mode,
    outer::same6,
    packet::ETHERTYPE_IPV4,
    reason::Reason,
};

use crate::{
    learn::{self, Left},
    maps::PODS,
    node::{Node, mode_word},
    notes,
    skb::Skb,
    tables,
};

#[inline(always)]
pub(crate) fn run(skb: &Skb) -> Result<Reason, Reason> {
    let mode = mode_word();
    if mode.mode() != Mode::Fast {
        notes::clear(skb);
        return Err(Reason::ModeKernel);
    }
    if skb.vlan_present() != 0 || skb.protocol() != u32::from(u16::from_ne_bytes(ETHERTYPE_IPV4)) {
        notes::clear(skb);
        return Err(Reason::OtherProtocol);
    }
    let node = Node::read()?;
    let note = notes::take::<FrameV4>(skb, &node);
    let room = tables::room::<FrameV4>()?;
    skb.load_frame(0, &mut room.frame)?;
    let packet = room.frame.plain(skb.len(), skb.ifindex())?;
    if packet.is_control {
        learn::close::<FrameV4>(&packet, &node);
        return Err(Reason::TcpControl);
    }
    let note = note?;
    // SAFETY: the value is copied at once; an element freed meanwhile is not reused before the program ends (RCU).
    let pod = *unsafe { PODS.get(skb.ifindex()) }.ok_or(Reason::OtherReceiver)?;
    if !pod.has(PodEntry::RECEIVES) || !same6(packet.addresses.destination, pod.mac) {
        return Err(Reason::OtherReceiver);
    }
    let left = Left {
        generation: mode.generation(),
        way: Exit::POD,
        mtu: pod.mtu,
        mark: 0,
        priority: 0,
        addresses: packet.addresses,
    };
    learn::learn::<FrameV4>(skb, &node, note, &packet, &left, &mut room.flow)
}
