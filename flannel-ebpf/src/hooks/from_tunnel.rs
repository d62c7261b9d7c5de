//! Ingress of the tunnel device: records packets that the device has decapsulated. It redirects
//! none: `from_underlay` takes those of known flows before they get here.
//!
//! The external interface is no place for this: between that and here the kernel queues packets,
//! merges and splits them, so what enters there is not what leaves here. From here to the pod it
//! is.

use flannel_common::{
    fast::{Bucket, FastConfig},
    reason::Reason,
};

use super::context::{self, Context};
use crate::{
    flow::{pending, scratch::FlowMaps, table::FlowRef},
    node,
    packet::{family::by_family, skb::Skb},
};

#[inline(always)]
pub(crate) fn run(skb: &Skb) -> Reason {
    pending::clear(skb);
    match Context::read(skb) {
        Ok(context) => by_family!(skb, process(skb, &context), else Reason::OtherProtocol),
        Err(reason) => reason,
    }
}

/// A call for each family, not inlined: the stack of one program (512 bytes) is too small for both.
#[inline(never)]
fn process<F: FlowMaps>(skb: &Skb, context: &Context) -> Reason {
    Reason::of(record::<F>(skb, context))
}

#[inline(always)]
fn record<F: FlowMaps>(skb: &Skb, context: &Context) -> Result<Reason, Reason> {
    let node = &context.node;
    let scratch = context::enter::<F>(skb, node)?;
    let packet = &scratch.packet;
    if !node::fast()?.has(FastConfig::FROM_UNDERLAY) {
        return Err(Reason::NotLearned);
    }
    let Some(flow) = FlowRef::find::<F>(&packet.key) else {
        pending::sample(&mut scratch.random)?;
        let subnet = scratch.frame.ip().source_subnet(node.family::<F>());
        return pending::record_new::<F>(skb, node, packet, Bucket::of_peer(subnet.unwrap_or(0)));
    };
    match flow.usable(context.generation, node) {
        Ok(()) => Err(Reason::NotFollowed),
        Err(Reason::Refreshing) => pending::record_again::<F>(skb, node, packet),
        Err(reason) => Err(reason),
    }
}
