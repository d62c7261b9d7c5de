//! The packets: every kind that may or must not be replayed, as one that a known flow could hold.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{Context as _, Result};
use flannel_common::reason::Reason;
use flannel_tests::{
    Pair,
    packet::{
        DONT_FRAGMENT, ICMP, Ipv4, MORE_FRAGMENTS, UDP, echo_request, pattern, udp,
        v6::{FRAGMENT, HOP_BY_HOP, Ipv6},
    },
};

/// Packets that a pod sends in the middle of a known flow, and the reason under which `from_pod` is
/// to count them.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) packets: Vec<Vec<u8>>,
    pub(crate) reason: Reason,
}

impl Case {
    fn one(name: &'static str, reason: Reason, packet: Vec<u8>) -> Self {
        Self { name, packets: vec![packet], reason }
    }
}

/// The packet that says nothing, as large as the way takes: what is as large may leave as well.
pub(crate) fn plain(pair: &Pair, mtu: usize) -> Result<Vec<u8>> {
    let packet = Ipv4::udp(pair.near.ip4()?, pair.far.ip4()?, 0x7fff, mtu - 28);
    Ok(Ipv4 { tos: 2, ..packet }.bytes())
}

/// The same for IPv6.
pub(crate) fn plain_v6(pair: &Pair, mtu: usize) -> Result<Vec<u8>> {
    let [from, to] = ends_v6(pair)?;
    Ok(Ipv6 { class: 2, ..Ipv6::udp(from, to, 0x7fff, mtu - 48) }.bytes())
}

fn ends_v6(pair: &Pair) -> Result<[Ipv6Addr; 2]> {
    let end = |address: Option<std::net::IpAddr>| match address {
        Some(std::net::IpAddr::V6(v6)) => Some(v6),
        _ => None,
    };
    Ok([end(pair.near.ip6()).context("no IPv6 address")?, end(pair.far.ip6()).context("no IPv6 address")?])
}

/// TTL or hop limit of a packet.
fn with_ttl(mut packet: Vec<u8>, ttl: u8) -> Vec<u8> {
    let at = if packet[0] >> 4 == 6 { 7 } else { 8 };
    packet[at] = ttl;
    packet
}

