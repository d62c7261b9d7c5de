//! The IPv6 header, and the fragment header that may follow it.

#![expect(
    clippy::cast_possible_truncation,
    reason = "header lengths are small, and callers keep a frame below 64 KiB"
)]

use crate::{
    abi::{
        node::FamilyConfig,
        peer::{PeerEntry, subnet_index_v6},
    },
    packet::{
        ETH_LEN, ETHERTYPE_IPV6, IPV6_LEN, OVERHEAD_V6, PROTO_DESTINATION_OPTIONS, PROTO_FRAGMENT,
        PROTO_HOP_BY_HOP, PROTO_ROUTING, PROTO_UDP, outer_tos, put,
    },
    packet::{
        addr::Addr,
        ip::{IpHeader, TTL, Varying},
    },
};

/// Forty bytes of IPv6 header.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Ipv6Header(pub [u8; IPV6_LEN]);

impl Ipv6Header {
    /// Version, traffic class and flow label of our outer packets. The vxlan device's default flow
    /// label is 0, whatever the inner packet's is.
    #[inline(always)]
    const fn first_word(inner_tos: u8) -> [u8; 4] {
        let class = outer_tos(inner_tos);
        [0x60 | class >> 4, class << 4, 0, 0]
    }
}

/// Copies sixteen bytes from a constant offset.
macro_rules! address {
    ($bytes:expr, $at:literal) => {{
        let mut address = [0; 16];
        address.copy_from_slice(&$bytes[$at..$at + 16]);
        address
    }};
}

impl IpHeader for Ipv6Header {
    const ETHERTYPE: [u8; 2] = ETHERTYPE_IPV6;

    #[inline(always)]
    fn write_outer(&mut self, family: &FamilyConfig, peer: &PeerEntry, varying: &Varying) {
        let [high, low] =
            (varying.frame_len as u16 + (OVERHEAD_V6 - ETH_LEN - IPV6_LEN) as u16).to_be_bytes();
        let ip = &mut self.0;
        put(ip, 0, Self::first_word(varying.inner_tos));
        put(ip, 4, [high, low, PROTO_UDP, TTL]);
        ip[8..24].copy_from_slice(&family.vtep.0);
        ip[24..].copy_from_slice(&peer.vtep.0);
    }

    /// The payload length may differ.
    #[inline(always)]
    fn equals_recipe(&self, inner_tos: u8) -> bool {
        let b = &self.0;
        u32::from_ne_bytes([b[0], b[1], b[2], b[3]])
            == u32::from_ne_bytes(Self::first_word(inner_tos))
            && b[7] == TTL
    }

    #[inline(always)]
    fn carries_udp(&self) -> bool {
        self.0[0] >> 4 == 6 && (self.0[6] == PROTO_UDP || self.has_fragment_header())
    }

    #[inline(always)]
    fn may_hide_udp(&self) -> bool {
        Self::is_extension(self.0[6]) && !self.has_fragment_header()
    }

    #[inline(always)]
    fn is_extension(protocol: u8) -> bool {
        ExtensionHeader::is_one(protocol)
    }

    #[inline(always)]
    fn has_fragment_header(&self) -> bool {
        self.0[6] == PROTO_FRAGMENT
    }

    #[inline(always)]
    fn is_fragment(&self) -> bool {
        self.has_fragment_header()
    }

    #[inline(always)]
    fn is_later_fragment(&self) -> bool {
        false
    }

    #[inline(always)]
    fn source(&self) -> Addr {
        Addr(address!(self.0, 8))
    }

    #[inline(always)]
    fn destination(&self) -> Addr {
        Addr(address!(self.0, 24))
    }

    #[inline(always)]
    fn source_subnet(&self, family: &FamilyConfig) -> Option<u32> {
        subnet_index_v6(family, address!(self.0, 8))
    }

    #[inline(always)]
    fn destination_subnet(&self, family: &FamilyConfig) -> Option<u32> {
        subnet_index_v6(family, address!(self.0, 24))
    }

    #[inline(always)]
    fn tos(&self) -> u8 {
        self.0[0] << 4 | self.0[1] >> 4
    }

    #[inline(always)]
    fn hops(&self) -> u8 {
        self.0[7]
    }

    #[inline(always)]
    fn has_right_checksum(&self) -> bool {
        true
    }

    #[inline(always)]
    fn protocol(&self) -> u8 {
        self.0[6]
    }

    #[inline(always)]
    fn total_len(&self) -> u32 {
        u32::from(u16::from_be_bytes([self.0[4], self.0[5]])) + IPV6_LEN as u32
    }

