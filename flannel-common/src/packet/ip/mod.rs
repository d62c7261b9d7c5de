//! IP headers as they stand in packets, of inner and outer packets alike: the one place where the
//! two address families differ. Everything built on [`IpHeader`] is written once.
//!
//! A tunnel carries one family in its own: IPv4 in IPv4, IPv6 in IPv6. Lengths of IPv6 packets are
//! those of the whole packet (its header of forty bytes and the payload length) everywhere, so that
//! they compare with an MTU as the total length of IPv4 does.

mod v4;
mod v6;

pub use v4::Ipv4Header;
pub use v6::{ExtensionHeader, FragmentHeader, Ipv6Header};

use crate::{
    abi::{node::FamilyConfig, peer::PeerEntry},
    packet::addr::Addr,
};

/// The fields that vary from packet to packet.
#[derive(Clone, Copy, Debug)]
pub struct Varying {
    /// Length of the frame before encapsulation, from its Ethernet header on.
    pub frame_len: u32,
    /// TOS or traffic class of the inner packet.
    pub inner_tos: u8,
    /// IPv4 identification; IPv6 has none.
    pub id: u16,
    /// UDP source port.
    pub source_port: u16,
}

/// Outer TTL or hop limit: the kernel's default. Where a node's kernel uses another, `to_underlay`
/// sees that and the packets stay with the kernel.
pub const TTL: u8 = 64;

/// An IP header without options.
pub trait IpHeader: Copy {
    /// EtherType of the family, network order.
    const ETHERTYPE: [u8; 2];

    /// Writes the outer header of a tunnel packet for one frame.
    fn write_outer(&mut self, family: &FamilyConfig, peer: &PeerEntry, varying: &Varying);

    /// Of an outer header: whether TOS, TTL and fragmentation are those of [`Self::write_outer`]
    /// for an inner packet of this TOS.
    fn equals_recipe(&self, inner_tos: u8) -> bool;

    /// Of an outer header: whether it has no options, and UDP follows it or its fragment header.
    fn carries_udp(&self) -> bool;

    /// Returns true if UDP may follow options or extension headers. False if a fragment header
    /// comes first.
    fn may_hide_udp(&self) -> bool;

    /// Returns true for the number of an extension header. Never for IPv4.
    fn is_extension(protocol: u8) -> bool;

    /// Returns true if an IPv6 fragment header follows. Never for IPv4, whose fragments show in the
    /// header itself.
    fn has_fragment_header(&self) -> bool;

    /// Returns true for a fragment.
    fn is_fragment(&self) -> bool;

    /// Returns true if it is known to be another fragment than the first, so that no transport
    /// header follows. An IPv6 header does not know.
    fn is_later_fragment(&self) -> bool;

    /// Source address.
    fn source(&self) -> Addr;

    /// Destination address.
    fn destination(&self) -> Addr;

    /// Number of the subnet the source lies in, if it lies in the network.
    fn source_subnet(&self, family: &FamilyConfig) -> Option<u32>;

    /// Number of the subnet the destination lies in, if it lies in the network.
    fn destination_subnet(&self, family: &FamilyConfig) -> Option<u32>;

    /// TOS, or traffic class: DSCP and ECN.
    fn tos(&self) -> u8;

    /// TTL or hop limit.
    fn hops(&self) -> u8;

    /// Returns true if the checksum of the header is right. IPv6 has none.
    fn has_right_checksum(&self) -> bool;

    /// Returns the number of the next header: TCP, UDP, an extension header, ...
    fn protocol(&self) -> u8;

    /// Length the header claims for the whole packet, in bytes.
    fn total_len(&self) -> u32;

    /// Length of the header in bytes. Less than its minimum for a malformed one.
    fn header_len(&self) -> u32;
}
