//! Room for the outer headers of a tunnel packet.

use aya_ebpf::bindings::{
    BPF_F_ADJ_ROOM_ENCAP_L2_ETH, BPF_F_ADJ_ROOM_ENCAP_L4_UDP, BPF_F_ADJ_ROOM_FIXED_GSO,
    BPF_F_ADJ_ROOM_NO_CSUM_RESET, bpf_adj_room_mode::BPF_ADJ_ROOM_MAC,
};
use flannel_common::{abi::reason::Reason, packet::ETH_LEN, packet::outer::OuterHeaders};

use crate::packet::{family::Family, skb::Skb};

/// GSO sizes stay as they are (segments would outgrow the path otherwise), checksum state too, and
/// the kernel learns the headers' kinds, so that it can still segment and offload.
const ENCAP_FLAGS: u64 = BPF_F_ADJ_ROOM_FIXED_GSO as u64
    | BPF_F_ADJ_ROOM_NO_CSUM_RESET as u64
    | BPF_F_ADJ_ROOM_ENCAP_L4_UDP as u64
    | BPF_F_ADJ_ROOM_ENCAP_L2_ETH as u64
    | (ETH_LEN as u64) << 56;

/// Segments keep their size, and checksums their state.
const DECAP_FLAGS: u64 = BPF_F_ADJ_ROOM_FIXED_GSO as u64 | BPF_F_ADJ_ROOM_NO_CSUM_RESET as u64;

/// Makes room for the outer headers. On failure the packet is unchanged.
#[inline(always)]
pub(crate) fn make_room<F: Family>(skb: &Skb) -> Result<(), Reason> {
    let len = OuterHeaders::<F>::OVERHEAD as i32;
    if skb.grow(len, BPF_ADJ_ROOM_MAC, ENCAP_FLAGS | F::ENCAP_L3) {
        Ok(())
    } else {
        Err(Reason::RoomRefused)
    }
}

/// Removes the outer headers. On failure the packet is unchanged.
#[inline(always)]
pub(crate) fn remove_outer<F: Family>(skb: &Skb) -> Result<(), Reason> {
    let len = OuterHeaders::<F>::OVERHEAD as i32;
    if skb.shrink(len, BPF_ADJ_ROOM_MAC, DECAP_FLAGS) {
        Ok(())
    } else {
        Err(Reason::RoomRefused)
    }
}
