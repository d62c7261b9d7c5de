//! Egress of the host side of a pod's veth: learns what the kernel did to a noted packet on its way into the pod.

use flannel_common::{
    fast::PodEntry,
    flow::Exit,
    ip::{Ipv4Header, Ipv6Header},
    mode::{Mode, ModeWord},
    reason::Reason,
};

use crate::{
    family::Family as _,
    learn::{self, Left},
    maps::PODS,
    node::{Node, mode_word},
    notes,
    skb::Skb,
    tables::{self, Tables},
};

#[inline(always)]
pub(crate) fn run(skb: &Skb) -> Result<Reason, Reason> {
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
    let note = notes::take::<F>(skb, node);
    let scratch = tables::scratch::<F>()?;
    skb.load_frame(0, &mut scratch.frame)?;
    scratch.frame.read(skb.len(), skb.ifindex(), &mut scratch.packet)?;
    let packet = &scratch.packet;
    if packet.is_control {
        learn::close::<F>(packet, node);
        return Err(Reason::TcpControl);
    }
    let note = note?;
    // SAFETY: the value is copied at once; an element freed meanwhile is not reused before the program ends (RCU).
    let pod = *unsafe { PODS.get(skb.ifindex()) }.ok_or(Reason::OtherReceiver)?;
    if !pod.has(PodEntry::RECEIVES) || !packet.addresses.are_to(pod.mac) {
        return Err(Reason::OtherReceiver);
    }
    let left = Left {
        generation: mode.generation(),
        way: Exit::POD,
        mtu: pod.mtu,
        mark: 0,
        priority: 0,
        hash: 0,
        flow_label: scratch.frame.ip().flow_label(),
        addresses: packet.addresses,
        takes_merged: pod.has(PodEntry::MERGED),
    };
    learn::learn::<F>(skb, node, note, packet, &left, &mut scratch.flow)
}
