//! Packet arithmetic: offsets, checksums, ECN, the tunnel's source port, segment lengths. Pure
//! functions on bytes in network order.

#![expect(
    clippy::cast_possible_truncation,
    reason = "sums are folded to sixteen bits, and header lengths are constants below 64"
)]

pub mod addr;
pub mod checksum;
pub mod ethernet;
pub mod inner;
pub mod ip;
pub mod outer;

use crate::packet::checksum::fold;

/// Ethernet header.
pub const ETH_LEN: usize = 14;
/// IPv4 header without options.
pub const IPV4_LEN: usize = 20;
/// IPv6 header without extension headers.
pub const IPV6_LEN: usize = 40;
/// UDP header.
pub const UDP_LEN: usize = 8;
/// VXLAN header ([RFC 7348, section 5](https://www.rfc-editor.org/rfc/rfc7348#section-5)).
pub const VXLAN_LEN: usize = 8;
/// Bytes that encapsulation adds to a frame over IPv4: outer IPv4, UDP, VXLAN, inner Ethernet - the
/// 50 bytes by which flannel lowers the MTU.
pub const OVERHEAD_V4: usize = IPV4_LEN + UDP_LEN + VXLAN_LEN + ETH_LEN;
/// The same over IPv6: 70 bytes.
pub const OVERHEAD_V6: usize = IPV6_LEN + UDP_LEN + VXLAN_LEN + ETH_LEN;

/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
/// EtherType of IPv6.
pub const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Protocol number (IPv6: next header) of TCP.
pub const PROTO_TCP: u8 = 6;
/// Protocol number of UDP.
pub const PROTO_UDP: u8 = 17;
/// Protocol number of ICMP.
pub const PROTO_ICMP: u8 = 1;
/// Next header of ICMPv6.
pub const PROTO_ICMPV6: u8 = 58;
/// Next header of IPv6's hop-by-hop options.
pub const PROTO_HOP_BY_HOP: u8 = 0;
/// Next header of IPv6's routing header.
pub const PROTO_ROUTING: u8 = 43;
/// Next header of IPv6's destination options.
pub const PROTO_DESTINATION_OPTIONS: u8 = 60;
/// Next header of IPv6's fragment header.
pub const PROTO_FRAGMENT: u8 = 44;

/// The one's complement sum of an IPv4 header of twenty bytes whose checksum field is zero, ready
/// to store.
#[inline(always)]
pub const fn ipv4_checksum(header: &[u8; IPV4_LEN]) -> [u8; 2] {
    let (mut sum, mut at) = (0, 0);
    while at < IPV4_LEN {
        sum +=
            u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as u64;
        at += 4;
    }
    (!fold(sum)).to_ne_bytes()
}

/// Writes four bytes of a header, `at` the first of them, as one word: bytes of different origin
/// would be moved one by one.
#[inline(always)]
pub(crate) fn put(header: &mut [u8], at: usize, bytes: [u8; 4]) {
    header[at..at + 4].copy_from_slice(&u32::from_ne_bytes(bytes).to_ne_bytes());
}

/// Outer TOS (IPv6: traffic class) for an inner one, as the kernel's vxlan device with TOS 0 does
/// it (`ip_tunnel_ecn_encap()` in [include/net/ip_tunnels.h, Linux
/// 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/net/ip_tunnels.h)): DSCP 0, the ECN
/// field copied, except that CE becomes ECT(0) ([RFC 3168, section
/// 9.1.1](https://www.rfc-editor.org/rfc/rfc3168#section-9.1.1), full functionality).
#[inline(always)]
pub const fn outer_tos(inner: u8) -> u8 {
    match inner & 0b11 {
        0b11 => 0b10,
        ecn => ecn,
    }
}

/// The TOS of a packet that comes out of the tunnel, as the kernel's vxlan device gives it ([RFC
/// 6040, section 4.2](https://www.rfc-editor.org/rfc/rfc6040#section-4.2)): congestion seen on the
/// way is kept. None if the packet cannot say so, which makes it the kernel's to drop.
#[inline(always)]
pub const fn decapsulated_tos(outer: u8, inner: u8) -> Option<u8> {
    match (outer & 0b11, inner & 0b11) {
        (0b11, 0b00) => None,
        (0b11, _) => Some(inner | 0b11),
        (0b01, 0b10) => Some(inner & !0b11 | 0b01),
        _ => Some(inner),
    }
}

