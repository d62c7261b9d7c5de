//! Learning: a noted packet came out, so what was done to it is done to the next ones of its flow.

use core::ptr::read_volatile;

use aya_ebpf::{
    bindings::BPF_ANY,
    helpers::{bpf_probe_read_kernel, generated::bpf_get_prandom_u32},
};
use flannel_common::{
    end::{Address, End},
    fast::FastConfig,
    flow::{Body, Exit, Flow},
    inner::{FrameAddresses, Plain},
    note::Note,
    packet::PROTO_TCP,
    reason::Reason,
    tick::jittered,
};

use crate::{
    node::{self, Node},
    skb::Skb,
    tables::{self, Known, Tables},
};

/// Where `struct sk_buff` has `_nfct`, in bytes; 0 where the kernel has no BTF to tell. The agent sets it when it loads
/// the object; the verifier takes it for a constant, so that without it the helper that reads kernel memory is not needed.
#[unsafe(no_mangle)]
static NFCT_OFFSET: u32 = 0;

/// How a packet left the observed stretch.
pub(crate) struct Left {
    pub(crate) generation: u32,
    pub(crate) way: Exit,
    pub(crate) mtu: u32,
    pub(crate) mark: u32,
    pub(crate) priority: u32,
    pub(crate) addresses: FrameAddresses,
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
    let tracked = conntrack_agrees(skb, node::fast()?, note, packet)?;
    let is_tcp = packet.end.protocol == u32::from(PROTO_TCP);
    flow.body = Body {
        out: packet.end,
        generation: left.generation,
        mark: left.mark,
        priority: left.priority,
        entry: note.addresses,
        exit: left.addresses,
        mtu: left.mtu as u16,
        way: left.way,
        ttl_step,
        needs_mirror: u8::from(is_tcp || !tracked),
        reserved: [0; 3],
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
            flow.stamp(flow.body.check(key), until, mirror_until);
            let flow: &Flow<_> = flow;
            F::flows().insert(key, flow, u64::from(BPF_ANY)).or(Err(Reason::TableRefused))?;
        }
    }
    if let Some(mirror) = mirror {
        mirror.mirrored(Some(until));
    }
    Ok(Reason::Learned)
}

/// What `_nfct` holds in its lowest bits: `enum ip_conntrack_info`.
const CTINFO: u64 = 7;
const ESTABLISHED: u64 = 0;
const ESTABLISHED_REPLY: u64 = 3;
const UNTRACKED: u64 = 7;

/// Whether conntrack knows the packet as one of a connection; an error if it calls it invalid. A packet that no conntrack
/// has seen may be learned unchanged. False where the kernel does not tell: then the way back must prove it.
#[inline(always)]
fn conntrack_agrees<A: Address>(
    skb: &Skb,
    config: &FastConfig,
    note: &Note<A>,
    packet: &Plain<A>,
) -> Result<bool, Reason> {
    let Some(nfct) = nfct(skb) else { return Ok(false) };
    let is_tcp = packet.end.protocol == u32::from(PROTO_TCP);
    let agrees = match nfct {
        0 => config.flags & FastConfig::NO_CONNTRACK != 0 && note.end.same_tuple(&packet.end),
        UNTRACKED => note.end.same_tuple(&packet.end),
        tracked => !is_tcp || matches!(tracked & CTINFO, ESTABLISHED | ESTABLISHED_REPLY),
    };
    if agrees { Ok(true) } else { Err(Reason::Untracked) }
}

/// `skb->_nfct`, if the kernel tells where that is.
#[inline(always)]
fn nfct(skb: &Skb) -> Option<u64> {
    // SAFETY: a static is valid for reads. Volatile, because the agent changes it before the object is loaded.
    let offset = unsafe { read_volatile(&raw const NFCT_OFFSET) };
    if offset == 0 {
        return None;
    }
    let at = (skb.raw() as u64 + u64::from(offset)) as *const u64;
    // SAFETY: the helper reads kernel memory and fails where there is none.
    unsafe { bpf_probe_read_kernel(at) }.ok()
}
