//! Egress of the host side of a pod's veth: learns what the kernel did to a recorded packet on its
//! way into the pod.

use flannel_common::{
    abi::{fast::PodEntry, reason::Reason},
    flow::Egress,
    packet::ETH_LEN,
};

use super::context::{self, Context};
use crate::{
    flow::{
        learn::{self, EgressState},
        pending,
        scratch::FlowMaps,
    },
    maps::PODS,
    packet::{family::by_family, skb::Skb},
};

#[inline(always)]
pub(crate) fn run(skb: &Skb) -> Reason {
    match Context::read(skb) {
        Ok(context) => by_family!(skb, process(skb, &context), else Reason::OtherProtocol),
        Err(reason) => reason,
    }
}

/// A call for each family, not inlined: the stack of one program (512 bytes) is too small for both.
#[inline(never)]
fn process<F: FlowMaps>(skb: &Skb, context: &Context) -> Reason {
    Reason::of(learn::<F>(skb, context))
}

#[inline(always)]
fn learn<F: FlowMaps>(skb: &Skb, context: &Context) -> Result<Reason, Reason> {
    let pending = pending::take::<F>(skb, &context.node);
    let scratch = context::exit::<F, ETH_LEN>(skb, &context.node, pending.is_ok())?;
    let packet = &scratch.packet;
    let pending = pending?;
    // SAFETY: the value is copied at once; even a freed element is not reused before the program
    // ends (RCU).
    let pod = *unsafe { PODS.get(skb.ifindex()) }.ok_or(Reason::OtherReceiver)?;
    if !pod.has(PodEntry::RECEIVES) || !packet.addresses.are_to(pod.mac) {
        return Err(Reason::OtherReceiver);
    }
    let egress = EgressState {
        generation: context.generation,
        egress: Egress::POD,
        mtu: pod.mtu,
        mark: 0,
        priority: 0,
        egress_data: pod.traffic,
        flow_label: scratch.frame.ip().flow_label(),
        addresses: packet.addresses,
        takes_merged: pod.has(PodEntry::MERGED),
    };
    learn::learn::<F>(skb, &context.node, pending, scratch, &egress)
}
