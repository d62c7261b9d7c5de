//! Finds BPF programs at netfilter's hooks (Linux 6.4) in the network namespace of the task that
//! runs this. The program is not attached. No list shows such programs without `CAP_SYS_ADMIN`,
//! which the agent gives up.

use flannel_common::abi::program::{HOOKS, netfilter_program_at, too_many_functions_at};

use crate::{
    flow::{netfilter::Hooks, scratch::FlowMaps},
    packet::{family::by_any_family, skb::Skb},
};

/// Returns the hooks of the packet's family that have one; 0 where the kernel's layout is not
/// known.
#[inline(always)]
pub(crate) fn run(skb: &Skb) -> u32 {
    by_any_family!(skb, find(skb), else 0)
}

#[inline(always)]
fn find<F: FlowMaps>(skb: &Skb) -> u32 {
    let Some(hooks) = Hooks::of::<F>(skb) else {
        return 0;
    };
    let mut found = 0;
    for hook in 0..HOOKS {
        match hooks.has_program(hook) {
            Some(true) => found |= netfilter_program_at(hook),
            Some(false) => {}
            None => found |= too_many_functions_at(hook),
        }
    }
    found
}
