//! Whether this kernel makes and takes away room as the programs need it: asked of it once, with a packet of the agent's, by a
//! program that is attached nowhere. A flag the kernel does not know shows only when the helper is called.

use aya_ebpf::bindings::bpf_adj_room_mode::BPF_ADJ_ROOM_MAC;
use flannel_common::{
    ip::{Ipv4Header, Ipv6Header},
    outer::OuterHeaders,
    program::{ROOM_MADE, ROOM_TAKEN},
};

use crate::{family::Family, replay::DECAP_FLAGS, skb::Skb, to_tunnel::ENCAP_FLAGS};

/// What worked.
#[inline(always)]
pub(crate) fn run(skb: &Skb) -> u32 {
    match skb.protocol() {
        Ipv4Header::PROTOCOL => room::<Ipv4Header>(skb),
        Ipv6Header::PROTOCOL => room::<Ipv6Header>(skb),
        _ => 0,
    }
}

#[inline(always)]
fn room<F: Family>(skb: &Skb) -> u32 {
    let len = OuterHeaders::<F>::OVERHEAD as i32;
    if !skb.grow(len, BPF_ADJ_ROOM_MAC, ENCAP_FLAGS | F::ENCAP_L3) {
        return 0;
    }
    if skb.shrink(len, BPF_ADJ_ROOM_MAC, DECAP_FLAGS) { ROOM_MADE | ROOM_TAKEN } else { ROOM_MADE }
}
