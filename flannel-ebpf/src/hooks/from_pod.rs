//! Ingress of the host side of a pod's veth: replays packets of known flows and records packets of
//! unknown ones. Packets to the tunnel port of the pod's own node are the guard's.

use flannel_common::{
    abi::{
        fast::Bucket,
        reason::{Reason, Verdict},
    },
    packet::ETH_LEN,
};

use super::context::{self, Context, can_learn};
use crate::{
    flow::{
        close_guard, pending,
        replay::{self, Replay, ScratchRefs},
        scratch::{FlowMaps, Scratch},
        table, transport_checksum,
    },
    node::Node,
    packet::{family::by_family, skb::Skb},
    tunnel::source_filter::{check_double_tagged, check_pod_to_node},
};

#[inline(always)]
pub(crate) fn run(skb: &Skb) -> Reason {
    pending::clear(skb);
    let reason = match Context::read(skb) {
        Ok(context) => by_family!(skb, process(skb, &context), else Reason::OtherProtocol),
        Err(reason) => reason,
    };
    if matches!(reason.verdict(), Verdict::Pass) {
        guard(skb, reason)
    } else {
        reason
    }
}

/// Checks a packet that is left to the kernel, in any mode: it may be for the node's own tunnel
/// port.
#[inline(always)]
fn guard(skb: &Skb, found: Reason) -> Reason {
    let Ok(node) = Node::read() else { return found };
    if skb.is_of_vlan() {
        return found;
    }
    let double_tagged = [Reason::PodTunnel, Reason::RefusedPodTunnel];
    let checked = by_family!(
        skb,
        check_pod_to_node(skb, &node),
        else check_double_tagged(skb, double_tagged)
    );
    if matches!(checked, Reason::PodTunnel | Reason::RefusedPodTunnel) {
        checked
    } else {
        found
    }
}

#[inline(always)]
fn process<F: FlowMaps>(skb: &Skb, context: &Context) -> Reason {
    match handle::<F>(skb, context) {
        Reason::NoEcmpPath => replay::from_pod_by_ecmp::<F>(skb, &context.node),
        Reason::OtherRoute => replay::from_pod_to_outside::<F>(skb, &context.node),
        Reason::TcpControl => close_guard::judge::<F>(&context.node),
        handled => handled,
    }
}

/// A call for each family, not inlined: the stack of one program (512 bytes) is too small for both.
#[inline(never)]
fn handle<F: FlowMaps>(skb: &Skb, context: &Context) -> Reason {
    Reason::of(replay_or_record::<F>(skb, context))
}

#[inline(always)]
fn replay_or_record<F: FlowMaps>(skb: &Skb, context: &Context) -> Result<Reason, Reason> {
    let node = &context.node;
    let scratch = context::enter::<F, ETH_LEN>(skb, node)?;
    let packet = &scratch.packet;
    if packet.is_answer() {
        can_learn(skb.ifindex()).or(Err(Reason::TcpControl))?;
        return pending::record_answer::<F>(skb, node, packet);
    }
    let bucket = Bucket::of_pod(skb.ifindex());
    let flow = &mut scratch.flow;
    let Some(usable) =
        table::load_and_count::<F>(packet, skb.len(), context.generation, node, flow)
    else {
        pending::sample(&mut scratch.random)?;
        can_learn(skb.ifindex())?;
        return pending::record_new::<F>(skb, node, packet, bucket);
    };
    match usable {
        Ok(()) => {
            transport_checksum::check::<F>(skb, packet)?;
            let Scratch {
                sent,
                plain,
                identification,
                ecmp,
                path,
                redirected,
                ..
            } = scratch;
            let refs = ScratchRefs {
                sent,
                plain,
                identification,
                ecmp,
                path,
                redirected,
            };
            Replay {
                skb,
                node,
                frame: &scratch.frame,
                packet,
                flow: &scratch.flow,
            }
            .send(refs)
        }
        Err(reason @ (Reason::Refreshing | Reason::Handshake)) => {
            can_learn(skb.ifindex())?;
            pending::record_again::<F>(skb, node, packet, &scratch.flow, reason, bucket)
        }
        Err(reason) => Err(reason),
    }
}
