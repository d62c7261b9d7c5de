//! ECMP paths: the devices by which packets to one peer may leave where its route has several next
//! hops. Keys and values of the `ECMP_PATHS` map, by peer and device.
//!
//! The kernel's FIB chooses for each flow. What a host does to packets on their way out may be
//! another thing for each device (`-o eth1`), so what was seen of the kernel's own packets is kept
//! for each of them. The agent makes an element for every device that may be used and replaces it
//! as a whole; the programs write what they see into it, as into a peer's entry. It counts only
//! under the word of that entry, so rewriting the peer clears all of its ECMP paths.

use core::mem::{align_of, size_of};

use crate::abi::peer::PathProbe;

/// The key of `ECMP_PATHS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EcmpPathKey {
    /// The peer's index in the peer map of its family.
    pub index: u32,
    /// Interface index.
    pub device: u32,
    /// EtherType of the family, network order.
    pub family: [u8; 2],
    /// Zero.
    pub reserved: [u8; 2],
}

impl EcmpPathKey {
    /// The ECMP path of a peer by a device.
    #[inline(always)]
    pub const fn new(family: [u8; 2], index: u32, device: u32) -> Self {
        Self {
            index,
            device,
            family,
            reserved: [0; 2],
        }
    }
}

/// The value of `ECMP_PATHS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcmpPath {
    /// The result of path probes, and the peer's entry state at that time.
    pub seen: PathProbe,
    /// Largest outer IPv4 total length (IPv6: whole packet) the device and the route take, in
    /// bytes.
    pub mtu: u32,
    /// Zero.
    pub reserved: u32,
}

impl EcmpPath {
    /// Returns an ECMP path that no packet has validated yet.
    pub const fn new(mtu: u32) -> Self {
        Self {
            seen: PathProbe::NOTHING,
            mtu,
            reserved: 0,
        }
    }
}

const _: () = {
    assert!(size_of::<EcmpPathKey>() == 12 && align_of::<EcmpPathKey>() == 4);
    assert!(size_of::<EcmpPath>() == 40 && align_of::<EcmpPath>() == 8);
};
