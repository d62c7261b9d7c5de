//! Learning: a noted packet came out, so what was done to it is done to the next ones of its flow.

use aya_ebpf::{bindings::BPF_ANY, helpers::generated::bpf_get_prandom_u32};
use flannel_common::{
    end::End,
    flow::{Body, Exit, Flow},
    inner::{FrameAddresses, Plain},
    note::Note,
    packet::PROTO_TCP,
    reason::Reason,
    tick::jittered,
};

use crate::{
    conntrack,
    node::{self, Node},
    skb::Skb,
    tables::{self, Known, Tables},
};

/// How a packet left the observed stretch.
pub(crate) struct Left {
    pub(crate) generation: u32,
    pub(crate) way: Exit,
    pub(crate) mtu: u32,
    pub(crate) mark: u32,
    pub(crate) priority: u32,
    pub(crate) hash: u32,
    pub(crate) flow_label: u32,
    pub(crate) addresses: FrameAddresses,
    pub(crate) takes_merged: bool,
}

/// A packet that opens or closes a connection came out: ends the way back of what it came out as.
#[inline(always)]
pub(crate) fn close<F: Tables>(packet: &Plain<F::Address>, node: &Node) {
    tables::end::<F>(&packet.end.reversed(), packet.is_opening, node);
}

/// Learns from a noted packet that came out as `packet`. The flow is built in `flow`.
#[inline(always)]
pub(crate) fn learn<F: Tables>(
    skb: &Skb,
    node: &Node,
    note: &Note<F::Address>,
    packet: &Plain<F::Address>,
    left: &Left,
    flow: &mut Flow<F::Address>,
) -> Result<Reason, Reason> {
    let ttl_step = note.became(packet)?;
    let tracked = conntrack::agrees::<F>(skb, note, packet)?;
    let is_tcp = packet.end.protocol == u32::from(PROTO_TCP);
    flow.body = Body {
        out: packet.end,
        generation: left.generation,
        mark: left.mark,
        priority: left.priority,
        hash: left.hash,
        flow_label: left.flow_label,
        entry: note.addresses,
        exit: left.addresses,
        mtu: left.mtu as u16,
        way: left.way,
        ttl_step,
        needs_mirror: u8::from(is_tcp || !tracked),
        takes_merged: u8::from(left.takes_merged),
        tos: note.print.tos,
        ttl: note.print.ttl,
    };
    write::<F>(&note.end, flow, node)
}

/// Writes the flow, and into it and its way back how long each may count on the other.
#[inline(always)]
fn write<F: Tables>(key: &End<F::Address>, flow: &mut Flow<F::Address>, node: &Node) -> Result<Reason, Reason> {
    let now = node.tick();
    let known = Known::find::<F>(key);
    if known.as_ref().is_some_and(|known| known.is_closed(now)) {
        return Err(Reason::FlowClosed);
    }
    let mirror = Known::find::<F>(&flow.body.mirror_key()).filter(|found| found.is_current(flow.body.generation, now));
    if let Some(mirror) = &mirror
        && !Body::is_mirrored_by(key, &mirror.flow.body)
    {
        // One of the two came about in another way than by one connection: believe neither.
        mirror.forget();
        if let Some(known) = &known {
            known.forget();
        }
        return Err(Reason::MirrorDiffers);
    }
    // SAFETY: the helper takes nothing and returns a number.
    let until = jittered(now, node::fast()?.interval, unsafe { bpf_get_prandom_u32() });
    let mirror_until = mirror.as_ref().map(|mirror| mirror.flow.seen.moment());
    match known {
        Some(known) if known.flow.body.same(&flow.body) => known.see_again(until, mirror_until),
        _ => {
            flow.stamp(flow.body.check(key), now, until, mirror_until);
            let flow: &Flow<_> = flow;
            F::flows().insert(key, flow, u64::from(BPF_ANY)).or(Err(Reason::TableRefused))?;
        }
    }
    if let Some(mirror) = mirror {
        mirror.mirrored(Some(until));
    }
    Ok(Reason::Learned)
}
