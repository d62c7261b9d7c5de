//! The guard at the driver: drops tunnel packets of strangers before the kernel makes a packet of them.
//!
//! It drops what `from_underlay` would drop by the outer check, and of that only the plain case: whole packets without options,
//! for our VTEP. All the rest it leaves to `from_underlay`. Nothing but drops is counted.

use aya_ebpf::{
    bindings::xdp_action::{XDP_DROP, XDP_PASS},
    helpers::generated::{bpf_xdp_get_buff_len, bpf_xdp_load_bytes},
    programs::XdpContext,
};
use flannel_common::{
    ethernet::EthernetHeader,
    guard::GuardMode,
    ip::{IpHeader, Ipv4Header, Ipv6Header},
    outer::OuterHeaders,
    program::Program,
    reason::Reason,
};

use crate::{bytes::Room, family::Family, guard, maps::VTEPS, node::Node, stats};

/// The verdict of XDP.
#[inline(always)]
pub(crate) fn run(ctx: &XdpContext) -> u32 {
    match refuse(ctx) {
        Some(()) => {
            // SAFETY: the helper takes the context, which is valid for the whole run of the program.
            let len = unsafe { bpf_xdp_get_buff_len(ctx.ctx) };
            stats::count(len as u32, Program::FromUnderlay, Reason::RefusedEarly);
            XDP_DROP
        }
        None => XDP_PASS,
    }
}

#[inline(always)]
fn refuse(ctx: &XdpContext) -> Option<()> {
    let ethernet: &EthernetHeader = load(ctx, Room::Inner)?;
    if ethernet.carries(Ipv4Header::ETHERTYPE) {
        is_strangers::<Ipv4Header>(ctx)
    } else if ethernet.carries(Ipv6Header::ETHERTYPE) {
        is_strangers::<Ipv6Header>(ctx)
    } else {
        None
    }
}

/// One function for each family, called, not inlined: the stack of one program is too small for both.
#[inline(never)]
fn is_strangers<F: Family>(ctx: &XdpContext) -> Option<()> {
    let outer: &OuterHeaders<F> = load(ctx, Room::Outer)?;
    let node = Node::read().ok()?;
    let family = node.family::<F>();
    if !family.has_tunnel() || !outer.is_tunnel(family) || !outer.is_for_us(family) || outer.ip().is_fragment() {
        return None;
    }
    outer.tunnel().vxlan(family).ok()?;
    // SAFETY: nothing of the value is read.
    if unsafe { VTEPS.get(outer.source()) }.is_some() {
        return None;
    }
    let mode = guard::in_force().outer;
    if !matches!(mode, GuardMode::Enforce) || guard::is_elsewhere::<F>(outer.tunnel().inner().source()) {
        return None;
    }
    guard::suspect(mode, outer.source(), Reason::RefusedEarly, true, &node);
    Some(())
}

/// The first bytes of the packet, wherever the driver has them. Kernel 5.18. `T` is bytes and nothing else.
#[inline(always)]
fn load<T: Copy>(ctx: &XdpContext, room: Room) -> Option<&'static T> {
    let room = room.take::<T>()?;
    // SAFETY: there is room for a `T`; the helper fills all of it or fails.
    let failed = unsafe { bpf_xdp_load_bytes(ctx.ctx, 0, room.as_mut_ptr().cast(), size_of::<T>() as u32) };
    // SAFETY: filled, and any bytes are a value.
    if failed == 0 { Some(unsafe { room.assume_init_ref() }) } else { None }
}
