//! Traffic of peers and pods: the values of `PEER_TRAFFIC`, `PEER_TRAFFIC6` and `POD_TRAFFIC`.
//!
//! Bytes are those of the frame with which a packet enters or leaves a pod: from the Ethernet
//! header on, without outer headers. A packet that the kernel has merged, or will cut (GRO, GSO),
//! counts once, with its whole length, as in the counters of a device.
//!
//! Every map is a per-CPU array. The agent gives each peer and each pod a slot in it, which stands
//! in their entry (`PEERS`, `PODS`); slot [`SHARED`] is that of all others. So a program needs no
//! look-up but that of the slot, and the memory is bounded whatever the size of the network.

use core::mem::size_of;

use crate::abi::stats::Counter;

/// The slot that all peers, or pods, share for which the map has no room.
pub const SHARED: u32 = 0;

/// The most slots of [`crate::abi::maps::PEER_TRAFFIC`] or [`crate::abi::maps::PEER_TRAFFIC6`]: 256
/// KiB for each CPU.
pub const PEER_TRAFFIC_MAX: u32 = 1 << 13;

/// Slots of [`crate::abi::maps::POD_TRAFFIC`]: 16 KiB for each CPU.
pub const POD_TRAFFIC_MAX: u32 = 1 << 10;

/// The value of `PEER_TRAFFIC` and `PEER_TRAFFIC6`: one CPU's count of one peer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerTraffic {
    /// Packets to the peer's pods.
    pub sent: Counter,
    /// Packets from the peer's pods.
    pub received: Counter,
}

/// Returns the capacity of the map of the peers of a network with this many subnets.
pub const fn peer_slots(subnets: u32) -> u32 {
    if subnets < PEER_TRAFFIC_MAX {
        subnets + 1
    } else {
        PEER_TRAFFIC_MAX
    }
}

const _: () = {
    assert!(size_of::<PeerTraffic>() == 32);
    // The slot of a peer is a number of two bytes.
    assert!(PEER_TRAFFIC_MAX <= 1 << u16::BITS);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_network_has_a_slot_for_each_subnet_and_the_shared_one() {
        assert_eq!((peer_slots(0), peer_slots(1), peer_slots(256)), (1, 2, 257));
        assert_eq!(peer_slots(PEER_TRAFFIC_MAX - 1), PEER_TRAFFIC_MAX);
        assert_eq!(
            (peer_slots(PEER_TRAFFIC_MAX), peer_slots(1 << 17)),
            (PEER_TRAFFIC_MAX, PEER_TRAFFIC_MAX)
        );
    }
}
