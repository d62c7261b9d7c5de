//! Learning a flow: a recorded packet reached an exit hook, so what the kernel did to it applies to
//! the next packets of its flow.

use aya_ebpf::{bindings::BPF_ANY, helpers::generated::bpf_get_prandom_u32};
use flannel_common::{
    flow::{Egress, Flow, FlowAction},
    flow_key::FlowKey,
    inner::{FrameAddresses, ParsedPacket},
    packet::PROTO_TCP,
    pending::PendingPacket,
    reason::Reason,
    tick::jittered,
};

use super::{
    conntrack,
    scratch::FlowMaps,
    table::{self, FlowRef},
};
use crate::{
    node::{self, Node},
    packet::skb::Skb,
};

/// State of a recorded packet at the exit hook.
pub(crate) struct EgressState {
    pub(crate) generation: u32,
    pub(crate) egress: Egress,
    pub(crate) mtu: u32,
    pub(crate) mark: u32,
    pub(crate) priority: u32,
    pub(crate) hash: u32,
    pub(crate) flow_label: u32,
    pub(crate) addresses: FrameAddresses,
    pub(crate) takes_merged: bool,
}

/// Ends the reverse flow of a TCP packet with SYN, FIN or RST at an exit hook.
#[inline(always)]
pub(crate) fn close_if_control<F: FlowMaps>(packet: &ParsedPacket<F::Address>, node: &Node) -> Result<(), Reason> {
    if packet.is_control {
        table::end::<F>(&packet.key.reversed(), packet.is_opening, node);
        return Err(Reason::TcpControl);
    }
    Ok(())
}

/// Learns a flow from a recorded packet that left as `packet`. The flow is built in `flow`.
#[inline(always)]
pub(crate) fn learn<F: FlowMaps>(
    skb: &Skb,
    node: &Node,
    pending: &PendingPacket<F::Address>,
    packet: &ParsedPacket<F::Address>,
    state: &EgressState,
    flow: &mut Flow<F::Address>,
) -> Result<Reason, Reason> {
    let ttl_step = pending.became(packet)?;
    let tracked = conntrack::is_tracked::<F>(skb, pending, packet)?;
    let is_tcp = packet.key.protocol == u32::from(PROTO_TCP);
    flow.action = FlowAction {
        out: packet.key,
        generation: state.generation,
        mark: state.mark,
        priority: state.priority,
        hash: state.hash,
        flow_label: state.flow_label,
        entry: pending.addresses,
        exit: state.addresses,
        mtu: state.mtu as u16,
        egress: state.egress,
        ttl_step,
        needs_mirror: u8::from(is_tcp || !tracked),
        takes_merged: u8::from(state.takes_merged),
        tos: pending.fingerprint.tos,
        ttl: pending.fingerprint.ttl,
    };
    write::<F>(&pending.key, flow, node)
}

/// Writes the flow, and in it and its reverse flow until when each may rely on the other.
#[inline(always)]
fn write<F: FlowMaps>(key: &FlowKey<F::Address>, flow: &mut Flow<F::Address>, node: &Node) -> Result<Reason, Reason> {
    let now = node.tick();
    let found = FlowRef::find::<F>(key);
    if found.as_ref().is_some_and(|found| found.is_closed(now)) {
        return Err(Reason::FlowClosed);
    }
    let reverse =
        FlowRef::find::<F>(&flow.action.mirror_key()).filter(|reverse| reverse.is_current(flow.action.generation, now));
    if let Some(reverse) = &reverse
        && !FlowAction::is_mirrored_by(key, &reverse.value.action)
    {
        // The two are not of one connection: trust neither.
        reverse.forget();
        if let Some(found) = &found {
            found.forget();
        }
        return Err(Reason::MirrorDiffers);
    }
    // SAFETY: the helper takes nothing and returns a number.
    let until = jittered(now, node::fast()?.interval, unsafe { bpf_get_prandom_u32() });
    let reverse_until = reverse.as_ref().map(|reverse| reverse.value.seen.moment());
    match found {
        Some(found) if found.value.action.same(&flow.action) => found.extend(until, reverse_until),
        _ => {
            flow.stamp(flow.action.check(key), now, until, reverse_until);
            let flow: &Flow<_> = flow;
            F::flows().insert(key, flow, u64::from(BPF_ANY)).or(Err(Reason::TableRefused))?;
        }
    }
    if let Some(reverse) = reverse {
        reverse.set_reverse(Some(until));
    }
    Ok(Reason::Learned)
}
