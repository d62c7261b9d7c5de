//! The outer headers of the tunnel: how ours are built, and how a packet on the underlay is judged against
//! them. One place for both, because `to_underlay` compares the kernel's packets with our own recipe.

#![expect(
    clippy::cast_possible_truncation,
    reason = "header lengths are constants below 64, and callers keep a frame below 64 KiB"
)]

use crate::{
    addr::Mac,
    node::FamilyConfig,
    packet::{ETH_LEN, ETHERTYPE_IPV4, IPV4_LEN, OUTER_LEN, OVERHEAD_V4, PROTO_UDP, UDP_LEN, ipv4_checksum, outer_tos},
    peer::PeerEntry,
    reason::Reason,
};

/// Outer TTL: the kernel's default hop limit. Where a node's kernel uses another, `to_underlay` sees that and the
/// packets stay with the kernel.
pub const TTL: u8 = 64;

/// VXLAN flags: the VNI is valid, nothing else.
const VXLAN_FLAGS: u8 = 0x08;

const IP: usize = ETH_LEN;
const UDP: usize = IP + IPV4_LEN;
const VXLAN: usize = UDP + UDP_LEN;
const INNER: usize = OUTER_LEN - ETH_LEN;

/// Outer Ethernet, IPv4, UDP, VXLAN and inner Ethernet header: the first 64 bytes of an encapsulated frame.
pub type OuterBytes = [u8; OUTER_LEN];

/// What varies from packet to packet.
#[derive(Clone, Copy, Debug)]
pub struct Varying {
    /// Length of the frame before encapsulation, from its Ethernet header on.
    pub frame_len: u32,
    /// TOS of the inner packet.
    pub inner_tos: u8,
    /// IPv4 identification.
    pub id: u16,
    /// UDP source port.
    pub source_port: u16,
}

/// The outer headers for one frame. The outer Ethernet addresses stay zero: the neighbour entry fills them.
///
/// DF is clear and the UDP checksum 0, which RFC 7348 permits over IPv4.
#[inline(always)]
pub fn build_v4(family: &FamilyConfig, peer: &PeerEntry, varying: &Varying) -> OuterBytes {
    let mut out = [0; OUTER_LEN];
    out[12..14].copy_from_slice(&ETHERTYPE_IPV4);
    out[IP..UDP].copy_from_slice(&ipv4_header(family, peer, varying));
    out[UDP..UDP + 2].copy_from_slice(&varying.source_port.to_be_bytes());
    out[UDP + 2..UDP + 4].copy_from_slice(&family.port);
    let udp_len = varying.frame_len as u16 + (VXLAN - UDP + UDP_LEN) as u16;
    out[UDP + 4..UDP + 6].copy_from_slice(&udp_len.to_be_bytes());
    out[VXLAN] = VXLAN_FLAGS;
    out[VXLAN + 4..VXLAN + 8].copy_from_slice(&(family.vni << 8).to_be_bytes());
    out[INNER..INNER + 6].copy_from_slice(&peer.mac.0);
    out[INNER + 6..INNER + 12].copy_from_slice(&family.vtep_mac.0);
    out[INNER + 12..].copy_from_slice(&ETHERTYPE_IPV4);
    out
}

#[inline(always)]
fn ipv4_header(family: &FamilyConfig, peer: &PeerEntry, varying: &Varying) -> [u8; IPV4_LEN] {
    let mut ip = [0; IPV4_LEN];
    ip[0] = 0x45;
    ip[1] = outer_tos(varying.inner_tos);
    let total = varying.frame_len as u16 + (OVERHEAD_V4 - ETH_LEN) as u16;
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip[4..6].copy_from_slice(&varying.id.to_be_bytes());
    ip[8] = TTL;
    ip[9] = PROTO_UDP;
    ip[12..16].copy_from_slice(&family.vtep.v4_bytes());
    ip[16..20].copy_from_slice(&peer.vtep.v4_bytes());
    let checksum = ipv4_checksum(&ip);
    ip[10..12].copy_from_slice(&checksum);
    ip
}

/// A packet on the underlay, read as a tunnel packet.
#[derive(Clone, Copy)]
pub struct Outer<'a>(&'a OuterBytes);

impl<'a> Outer<'a> {
    /// Reads the packet, if its outer headers are those of a tunnel packet at all: IPv4 without options, UDP, our
    /// destination port.
    #[inline(always)]
    pub const fn read(bytes: &'a OuterBytes, family: &FamilyConfig) -> Option<Self> {
        let is_udp = bytes[12] == ETHERTYPE_IPV4[0]
            && bytes[13] == ETHERTYPE_IPV4[1]
            && bytes[IP] == 0x45
            && bytes[IP + 9] == PROTO_UDP;
        if is_udp && bytes[UDP + 2] == family.port[0] && bytes[UDP + 3] == family.port[1] {
            Some(Self(bytes))
        } else {
            None
        }
    }

