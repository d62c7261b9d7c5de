//! Mode `fast` on a tunnel device without Ethernet: a WireGuard or ipip device, or the TUN device
//! of a process. The device encapsulates and encrypts; packets of known flows bypass the host
//! network stack between the pod and the device.
//!
//! A packet starts with its IP header here. In records and flows its Ethernet addresses are zero.
//! The device handles a packet behind its egress hook and before its ingress hook, so the outer
//! route, its rules and its policies stay the kernel's.

use flannel_common::{
    abi::{program::SELF_SENT, reason::Reason},
    packet::ip::{Ipv4Header, Ipv6Header},
};

use super::{context::Context, direct_route};
use crate::{
    flow::{close_guard, pending, scratch::FlowMaps},
    packet::{family::Family as _, skb::Skb},
};

/// Bytes of the link header.
const NONE: usize = 0;

/// Calls `$function::<F>(..)` with the IP header of the packet's own version, if its family is on.
macro_rules! by_version {
    ($skb:expr, $function:ident($($argument:expr),*)) => {
        match version($skb) {
            Some(4) if Ipv4Header::is_on() => $function::<Ipv4Header>($($argument),*),
            Some(6) if Ipv6Header::is_on() => $function::<Ipv6Header>($($argument),*),
            _ => Reason::OtherProtocol,
        }
    };
}

/// Ingress: puts packets of known flows into their pod, and records those of unknown ones.
#[inline(always)]
pub(crate) fn receive(skb: &Skb) -> Reason {
    pending::clear(skb);
    match Context::read(skb) {
        Ok(context) => by_version!(skb, judge(skb, &context)),
        Err(reason) => reason,
    }
}

#[inline(always)]
fn judge<F: FlowMaps>(skb: &Skb, context: &Context) -> Reason {
    match replay_or_record::<F>(skb, context) {
        Reason::TcpControl => close_guard::judge::<F>(&context.node),
        reason => reason,
    }
}

/// Egress: learns from recorded packets.
#[inline(always)]
pub(crate) fn send(skb: &Skb) -> Reason {
    if skb.tc_index() == SELF_SENT {
        skb.set_tc_index(0);
        return Reason::SelfSent;
    }
    match Context::read(skb) {
        Ok(context) => by_version!(skb, learn(skb, &context)),
        Err(reason) => reason,
    }
}

/// Returns the version of the IP header. The packet's protocol, which the kernel derives from it,
/// is wrong if the agent runs a program on a test packet: the kernel then takes the first bytes for
/// an Ethernet header (`bpf_prog_test_run_skb()` in [net/bpf/test_run.c, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/bpf/test_run.c)).
#[inline(always)]
fn version(skb: &Skb) -> Option<u8> {
    // Of one byte the verifier does not follow the comparison that the compiler makes.
    let [first, _] = skb.view::<[u8; 2]>(0)?;
    Some(first >> 4)
}

/// A call for each family, not inlined: the stack of one program (512 bytes) is too small for both.
#[inline(never)]
fn replay_or_record<F: FlowMaps>(skb: &Skb, context: &Context) -> Reason {
    Reason::of(direct_route::replay_or_record::<F, NONE>(
        skb,
        &context.node,
        context.generation,
    ))
}

/// A call for each family, for the same reason.
#[inline(never)]
fn learn<F: FlowMaps>(skb: &Skb, context: &Context) -> Reason {
    Reason::of(direct_route::learn::<F, NONE>(
        skb,
        &context.node,
        context.generation,
    ))
}
