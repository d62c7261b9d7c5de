//! Ingress of the tunnel device: records packets that the device has decapsulated. It redirects
//! none: `from_underlay` takes those of known flows before they get here.
//!
//! The external interface cannot record them: behind it the kernel queues, merges and splits
//! packets (`gro_cells_receive()` in [net/core/gro_cells.c, Linux
//! 6.1](https://elixir.bootlin.com/linux/v6.1/source/net/core/gro_cells.c)), so what enters there
//! is not what leaves the tunnel device. From the tunnel device to the pod packets stay the same.

use flannel_common::{
    abi::{
        fast::{Bucket, FastConfig},
        reason::Reason,
    },
    packet::ETH_LEN,
};

use super::context::{self, Context};
use crate::{
    flow::{arrival, close_guard, pending, reception, scratch::FlowMaps, table},
    node,
    packet::{family::by_family, skb::Skb},
};

#[inline(always)]
pub(crate) fn run(skb: &Skb) -> Reason {
    match Context::read(skb) {
        Ok(context) => {
            reception::take(skb, context.node.now);
            pending::clear(skb);
            by_family!(skb, judge(skb, &context), else Reason::OtherProtocol)
        }
        Err(reason) => {
            pending::clear(skb);
            reason
        }
    }
}

#[inline(always)]
fn judge<F: FlowMaps>(skb: &Skb, context: &Context) -> Reason {
    match process::<F>(skb, context) {
        Reason::TcpControl => close_guard::judge::<F>(&context.node),
        reason => reason,
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
    let scratch = context::enter::<F, ETH_LEN>(skb, node)?;
    let packet = &scratch.packet;
    let learns = node::fast()?.has(FastConfig::FROM_UNDERLAY);
    if packet.is_answer() {
        return if learns {
            pending::record_answer::<F>(skb, node, packet)
        } else {
            Err(Reason::TcpControl)
        };
    }
    if !learns {
        return Err(Reason::NotLearned);
    }
    let bucket = || {
        Bucket::of_peer(
            scratch
                .frame
                .ip()
                .source_subnet(node.family::<F>())
                .unwrap_or(0),
        )
    };
    let Some(usable) = table::load::<F>(packet, context.generation, node, &mut scratch.flow) else {
        pending::sample(&mut scratch.random)?;
        return pending::record_new::<F>(skb, node, packet, bucket());
    };
    match usable {
        Ok(()) if arrival::differs(&scratch.flow.arrival) => {
            pending::record_otherwise::<F>(skb, node, packet)
        }
        Ok(()) => Err(Reason::NotFollowed),
        Err(reason) => {
            pending::record_again::<F>(skb, node, packet, &scratch.flow, reason, bucket())
        }
    }
}