    /// Outer source address.
    #[inline(always)]
    pub const fn source(self) -> [u8; 4] {
        let b = self.0;
        [b[IP + 12], b[IP + 13], b[IP + 14], b[IP + 15]]
    }

    /// Outer destination address.
    #[inline(always)]
    pub const fn destination(self) -> [u8; 4] {
        let b = self.0;
        [b[IP + 16], b[IP + 17], b[IP + 18], b[IP + 19]]
    }

    /// Outer TOS.
    #[inline(always)]
    pub const fn tos(self) -> u8 {
        self.0[IP + 1]
    }

    /// Whether IP and UDP length say that the packet fills a frame of `len` bytes.
    #[inline(always)]
    pub const fn has_length(self, len: u32) -> bool {
        let b = self.0;
        let ip = u16::from_be_bytes([b[IP + 2], b[IP + 3]]) as u32;
        let udp = u16::from_be_bytes([b[UDP + 4], b[UDP + 5]]) as u32;
        ip + IP as u32 == len && udp + UDP as u32 == len
    }

    /// Whether it carries no UDP checksum.
    #[inline(always)]
    pub const fn has_no_checksum(self) -> bool {
        self.0[UDP + 6] == 0 && self.0[UDP + 7] == 0
    }

    /// More fragments follow, or this is not the first.
    #[inline(always)]
    pub const fn is_fragment(self) -> bool {
        self.0[IP + 6] & 0x3f != 0 || self.0[IP + 7] != 0
    }

    /// Not the first fragment: what follows the IPv4 header is payload, not UDP.
    #[inline(always)]
    pub const fn is_later_fragment(self) -> bool {
        self.0[IP + 6] & 0x1f != 0 || self.0[IP + 7] != 0
    }

    /// Inner Ethernet destination.
    #[inline(always)]
    pub const fn inner_destination_mac(self) -> Mac {
        let b = self.0;
        Mac([b[INNER], b[INNER + 1], b[INNER + 2], b[INNER + 3], b[INNER + 4], b[INNER + 5]])
    }

    /// Whether an inner IPv4 packet follows.
    #[inline(always)]
    pub const fn inner_is_ipv4(self) -> bool {
        self.0[INNER + 12] == ETHERTYPE_IPV4[0] && self.0[INNER + 13] == ETHERTYPE_IPV4[1]
    }

    /// The VXLAN header is valid and names our VNI; otherwise why not.
    #[inline(always)]
    pub const fn vxlan(self, family: &FamilyConfig) -> Result<(), Reason> {
        let b = self.0;
        let reserved = b[VXLAN + 1] | b[VXLAN + 2] | b[VXLAN + 3] | b[VXLAN + 7];
        if b[VXLAN] != VXLAN_FLAGS || reserved != 0 {
            return Err(Reason::BadVxlanHeader);
        }
        if u32::from_be_bytes([0, b[VXLAN + 4], b[VXLAN + 5], b[VXLAN + 6]]) == family.vni {
            Ok(())
        } else {
            Err(Reason::OtherVni)
        }
    }

    /// Whether the kernel made this packet as we would have, for this peer and an inner packet of this TOS: addresses,
    /// TOS, TTL, DF and inner Ethernet addresses. Identification, source port, UDP checksum and lengths may differ.
    #[inline(always)]
    pub const fn equals_recipe(self, family: &FamilyConfig, peer: &PeerEntry, inner_tos: u8) -> bool {
        let b = self.0;
        same4(self.source(), family.vtep.v4_bytes())
            && same4(self.destination(), peer.vtep.v4_bytes())
            && b[IP + 1] == outer_tos(inner_tos)
            && b[IP + 8] == TTL
            && b[IP + 6] & 0x40 == 0
            && same6(self.inner_destination_mac(), peer.mac)
            && same6(self.inner_source_mac(), family.vtep_mac)
    }

    #[inline(always)]
    const fn inner_source_mac(self) -> Mac {
        let b = self.0;
        Mac([b[INNER + 6], b[INNER + 7], b[INNER + 8], b[INNER + 9], b[INNER + 10], b[INNER + 11]])
    }
}

/// Equality of two IPv4 addresses. As integers: a comparison of byte arrays becomes a call the BPF target lacks.
#[inline(always)]
pub const fn same4(a: [u8; 4], b: [u8; 4]) -> bool {
    u32::from_ne_bytes(a) == u32::from_ne_bytes(b)
}

