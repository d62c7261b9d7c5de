#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]
//! The BPF programs. This file holds the entry points and nothing else: each runs its step, counts
//! the reason it gives, and turns the reason into a TC action in the one place where that happens.
//!
//! Invariants: a program takes only packets it can prove it may take, and leaves every other one
//! untouched to the kernel; all gates come before the first change to a packet; no program logs,
//! except in a debug object (feature `log`).
//!
//! Each step is written once for both address families and compiled for each
//! ([`packet::family::Family`]); the packet's protocol chooses.
//!
//! Budget per packet: `to_tunnel` reads MODE, CONFIG and one element of a peer map (array look-ups,
//! inlined by the JIT), the clock once, and loads the headers once; `from_underlay` loads outer and
//! inner headers and reads one element of a peer map, and takes a second look, with a hash look-up,
//! only at what may be no peer's; `to_underlay` loads the headers once and reads one element of a
//! peer map. In mode `fast` the entry hooks read the flow's hint, and look where it says that the
//! flow may be: into an array, into a hash, or nowhere. To a peer whose route has several next hops
//! the kernel's FIB is asked and one element of a hash is read. A packet of a peer, or into a pod,
//! is counted in an array as well. Counting loads one variable, which says whether a monitor is
//! there. A new look-up or helper here needs figures before and after.

#![expect(
    missing_docs,
    reason = "the classifier macro writes a public wrapper without the documentation"
)]
#![expect(
    unreachable_pub,
    reason = "entry points are found by the linker through their symbols"
)]
#![expect(
    clippy::cast_possible_wrap,
    reason = "sizes of headers and parameters are far below 2^31"
)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "header lengths are small constants; a wide number is cut where said"
)]

mod flow;
mod hooks;
mod kernel_drops;
mod kernel_memory;
mod maps;
mod monitor;
mod node;
mod packet;
mod stats;
mod traffic;
mod tunnel;

use aya_ebpf::{
    bindings::{TC_ACT_REDIRECT, TC_ACT_SHOT, TC_ACT_UNSPEC},
    macros::{classifier, raw_tracepoint, xdp},
    programs::{RawTracePointContext, TcContext, XdpContext},
};
use flannel_common::abi::{
    program::Program,
    reason::{Reason, Verdict},
};

use crate::packet::skb::Skb;

/// Ingress of the host side of a pod's veth.
#[classifier]
pub fn from_pod(ctx: TcContext) -> i32 {
    let skb = Skb::new(ctx);
    let reason = hooks::from_pod::run(&skb);
    conclude(&skb, Program::FromPod, reason)
}

/// Egress of the host side of a pod's veth.
#[classifier]
pub fn to_pod(ctx: TcContext) -> i32 {
    let skb = Skb::new(ctx);
    let reason = hooks::to_pod::run(&skb);
    conclude(&skb, Program::ToPod, reason)
}

/// Ingress of the tunnel device.
#[classifier]
pub fn from_tunnel(ctx: TcContext) -> i32 {
    let skb = Skb::new(ctx);
    let reason = hooks::from_tunnel::run(&skb);
    conclude(&skb, Program::FromTunnel, reason)
}

/// Behind every NAPI poll and softirq; attached while packets may be queued to userspace, which a
/// record must not outlive.
#[raw_tracepoint(tracepoint = "napi_poll")]
pub fn count_polls(_ctx: RawTracePointContext) -> i32 {
    flow::pending::count_poll();
    0
}

/// The kernel's tracepoint for dropped packets; attached while flows are observed.
#[raw_tracepoint(tracepoint = "kfree_skb")]
#[expect(
    clippy::needless_pass_by_value,
    reason = "the macro hands the context over"
)]
pub fn report_drops(ctx: RawTracePointContext) -> i32 {
    kernel_drops::report(&ctx);
    0
}

/// The driver of the external interface, if asked for; also of jumbo frames in several parts.
#[xdp(frags)]
#[expect(
    clippy::needless_pass_by_value,
    reason = "the macro hands the context over"
)]
pub fn early_guard(ctx: XdpContext) -> u32 {
    hooks::early_guard::run(&ctx)
}

/// Egress of the tunnel device.
#[classifier]
pub fn to_tunnel(ctx: TcContext) -> i32 {
    let skb = Skb::new(ctx);
    let reason = hooks::to_tunnel::run(&skb);
    conclude(&skb, Program::ToTunnel, reason)
}

/// Ingress of the external interface.
#[classifier]
pub fn from_underlay(ctx: TcContext) -> i32 {
    let skb = Skb::new(ctx);
    let reason = hooks::from_underlay::run(&skb);
    conclude(&skb, Program::FromUnderlay, reason)
}

/// Egress of the external interface.
#[classifier]
pub fn to_underlay(ctx: TcContext) -> i32 {
    let skb = Skb::new(ctx);
    let reason = hooks::to_underlay::run(&skb);
    conclude(&skb, Program::ToUnderlay, reason)
}

/// Ingress of a tunnel device without Ethernet.
#[classifier]
pub fn from_l3_tunnel(ctx: TcContext) -> i32 {
    let skb = Skb::new(ctx);
    let reason = hooks::l3_tunnel::receive(&skb);
    conclude(&skb, Program::FromL3Tunnel, reason)
}

/// Egress of a tunnel device without Ethernet.
#[classifier]
pub fn to_l3_tunnel(ctx: TcContext) -> i32 {
    let skb = Skb::new(ctx);
    let reason = hooks::l3_tunnel::send(&skb);
    conclude(&skb, Program::ToL3Tunnel, reason)
}

/// Attached nowhere: the agent runs it to see what this kernel refuses.
#[classifier]
pub fn probe_room(ctx: TcContext) -> i32 {
    hooks::probe_room::run(&Skb::new(ctx)) as i32
}

/// Attached nowhere: the agent runs it to find BPF programs at netfilter's hooks.
#[classifier]
pub fn find_judges(ctx: TcContext) -> i32 {
    hooks::find_judges::run(&Skb::new(ctx)) as i32
}

/// Counts the outcome and turns it into the action TC wants.
#[inline(always)]
fn conclude(skb: &Skb, program: Program, reason: Reason) -> i32 {
    let reason = stats::any(reason, skb.len());
    stats::record(skb, program, reason);
    #[cfg(feature = "log")]
    aya_log_ebpf::debug!(
        skb.context(),
        "program {} reason {} length {}",
        program as u32,
        reason as u32,
        skb.len()
    );
    match reason.verdict() {
        Verdict::Pass => TC_ACT_UNSPEC,
        Verdict::Redirect => TC_ACT_REDIRECT,
        Verdict::Drop => TC_ACT_SHOT,
    }
}

/// There is nothing to unwind to; an endless loop makes the verifier refuse any program that could
/// get here.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

// SAFETY: the kernel reads this section by its name; no other symbol has it. The programs use
// helpers the kernel offers only to GPL-compatible programs
// (<https://docs.kernel.org/bpf/bpf_licensing.html>), hence the dual licence of the object.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
