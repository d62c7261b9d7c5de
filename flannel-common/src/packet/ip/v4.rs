//! The IPv4 header.

#![expect(
    clippy::cast_possible_truncation,
    reason = "header lengths are small, and callers keep a frame below 64 KiB"
)]

use crate::{
    abi::{
        node::FamilyConfig,
        peer::{PeerEntry, subnet_index_v4},
    },
    packet::{
        ETH_LEN, ETHERTYPE_IPV4, IPV4_LEN, OVERHEAD_V4, PROTO_UDP, ipv4_checksum, outer_tos, put,
    },
    packet::{
        addr::Addr,
        ip::{IpHeader, TTL, Varying},
    },
};

/// Twenty bytes of IPv4 header.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Ipv4Header(pub [u8; IPV4_LEN]);

impl Ipv4Header {
    #[inline(always)]
    const fn source_bytes(&self) -> [u8; 4] {
        let b = &self.0;
        [b[12], b[13], b[14], b[15]]
    }

    #[inline(always)]
    const fn destination_bytes(&self) -> [u8; 4] {
        let b = &self.0;
        [b[16], b[17], b[18], b[19]]
    }
}

impl IpHeader for Ipv4Header {
    const ETHERTYPE: [u8; 2] = ETHERTYPE_IPV4;

    /// DF is clear, as in the vxlan device's packets.
    #[inline(always)]
    fn write_outer(&mut self, family: &FamilyConfig, peer: &PeerEntry, varying: &Varying) {
        let [high, low] = (varying.frame_len as u16 + (OVERHEAD_V4 - ETH_LEN) as u16).to_be_bytes();
        let [id_high, id_low] = varying.id.to_be_bytes();
        let ip = &mut self.0;
        put(ip, 0, [0x45, outer_tos(varying.inner_tos), high, low]);
        put(ip, 4, [id_high, id_low, 0, 0]);
        put(ip, 8, [TTL, PROTO_UDP, 0, 0]);
        put(ip, 12, family.vtep.v4_bytes());
        put(ip, 16, peer.vtep.v4_bytes());
        let [high, low] = ipv4_checksum(ip);
        put(ip, 8, [TTL, PROTO_UDP, high, low]);
    }

    /// Identification, lengths and checksum may differ.
    #[inline(always)]
    fn equals_recipe(&self, inner_tos: u8) -> bool {
        self.0[1] == outer_tos(inner_tos) && self.0[8] == TTL && self.0[6] & 0x40 == 0
    }

    #[inline(always)]
    fn carries_udp(&self) -> bool {
        self.0[0] == 0x45 && self.0[9] == PROTO_UDP
    }

    #[inline(always)]
    fn may_hide_udp(&self) -> bool {
        self.0[0] != 0x45 && self.0[9] == PROTO_UDP
    }

    #[inline(always)]
    fn is_extension(_protocol: u8) -> bool {
        false
    }

    #[inline(always)]
    fn has_fragment_header(&self) -> bool {
        false
    }

    #[inline(always)]
    fn is_fragment(&self) -> bool {
        self.0[6] & 0x3f != 0 || self.0[7] != 0
    }

    #[inline(always)]
    fn is_later_fragment(&self) -> bool {
        self.0[6] & 0x1f != 0 || self.0[7] != 0
    }

    #[inline(always)]
    fn source(&self) -> Addr {
        Addr::from_v4_bytes(self.source_bytes())
    }

    #[inline(always)]
    fn destination(&self) -> Addr {
        Addr::from_v4_bytes(self.destination_bytes())
    }

    #[inline(always)]
    fn source_subnet(&self, family: &FamilyConfig) -> Option<u32> {
        subnet_index_v4(family, self.source_bytes())
    }

    #[inline(always)]
    fn destination_subnet(&self, family: &FamilyConfig) -> Option<u32> {
        subnet_index_v4(family, self.destination_bytes())
    }

    #[inline(always)]
    fn tos(&self) -> u8 {
        self.0[1]
    }

    #[inline(always)]
    fn hops(&self) -> u8 {
        self.0[8]
    }

    #[inline(always)]
    fn has_right_checksum(&self) -> bool {
        ipv4_checksum(&self.0) == [0; 2]
    }

    #[inline(always)]
    fn protocol(&self) -> u8 {
        self.0[9]
    }

    #[inline(always)]
    fn total_len(&self) -> u32 {
        u32::from(u16::from_be_bytes([self.0[2], self.0[3]]))
    }

    #[inline(always)]
    fn header_len(&self) -> u32 {
        u32::from(self.0[0] & 0x0f) * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Ipv4Header {
        let mut bytes = [0; 20];
        (bytes[0], bytes[1], bytes[8], bytes[9]) = (0x45, 0x01, 64, 17);
        Ipv4Header(bytes)
    }

    fn with(at: usize, value: u8) -> Ipv4Header {
        let mut header = header();
        header.0[at] = value;
        header
    }

    #[test]
    fn udp_is_looked_for_where_no_options_are() {
        assert!(header().carries_udp());
        for other in [with(0, 0x46), with(0, 0x65), with(9, 6)] {
            assert!(!other.carries_udp(), "{other:?}");
        }
    }

    #[test]
    fn udp_hides_behind_options_alone() {
        assert!(with(0, 0x46).may_hide_udp() && !header().may_hide_udp());
        let mut tcp = with(0, 0x46);
        tcp.0[9] = 6;
        assert!(!tcp.may_hide_udp());
    }

    #[test]
    fn fragments_are_seen_first_and_later() {
        let whole = with(6, 0x40);
        assert!(!whole.is_fragment() && !whole.is_later_fragment());
        let first = with(6, 0x20);
        assert!(first.is_fragment() && !first.is_later_fragment());
        for later in [with(7, 0x10), with(6, 0x01), with(6, 0x21)] {
            assert!(
                later.is_fragment() && later.is_later_fragment(),
                "{later:?}"
            );
        }
    }

    #[test]
    fn the_recipe_is_tos_ttl_and_df() {
        assert!(header().equals_recipe(0xb9));
        for other in [with(1, 0x02), with(1, 0xb9), with(8, 63), with(6, 0x40)] {
            assert!(!other.equals_recipe(0xb9), "{other:?}");
        }
    }

    #[test]
    fn options_are_part_of_the_header() {
        assert_eq!(header().header_len(), 20);
        assert_eq!(with(0, 0x4f).header_len(), 60);
    }
}