/// Equality of two Ethernet addresses, for the same reason.
#[inline(always)]
pub const fn same6(a: Mac, b: Mac) -> bool {
    let (a, b) = (a.0, b.0);
    u64::from_ne_bytes([a[0], a[1], a[2], a[3], a[4], a[5], 0, 0])
        == u64::from_ne_bytes([b[0], b[1], b[2], b[3], b[4], b[5], 0, 0])
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    fn family() -> FamilyConfig {
        FamilyConfig {
            vtep: Ipv4Addr::new(192, 168, 1, 1).into(),
            vtep_mac: Mac([2, 0, 0, 0, 0, 1]),
            port: 8472_u16.to_be_bytes(),
            vni: 0x01_0203,
            ..FamilyConfig::default()
        }
    }

    fn peer() -> PeerEntry {
        PeerEntry { vtep: Ipv4Addr::new(192, 168, 2, 9).into(), mac: Mac([2, 0, 0, 0, 0, 9]), ..PeerEntry::default() }
    }

    fn frame() -> OuterBytes {
        let varying = Varying { frame_len: 14 + 84, inner_tos: 0xb9, id: 0x1234, source_port: 0xabcd };
        build_v4(&family(), &peer(), &varying)
    }

    #[test]
    fn the_outer_headers_are_the_documented_bytes() {
        let mut expected = vec![0; 12];
        expected.extend([0x08, 0x00]);
        expected.extend([0x45, 0x01, 0x00, 134, 0x12, 0x34, 0x00, 0x00, 64, 17]);
        expected.extend(frame()[24..26].to_vec());
        expected.extend([192, 168, 1, 1, 192, 168, 2, 9]);
        expected.extend([0xab, 0xcd, 0x21, 0x18, 0x00, 114, 0, 0]);
        expected.extend([0x08, 0, 0, 0, 0x01, 0x02, 0x03, 0]);
        expected.extend([2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x08, 0x00]);
        assert_eq!(frame().to_vec(), expected);
        let mut ip: [u8; 20] = frame()[14..34].try_into().expect("twenty bytes");
        ip[10..12].fill(0);
        assert_eq!(frame()[24..26], ipv4_checksum(&ip));
    }

    #[test]
    fn our_own_packet_is_read_back_as_made() {
        let frame = frame();
        let outer = Outer::read(&frame, &family()).expect("a tunnel packet");
        assert_eq!(outer.source(), [192, 168, 1, 1]);
        assert_eq!(outer.destination(), [192, 168, 2, 9]);
        assert_eq!(outer.inner_destination_mac(), peer().mac);
        assert!(!outer.is_fragment() && outer.inner_is_ipv4());
        assert_eq!(outer.vxlan(&family()), Ok(()));
        assert!(outer.equals_recipe(&family(), &peer(), 0xb9));
    }

    #[test]
    fn other_packets_are_not_the_tunnels() {
        for (at, value) in [(13, 0xdd), (IP, 0x46), (IP + 9, PROTO_UDP - 11), (UDP + 3, 0x19)] {
            let mut bytes = frame();
            bytes[at] = value;
            assert!(Outer::read(&bytes, &family()).is_none(), "byte {at}");
        }
    }

    #[test]
    fn every_byte_of_the_vxlan_header_counts() {
        for at in VXLAN..VXLAN + 8 {
            let mut bytes = frame();
            bytes[at] ^= 0x01;
            let outer = Outer::read(&bytes, &family()).expect("a tunnel packet");
            let expected = if (VXLAN + 4..VXLAN + 7).contains(&at) { Reason::OtherVni } else { Reason::BadVxlanHeader };
            assert_eq!(outer.vxlan(&family()), Err(expected), "byte {at}");
        }
    }

    #[test]
    fn a_packet_that_differs_from_the_recipe_is_told_apart() {
        // TOS, DF, TTL, addresses, inner Ethernet addresses.
        for at in [IP + 1, IP + 8, IP + 15, IP + 19, INNER + 5, INNER + 11] {
            let mut bytes = frame();
            bytes[at] ^= 0x01;
            let outer = Outer::read(&bytes, &family()).expect("a tunnel packet");
            assert!(!outer.equals_recipe(&family(), &peer(), 0xb9), "byte {at}");
        }
        let mut with_df = frame();
        with_df[IP + 6] |= 0x40;
        let outer = Outer::read(&with_df, &family()).expect("a tunnel packet");
        assert!(!outer.equals_recipe(&family(), &peer(), 0xb9) && !outer.is_fragment());
    }

    #[test]
    fn what_may_differ_does_not_hide_the_path() {
        // Identification, header checksum, source port, UDP length and checksum.
        for at in [IP + 4, IP + 10, UDP, UDP + 4, UDP + 6] {
            let mut bytes = frame();
            bytes[at] ^= 0x5a;
            let outer = Outer::read(&bytes, &family()).expect("a tunnel packet");
            assert!(outer.equals_recipe(&family(), &peer(), 0xb9), "byte {at}");
        }
    }

    #[test]
    fn fragments_are_seen_first_and_later() {
        let mut first = frame();
        first[IP + 6] = 0x20;
        let outer = Outer::read(&first, &family()).expect("a tunnel packet");
        assert!(outer.is_fragment() && !outer.is_later_fragment());
        let mut later = frame();
        later[IP + 7] = 0x10;
        let outer = Outer::read(&later, &family()).expect("a tunnel packet");
        assert!(outer.is_fragment() && outer.is_later_fragment());
    }
}
