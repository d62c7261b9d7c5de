//! The way to hosts outside the cluster's networks. No peer entry says whether it still holds, so
//! the kernel's FIB is asked for each packet, with what the kernel asked it for the packet that was
//! observed: the same device, addresses and ports behind the destination's translation.
//!
//! The kernel's own packets of the flow, one in each refresh interval, keep the neighbour entry
//! reachable.

use core::{mem::offset_of, ptr::read_volatile};

use aya_ebpf::bindings::{BPF_FIB_LKUP_RET_FRAG_NEEDED, BPF_FIB_LKUP_RET_SUCCESS, bpf_fib_lookup};
use flannel_common::{
    abi::reason::Reason,
    flow::FlowAction,
    flow::flow_key::Address as _,
    packet::ETHERTYPE_IPV6,
    packet::{
        addr::Mac,
        inner::{FrameAddresses, ParsedPacket},
    },
};

use super::scratch::FlowMaps;
use crate::packet::{family::Route, skb::Skb};

/// Checks that the FIB gives the packet the device, the neighbour and the MTU of its flow.
#[inline(always)]
pub(super) fn is_on_its_way<F: FlowMaps>(
    skb: &Skb,
    packet: &ParsedPacket<F::Address>,
    action: &FlowAction<F::Address>,
) -> Result<(), Reason> {
    let mut route = F::route(packet.key.source.addr(), action.out.destination.addr());
    let [ports, out_ports] = [packet.key.ports, action.out.ports].map(u32::to_ne_bytes);
    route.0.ifindex = action.egress_data;
    route.0.l4_protocol = packet.key.protocol as u8;
    route.0.sport = u16::from_ne_bytes([ports[0], ports[1]]);
    route.0.dport = u16::from_ne_bytes([out_ports[2], out_ports[3]]);
    route.0.__bindgen_anon_1.tot_len = packet.segment_len(skb.gso_size()) as u16;
    let tos = packet.fingerprint.tos;
    if F::ETHERTYPE[0] == ETHERTYPE_IPV6[0] {
        route.0.__bindgen_anon_2.flowinfo = action.flow_label | (u32::from(tos) << 20).to_be();
    } else {
        route.0.__bindgen_anon_2.tos = tos;
    }
    match skb.look_up(&mut route) {
        BPF_FIB_LKUP_RET_SUCCESS => {}
        BPF_FIB_LKUP_RET_FRAG_NEEDED => return Err(Reason::TooBig),
        _ => return Err(Reason::OtherRoute),
    }
    let Route(route) = route;
    let to_neighbour = FrameAddresses::new(read(&route.dmac), read(&route.smac));
    if route.ifindex == action.out.device && to_neighbour.same(&action.exit) {
        Ok(())
    } else {
        Err(Reason::OtherRoute)
    }
}

/// Reads an address of the FIB's answer by words of two bytes. Volatile, or the compiler reads two
/// of them as one where they are not aligned for that, which the verifier takes nowhere on the
/// stack.
#[expect(
    clippy::cast_ptr_alignment,
    reason = "both addresses lie at even offsets of a struct of words"
)]
#[inline(always)]
fn read(mac: &[u8; 6]) -> Mac {
    const {
        assert!(
            offset_of!(bpf_fib_lookup, smac).is_multiple_of(2)
                && offset_of!(bpf_fib_lookup, dmac).is_multiple_of(2)
        );
    }
    let at = mac.as_ptr().cast::<u16>();
    // SAFETY: the address has three words, aligned as asserted.
    let word = |place| unsafe { read_volatile(at.wrapping_add(place)) }.to_ne_bytes();
    let (first, second, third) = (word(0), word(1), word(2));
    Mac([first[0], first[1], second[0], second[1], third[0], third[1]])
}
