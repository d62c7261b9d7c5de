//! Ingress of the host side of a pod's veth: sends packets of known flows on as the kernel was seen to send them, and
//! notes packets of unknown ones. What a pod sends to the tunnel port of its own node is the guard's.

use flannel_common::{
    fast::{Bucket, PodEntry},
    ip::{Ipv4Header, Ipv6Header},
    mode::{Mode, ModeWord},
    reason::{Reason, Verdict},
};

use crate::{
    family::Family as _,
    guard, legs,
    maps::PODS,
    node::{Node, mode_word},
    notes,
    replay::{self, Leaves},
    skb::Skb,
    tables::{self, Known, Scratch, Tables},
};

#[inline(always)]
pub(crate) fn run(skb: &Skb) -> Result<Reason, Reason> {
    notes::clear(skb);
    let sent_on = Reason::of(send_on(skb));
    match sent_on.verdict() {
        Verdict::Pass => Err(guarded(skb, sent_on)),
        _ => Ok(sent_on),
    }
}

/// What is left to the kernel, in whatever mode, is the guard's: the pod may mean the node's own tunnel port.
#[inline(always)]
fn guarded(skb: &Skb, found: Reason) -> Reason {
    let Ok(node) = Node::read() else { return found };
    let looked = match skb.protocol() {
        _ if skb.is_of_vlan() => found,
        Ipv4Header::PROTOCOL => guard::pod_to_node::<Ipv4Header>(skb, &node),
        Ipv6Header::PROTOCOL => guard::pod_to_node::<Ipv6Header>(skb, &node),
        _ => guard::tag_in_tag(skb, [Reason::PodTunnel, Reason::RefusedPodTunnel]),
    };
    if matches!(looked, Reason::PodTunnel | Reason::RefusedPodTunnel) { looked } else { found }
}

#[inline(always)]
fn send_on(skb: &Skb) -> Result<Reason, Reason> {
    let mode = mode_word();
    if mode.mode() != Mode::Fast {
        return Err(Reason::ModeKernel);
    }
    if skb.vlan_present() != 0 {
        return Err(Reason::VlanTagged);
    }
    let node = Node::read()?;
    match skb.protocol() {
        Ipv4Header::PROTOCOL => Ok(follow::<Ipv4Header>(skb, &node, mode)),
        Ipv6Header::PROTOCOL => Ok(follow::<Ipv6Header>(skb, &node, mode)),
        _ => Err(Reason::OtherProtocol),
    }
}

/// What lacks nothing but its leg gets that here.
#[inline(always)]
fn follow<F: Tables>(skb: &Skb, node: &Node, mode: ModeWord) -> Reason {
    match look::<F>(skb, node, mode) {
        Reason::NoLeg => legs::replay::<F>(skb, node),
        looked => looked,
    }
}

/// One function for each family, called, not inlined: the stack of one program is too small for both.
#[inline(never)]
fn look<F: Tables>(skb: &Skb, node: &Node, mode: ModeWord) -> Reason {
    Reason::of(treat::<F>(skb, node, mode))
}

#[inline(always)]
fn treat<F: Tables>(skb: &Skb, node: &Node, mode: ModeWord) -> Result<Reason, Reason> {
    let scratch = tables::scratch::<F>()?;
    skb.load_frame(0, &mut scratch.frame)?;
    scratch.frame.read(skb.len(), skb.ifindex(), &mut scratch.packet)?;
    let packet = &scratch.packet;
    if packet.is_control {
        tables::end::<F>(&packet.end, packet.is_opening, node);
        return Err(Reason::TcpControl);
    }
    node.allows_replay()?;
    let Some(at) = tables::place::<F>(&packet.end) else {
        notes::take_turn(&mut scratch.turn)?;
        sends(skb.ifindex())?;
        return notes::note_new::<F>(skb, node, packet, Bucket::of_pod(skb.ifindex()));
    };
    tables::copy(at, &mut scratch.flow);
    let known = Known::copied(at, &scratch.flow, &packet.end);
    match known.usable(mode.generation(), node) {
        Ok(()) => {
            let Scratch { sent, bare, count, waiting, path, own, .. } = scratch;
            let leaves = Leaves { sent, bare, count, waiting, path, own };
            replay::from_pod(skb, node, &scratch.frame, leaves, packet, &known)
        }
        Err(Reason::Refreshing) => {
            sends(skb.ifindex())?;
            notes::note_again::<F>(skb, node, packet)
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