    #[inline(always)]
    fn header_len(&self) -> u32 {
        IPV6_LEN as u32
    }
}

/// The fragment extension header ([RFC 8200, section
/// 4.5](https://www.rfc-editor.org/rfc/rfc8200#section-4.5)).
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct FragmentHeader(pub [u8; 8]);

impl FragmentHeader {
    /// Returns true if a UDP header follows.
    #[inline(always)]
    pub const fn starts_udp(&self) -> bool {
        let b = &self.0;
        b[0] == PROTO_UDP && u16::from_be_bytes([b[2], b[3]]) & 0xfff8 == 0
    }
}

/// The start of an extension header that may stand before UDP ([RFC 8200, section
/// 4.1](https://www.rfc-editor.org/rfc/rfc8200#section-4.1)): hop-by-hop or destination options,
/// routing, fragment.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct ExtensionHeader(pub [u8; 8]);

impl ExtensionHeader {
    /// Returns true for the number of an extension header.
    #[inline(always)]
    pub const fn is_one(protocol: u8) -> bool {
        matches!(
            protocol,
            PROTO_HOP_BY_HOP | PROTO_ROUTING | PROTO_FRAGMENT | PROTO_DESTINATION_OPTIONS
        )
    }

    /// The number of what follows it.
    #[inline(always)]
    pub const fn next(&self) -> u8 {
        self.0[0]
    }

    /// Its length in bytes, given its own number.
    #[inline(always)]
    pub const fn len(&self, protocol: u8) -> usize {
        if protocol == PROTO_FRAGMENT {
            8
        } else {
            (self.0[1] as usize + 1) * 8
        }
    }

    /// Returns true if it is the fragment header of another fragment than the first.
    #[inline(always)]
    pub const fn is_later_fragment(&self) -> bool {
        u16::from_be_bytes([self.0[2], self.0[3]]) & 0xfff8 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Ipv6Header {
        let mut bytes = [0; 40];
        (bytes[0], bytes[1], bytes[6], bytes[7]) = (0x60, 0x10, 17, 64);
        Ipv6Header(bytes)
    }

    fn with(at: usize, value: u8) -> Ipv6Header {
        let mut header = header();
        header.0[at] = value;
        header
    }

    #[test]
    fn udp_follows_directly_or_behind_a_fragment_header() {
        assert!(header().carries_udp() && !header().is_fragment());
        assert!(with(6, 44).carries_udp() && with(6, 44).is_fragment());
        for other in [with(6, 6), with(6, 0), with(0, 0x45)] {
            assert!(!other.carries_udp(), "{other:?}");
        }
    }

    #[test]
    fn udp_hides_behind_extension_headers() {
        for extension in [0, 43, 60] {
            assert!(with(6, extension).may_hide_udp(), "{extension}");
        }
        for other in [17, 6, 44, 58, 59] {
            assert!(!with(6, other).may_hide_udp(), "{other}");
        }
    }

    #[test]
    fn extension_headers_say_what_follows_and_where() {
        let options = ExtensionHeader([17, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            (options.next(), options.len(60), options.len(44)),
            (17, 24, 8)
        );
        assert!(ExtensionHeader([17, 0, 0, 8, 0, 0, 0, 1]).is_later_fragment());
        assert!(!ExtensionHeader([17, 0, 0, 7, 0, 0, 0, 1]).is_later_fragment());
    }

    #[test]
    fn only_the_first_fragment_of_a_datagram_starts_udp() {
        let header = |next, high, low| FragmentHeader([next, 0, high, low, 0, 0, 0, 1]);
        assert!(header(17, 0, 1).starts_udp(), "more follow");
        assert!(header(17, 0, 6).starts_udp(), "reserved bits");
        assert!(
            !header(17, 0, 8).starts_udp()
                && !header(17, 1, 1).starts_udp()
                && !header(6, 0, 1).starts_udp()
        );
    }

    #[test]
    fn the_traffic_class_lies_across_two_bytes() {
        let mut header = header();
        (header.0[0], header.0[1]) = (0x6b, 0x9f);
        assert_eq!(header.tos(), 0xb9);
    }

    #[test]
    fn the_recipe_is_traffic_class_flow_label_and_hop_limit() {
        assert!(header().equals_recipe(0xb9));
        for other in [
            with(0, 0x6b),
            with(1, 0x20),
            with(1, 0x11),
            with(2, 1),
            with(3, 1),
            with(7, 63),
        ] {
            assert!(!other.equals_recipe(0xb9), "{other:?}");
        }
    }
}
