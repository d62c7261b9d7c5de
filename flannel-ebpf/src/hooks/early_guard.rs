//! The guard at the driver (XDP): drops tunnel packets of unknown sources before the kernel
//! allocates an skb.
//!
//! It drops a part of what `from_underlay` would drop by the outer check: whole packets without
//! options, for our VTEP. The rest is left to `from_underlay`. Only drops are counted.

use aya_ebpf::{
    bindings::xdp_action::{XDP_DROP, XDP_PASS},
    helpers::generated::{bpf_xdp_get_buff_len, bpf_xdp_load_bytes},
    programs::XdpContext,
};
use flannel_common::{
    abi::{guard::GuardMode, program::Program, reason::Reason},
    packet::{
        ethernet::EthernetHeader,
        ip::{IpHeader, Ipv4Header, Ipv6Header},
        outer::OuterHeaders,
    },
};

use crate::{
    maps::VTEPS,
    node::Node,
    packet::{family::Family, load_buf::LoadBuf},
    stats,
    tunnel::source_filter,
};

/// Returns the XDP verdict.
#[inline(always)]
pub(crate) fn run(ctx: &XdpContext) -> u32 {
    match check(ctx) {
        Some(()) => {
            // SAFETY: the helper takes the context, which is valid for the whole run of the
            // program.
            let len = unsafe { bpf_xdp_get_buff_len(ctx.ctx) };
            stats::count(len as u32, Program::FromUnderlay, Reason::RefusedEarly);
            XDP_DROP
        }
        None => XDP_PASS,
    }
}

#[inline(always)]
fn check(ctx: &XdpContext) -> Option<()> {
    let ethernet: &EthernetHeader = load(ctx, LoadBuf::Inner)?;
    if ethernet.carries(Ipv4Header::ETHERTYPE) {
        check_source::<Ipv4Header>(ctx)
    } else if ethernet.carries(Ipv6Header::ETHERTYPE) {
        check_source::<Ipv6Header>(ctx)
    } else {
        None
    }
}

/// A call for each family, not inlined: the stack of one program (512 bytes) is too small for both.
#[inline(never)]
fn check_source<F: Family>(ctx: &XdpContext) -> Option<()> {
    let outer: &OuterHeaders<F> = load(ctx, LoadBuf::Outer)?;
    let node = Node::read().ok()?;
    let family = node.family::<F>();
    if !family.has_tunnel()
        || !outer.is_tunnel(family)
        || !outer.is_for_us(family)
        || outer.ip().is_fragment()
    {
        return None;
    }
    outer.tunnel().vxlan(family).ok()?;
    // SAFETY: the value is not read.
    if unsafe { VTEPS.get(outer.source()) }.is_some() {
        return None;
    }
    let mode = source_filter::in_force().outer;
    if !matches!(mode, GuardMode::Enforce)
        || source_filter::is_nat_vtep::<F>(outer.tunnel().inner().source())
    {
        return None;
    }
    source_filter::record_violation(mode, outer.source(), Reason::RefusedEarly, true, &node);
    Some(())
}

/// Loads the first bytes of the packet from any buffer of the driver (`bpf_xdp_load_bytes()`, Linux
/// 5.18; [net/core/filter.c](https://elixir.bootlin.com/linux/v6.1/source/net/core/filter.c)). `T`
/// consists of bytes.
#[inline(always)]
fn load<T: Copy>(ctx: &XdpContext, room: LoadBuf) -> Option<&'static T> {
    let room = room.take::<T>()?;
    // SAFETY: there is room for a `T`; the helper fills all of it or fails.
    let failed =
        unsafe { bpf_xdp_load_bytes(ctx.ctx, 0, room.as_mut_ptr().cast(), size_of::<T>() as u32) };
    if failed == 0 {
        // SAFETY: filled, and any bytes are a value.
        Some(unsafe { room.assume_init_ref() })
    } else {
        None
    }
}