/// The tunnel's source port for a flow hash, in the kernel's formula (`udp_flow_src_port()` in
/// [include/net/udp.h, Linux 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/net/udp.h)),
/// so that ECMP places our packets and the kernel's alike.
#[inline(always)]
pub const fn source_port(hash: u32, min: u16, max: u16) -> u16 {
    let mixed = hash ^ (hash << 16);
    let span = max.wrapping_sub(min) as u64;
    ((mixed as u64 * span) >> 32) as u16 + min
}

/// The largest outer packet (IPv4 total length, or the whole IPv6 packet) that a frame becomes on
/// the wire: the whole frame, or one segment of it where the kernel still has to cut it.
///
/// `overhead` is what encapsulation adds; `frame_len` counts from the Ethernet header; `headers`
/// are the inner IP and transport headers together, `gso_size` the payload of one segment, 0 for a
/// packet that is not segmented.
#[inline(always)]
pub const fn outer_segment_len(overhead: u32, frame_len: u32, headers: u32, gso_size: u32) -> u32 {
    let inner = if gso_size == 0 {
        frame_len - ETH_LEN as u32
    } else {
        headers + gso_size
    };
    inner + overhead
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_checksum_is_that_of_a_known_header() {
        // RFC 1071's method on a header captured from a vxlan device.
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0x00,
            0x01, 0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(ipv4_checksum(&header), [0xb8, 0x61]);
    }

    #[test]
    fn ecn_follows_rfc_6040_and_dscp_stays_inside() {
        assert_eq!(outer_tos(0b0000_0000), 0b00);
        assert_eq!(outer_tos(0b1011_1001), 0b01);
        assert_eq!(outer_tos(0b1011_1010), 0b10);
        assert_eq!(outer_tos(0b1011_1011), 0b10, "CE is not copied outwards");
    }

    #[test]
    fn congestion_on_the_way_is_kept() {
        assert_eq!(
            decapsulated_tos(0b11, 0xb8),
            None,
            "the inner packet cannot say so"
        );
        assert_eq!(decapsulated_tos(0b11, 0xb9), Some(0xbb));
        assert_eq!(decapsulated_tos(0b11, 0xba), Some(0xbb));
        assert_eq!(decapsulated_tos(0b01, 0xba), Some(0xb9));
        for (outer, inner) in [(0, 0), (0, 3), (2, 1), (2, 2), (1, 0), (1, 3)] {
            assert_eq!(
                decapsulated_tos(outer, 0xb8 | inner),
                Some(0xb8 | inner),
                "{outer} over {inner}"
            );
        }
    }

    #[test]
    fn segments_are_what_the_route_has_to_carry() {
        assert_eq!(outer_segment_len(50, 14 + 1450, 0, 0), 1500);
        assert_eq!(outer_segment_len(50, 65_000, 20 + 32, 1398), 1500);
        assert_eq!(outer_segment_len(70, 65_000, 40 + 32, 1358), 1500);
    }

    proptest! {
        #[test]
        fn a_header_with_its_checksum_sums_to_ones(
            mut header in prop::array::uniform20(any::<u8>()),
        ) {
            header[10..12].fill(0);
            let checksum = ipv4_checksum(&header);
            header[10..12].copy_from_slice(&checksum);
            let sum: u32 = header
                .chunks(2)
                .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
                .sum();
            let folded = (sum & 0xffff) + (sum >> 16);
            prop_assert_eq!((folded & 0xffff) + (folded >> 16), 0xffff);
        }

        #[test]
        fn source_ports_stay_in_the_range(
            hash: u32,
            min in 1024_u16..40_000,
            span in 1_u16..20_000,
        ) {
            let port = source_port(hash, min, min + span);
            prop_assert!((min..min + span).contains(&port));
        }
    }
}
