//! Probes whether this kernel adds and removes outer headers as the programs need it, and whether a
//! program has the stack of the task that runs it. The program is not attached: the agent runs it
//! once on a test packet. An unknown flag shows only when the helper is called.

use flannel_common::abi::program::{ON_TASK_STACK, ROOM_MADE, ROOM_TAKEN};

use crate::{
    flow::{
        scratch::{self, FlowMaps},
        softirq,
    },
    packet::{family::by_any_family, skb::Skb},
    tunnel::encapsulation::{make_room, remove_outer},
};

/// Returns [`ROOM_MADE`] and [`ROOM_TAKEN`] for the steps that worked, and [`ON_TASK_STACK`] if the
/// program has the stack of the task that runs it.
#[inline(always)]
pub(crate) fn run(skb: &Skb) -> u32 {
    by_any_family!(skb, probe(skb), else 0)
}

#[inline(always)]
fn probe<F: FlowMaps>(skb: &Skb) -> u32 {
    let is_on_task_stack = scratch::get::<F>()
        .is_ok_and(|scratch| softirq::is_on_task_stack(&mut scratch.flow.packets));
    let stack = if is_on_task_stack { ON_TASK_STACK } else { 0 };
    if make_room::<F>(skb).is_err() {
        return stack;
    }
    if remove_outer::<F>(skb).is_ok() {
        stack | ROOM_MADE | ROOM_TAKEN
    } else {
        stack | ROOM_MADE
    }
}
