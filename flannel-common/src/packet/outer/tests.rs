//! Every promise of both families, on one recipe each.

use core::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use crate::{abi::reason::Reason, packet::addr::Mac, packet::ipv4_checksum};

const OUR_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const PEER_MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);
const OUR_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
const PEER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 9);
const VARYING: Varying = Varying {
    frame_len: 14 + 84,
    inner_tos: 0xb9,
    id: 0x1234,
    source_port: 0xabcd,
};

fn family(vtep: Addr) -> FamilyConfig {
    FamilyConfig {
        vtep,
        vtep_mac: OUR_MAC,
        port: 8472_u16.to_be_bytes(),
        vni: 0x01_0203,
        ..FamilyConfig::default()
    }
}

fn peer(vtep: Addr) -> PeerEntry {
    PeerEntry {
        vtep,
        mac: PEER_MAC,
        ..PeerEntry::default()
    }
}

/// Our recipe over one family: the headers, and what they were made from.
struct Recipe<I> {
    family: FamilyConfig,
    peer: PeerEntry,
    headers: OuterHeaders<I>,
}

impl<I: IpHeader> Recipe<I> {
    fn new(ours: impl Into<Addr>, theirs: impl Into<Addr>) -> Self {
        let (family, peer) = (family(ours.into()), peer(theirs.into()));
        // SAFETY: the headers are bytes, and fewer than these.
        let mut headers: OuterHeaders<I> = unsafe { core::mem::transmute_copy(&[0xff_u8; 128]) };
        headers.write(&family, &peer, &VARYING);
        Self {
            family,
            peer,
            headers,
        }
    }

    fn equals(&self, headers: &OuterHeaders<I>) -> bool {
        headers.equals_recipe(&self.family, &self.peer, VARYING.inner_tos)
    }

    fn holds(&self) {
        let headers = &self.headers;
        assert!(headers.is_tunnel(&self.family));
        let len = VARYING.frame_len + u32::try_from(OuterHeaders::<I>::OVERHEAD).expect("small");
        assert!(
            headers.has_length(len) && !headers.has_length(len - 1) && !headers.has_length(len + 1)
        );
        assert!(!headers.tunnel().has_checksum());
        assert_eq!(
            (headers.source(), headers.ip().destination()),
            (self.family.vtep, self.peer.vtep)
        );
        assert_eq!(
            (
                headers.tunnel().inner().destination(),
                headers.tunnel().inner().source()
            ),
            (PEER_MAC, OUR_MAC)
        );
        assert!(headers.tunnel().inner().carries(I::ETHERTYPE) && !headers.ip().is_fragment());
        assert_eq!(headers.tunnel().vxlan(&self.family), Ok(()));
        assert!(self.equals(headers));
    }

    fn tells_the_tunnel_headers_apart(&self) {
        for at in 0..8 {
            let mut other = self.headers;
            other.tunnel.vxlan[at] ^= 0x01;
            let expected = if (4..7).contains(&at) {
                Reason::OtherVni
            } else {
                Reason::BadVxlanHeader
            };
            assert_eq!(
                other.tunnel().vxlan(&self.family),
                Err(expected),
                "VXLAN byte {at}"
            );
        }
        for at in [2, 3] {
            let mut other = self.headers;
            other.tunnel.udp[at] ^= 0x01;
            assert!(!other.is_tunnel(&self.family), "UDP byte {at}");
        }
        for at in 0..12 {
            let mut other = self.headers;
            other.tunnel.inner.0[at] ^= 0x01;
            assert!(!self.equals(&other), "inner Ethernet byte {at}");
        }
        // Source port, length and checksum.
        for at in [0, 4, 6] {
            let mut other = self.headers;
            other.tunnel.udp[at] ^= 0x5a;
            assert!(self.equals(&other), "UDP byte {at}");
        }
    }
}

fn v4() -> Recipe<Ipv4Header> {
    Recipe::new(Ipv4Addr::new(192, 168, 1, 1), Ipv4Addr::new(192, 168, 2, 9))
}

fn v6() -> Recipe<Ipv6Header> {
    Recipe::new(OUR_V6, PEER_V6)
}

/// UDP, VXLAN and inner Ethernet header of both recipes: 84 bytes inside.
fn tunnel_bytes(ethertype: [u8; 2]) -> Vec<u8> {
    let udp = [0xab, 0xcd, 0x21, 0x18, 0x00, 114, 0, 0];
    let vxlan = [0x08, 0, 0, 0, 0x01, 0x02, 0x03, 0];
    [&udp[..], &vxlan, &PEER_MAC.0, &OUR_MAC.0, &ethertype].concat()
}

fn bytes_of_tunnel(tunnel: &TunnelHeaders) -> Vec<u8> {
    [&tunnel.udp[..], &tunnel.vxlan, &tunnel.inner.0].concat()
}

#[test]
fn the_headers_over_ipv4_are_the_documented_bytes() {
    let headers = v4().headers;
    assert_eq!(
        headers.ethernet.0,
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x08, 0x00]
    );
    let mut ip = [
        0x45, 0x01, 0x00, 134, 0x12, 0x34, 0, 0, 64, 17, 0, 0, 192, 168, 1, 1, 192, 168, 2, 9,
    ];
    let checksum = ipv4_checksum(&ip);
    ip[10..12].copy_from_slice(&checksum);
    assert_eq!(headers.ip.0, ip);
    assert_eq!(bytes_of_tunnel(&headers.tunnel), tunnel_bytes([0x08, 0x00]));
}

#[test]
fn the_headers_over_ipv6_are_the_documented_bytes() {
    let headers = v6().headers;
    assert_eq!(
        headers.ethernet.0,
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x86, 0xdd]
    );
    let ip = [
        &[0x60, 0x10, 0, 0, 0, 114, 17, 64][..],
        &OUR_V6.octets(),
        &PEER_V6.octets(),
    ]
    .concat();
    assert_eq!(headers.ip.0[..], ip);
    assert_eq!(bytes_of_tunnel(&headers.tunnel), tunnel_bytes([0x86, 0xdd]));
}

#[test]
fn our_own_packet_is_read_back_as_made() {
    v4().holds();
    v6().holds();
}

#[test]
fn the_tunnel_headers_are_distinguished_over_both_families() {
    v4().tells_the_tunnel_headers_apart();
    v6().tells_the_tunnel_headers_apart();
}

#[test]
fn every_byte_of_an_outer_ipv4_header_that_matters_counts() {
    let recipe = v4();
    // Version and length, lengths, identification, fragment offset, protocol and checksum are
    // judged elsewhere or may differ.
    for (at, same) in (0..20).map(|at| (at, matches!(at, 0 | 2..=7 | 9..=11))) {
        let mut other = recipe.headers;
        other.ip.0[at] ^= 0x01;
        assert_eq!(recipe.equals(&other), same, "byte {at}");
    }
}

#[test]
fn every_byte_of_an_outer_ipv6_header_that_matters_counts() {
    let recipe = v6();
    // Payload length and next header are judged elsewhere.
    for (at, same) in (0..40).map(|at| (at, matches!(at, 4..=6))) {
        let mut other = recipe.headers;
        other.ip.0[at] ^= 0x01;
        assert_eq!(recipe.equals(&other), same, "byte {at}");
    }
}

#[test]
fn a_packet_for_another_vtep_is_not_for_us() {
    let recipe = v6();
    assert!(!recipe.headers.is_for_us(&recipe.family));
    assert!(recipe.headers.is_for_us(&family(PEER_V6.into())));
    assert!(
        v4().headers
            .is_for_us(&family(Ipv4Addr::new(192, 168, 2, 9).into()))
    );
}