/// DSCP and ECN: every codepoint of ECN, with and without expedited forwarding.
pub(crate) fn classes(pair: &Pair) -> Result<Vec<Case>> {
    let (from, to) = (pair.near.ip4()?, pair.far.ip4()?);
    let class = |(id, (name, tos)): (u16, (&'static str, u8))| {
        Case::one(name, of_class(tos), Ipv4 { tos, ..Ipv4::udp(from, to, id, 64) }.bytes())
    };
    Ok((100..).zip(CLASSES).map(class).collect())
}

/// The same for IPv6.
pub(crate) fn classes_v6(pair: &Pair) -> Result<Vec<Case>> {
    let [from, to] = ends_v6(pair)?;
    let class = |(number, (name, class)): (u16, (&'static str, u8))| {
        Case::one(name, of_class(class), Ipv6 { class, ..Ipv6::udp(from, to, number, 64) }.bytes())
    };
    Ok((100..).zip(CLASSES).map(class).collect())
}

/// Rules can ask for the DSCP: a packet with another than its flow's is the kernel's. ECN changes
/// from packet to packet.
const fn of_class(class: u8) -> Reason {
    if class & 0xfc == 0 { Reason::Replayed } else { Reason::FieldsDiffer }
}

const CLASSES: [(&str, u8); 7] = [
    ("Not-ECT", 0),
    ("ECT(1)", 1),
    ("ECT(0)", 2),
    ("CE", 3),
    ("EF", 0xb8),
    ("EF and ECT(0)", 0xba),
    ("EF and CE", 0xbb),
];

/// All others, on a way that takes packets of this size.
pub(crate) fn kinds(pair: &Pair, mtu: usize) -> Result<Vec<Case>> {
    let (from, to) = (pair.near.ip4()?, pair.far.ip4()?);
    let datagram = |id, length| Ipv4::udp(from, to, id, length);
    let payload = |packet: &Ipv4| packet.payload.clone();
    let zero_sum = Ipv4::new(from, to, 4, UDP, udp(4242, 4243, &pattern(99)));
    let mut wrong_sum = datagram(5, 100);
    wrong_sum.payload[6] ^= 0x5a;
    let fragmented = payload(&datagram(8, 1000));
    let fragments = vec![
        Ipv4 { fragment: MORE_FRAGMENTS, ..Ipv4::new(from, to, 8, UDP, fragmented[..512].to_vec()) }.bytes(),
        Ipv4 { fragment: 512 / 8, ..Ipv4::new(from, to, 8, UDP, fragmented[512..].to_vec()) }.bytes(),
    ];
    let whole = |id, length| Ipv4 { fragment: DONT_FRAGMENT, ..datagram(id, length) }.bytes();
    Ok(vec![
        Case::one("small", Reason::Replayed, datagram(1, 3).bytes()),
        Case::one("no payload", Reason::Replayed, datagram(2, 0).bytes()),
        Case::one("DF", Reason::Replayed, whole(3, 100)),
        Case::one("checksum 0", Reason::Replayed, zero_sum.bytes()),
        Case::one("wrong checksum", Reason::Replayed, wrong_sum.bytes()),
        Case::one("as large as the MTU, DF", Reason::Replayed, whole(6, mtu - 28)),
        Case::one("options", Reason::NotPlain, Ipv4 { options: vec![1, 1, 1, 0], ..datagram(7, 100) }.bytes()),
        Case { name: "fragments", packets: fragments, reason: Reason::NotPlain },
        Case::one("neither TCP nor UDP", Reason::NotPlain, Ipv4::new(from, to, 9, 99, pattern(24)).bytes()),
        Case::one("ICMP", Reason::NotPlain, Ipv4::new(from, to, 10, ICMP, echo_request(9, 56)).bytes()),
        Case::one("TTL 1", Reason::NotPlain, with_ttl(datagram(11, 100).bytes(), 1)),
        Case::one("TTL 2", Reason::FieldsDiffer, with_ttl(datagram(12, 100).bytes(), 2)),
        Case::one("TTL 3", Reason::FieldsDiffer, with_ttl(datagram(13, 100).bytes(), 3)),
        Case::one("TTL 255", Reason::FieldsDiffer, with_ttl(datagram(14, 100).bytes(), 255)),
        Case::one("too large, DF", Reason::TooBig, whole(15, mtu - 28 + 1)),
        Case::one("too large", Reason::TooBig, datagram(16, mtu - 28 + 1).bytes()),
        Case::one("from another's address", Reason::Sampled, Ipv4::udp(other(from), to, 17, 100).bytes()),
    ])
}

/// Returns an address of the same /24 that no pod has.
fn other(address: Ipv4Addr) -> Ipv4Addr {
    let [a, b, c, _] = address.octets();
    Ipv4Addr::new(a, b, c, 77)
}

/// The same for IPv6.
pub(crate) fn kinds_v6(pair: &Pair, mtu: usize) -> Result<Vec<Case>> {
    let [from, to] = ends_v6(pair)?;
    let datagram = |number, length| Ipv6::udp(from, to, number, length);
    let mut wrong_sum = datagram(5, 100);
    wrong_sum.payload[6] ^= 0x5a;
    let fragmented = datagram(8, 1000).payload;
    let fragment = |payload: &[u8], offset_and_more: u16| {
        let [high, low] = offset_and_more.to_be_bytes();
        Ipv6::new(from, to, UDP, payload.to_vec()).behind(FRAGMENT, [0, 0, high, low, 0, 0, 0, 8]).bytes()
    };
    let fragments = vec![fragment(&fragmented[..512], 1), fragment(&fragmented[512..], 512)];
    let options = datagram(7, 100).behind(HOP_BY_HOP, [0, 0, 1, 4, 0, 0, 0, 0]);
    Ok(vec![
        Case::one("small", Reason::Replayed, datagram(1, 3).bytes()),
        Case::one("flow label", Reason::FieldsDiffer, Ipv6 { label: 0xa_bcde, ..datagram(2, 100) }.bytes()),
        Case::one("wrong checksum", Reason::Replayed, wrong_sum.bytes()),
        Case::one("as large as the MTU", Reason::Replayed, datagram(6, mtu - 48).bytes()),
        Case::one("options", Reason::NotPlain, options.bytes()),
        Case { name: "fragments", packets: fragments, reason: Reason::NotPlain },
        Case::one("neither TCP nor UDP", Reason::NotPlain, Ipv6::new(from, to, 99, pattern(24)).bytes()),
        Case::one("hop limit 1", Reason::NotPlain, with_ttl(datagram(11, 100).bytes(), 1)),
        Case::one("hop limit 2", Reason::FieldsDiffer, with_ttl(datagram(12, 100).bytes(), 2)),
        Case::one("hop limit 3", Reason::FieldsDiffer, with_ttl(datagram(13, 100).bytes(), 3)),
        Case::one("too large", Reason::TooBig, datagram(15, mtu - 48 + 1).bytes()),
    ])
}
