//! Tunnels over IPv6.

use std::net::{IpAddr, Ipv6Addr};

use anyhow::Result;
use flannel_tests::packet::{
    TCP, UDP, pattern, tcp_syn, udp,
    v6::{FRAGMENT, HOP_BY_HOP, ICMPV6, Ipv6},
};

use super::{IPV6, Wire};

fn ends(wire: &Wire) -> Result<[Ipv6Addr; 2]> {
    let v6 = |ip| match ip {
        IpAddr::V6(v6) => Ok(v6),
        IpAddr::V4(v4) => anyhow::bail!("{v4} is no IPv6 address"),
    };
    Ok([v6(wire.pair.near.ip())?, v6(wire.pair.far.ip())?])
}

#[test]
fn frames_of_every_kind_of_inner_packet_equal_the_kernels() -> Result<()> {
    let wire = Wire::new("v6frames", &IPV6)?;
    let [from, to] = ends(&wire)?;
    let datagram = |number| Ipv6::udp(from, to, number, 100);
    let echo = [&[128, 0, 0, 0, 0, 9, 0, 1][..], &pattern(56)].concat();
    let padding = [0, 0, 1, 4, 0, 0, 0, 0];
    let (first, later) = ([0, 0, 0, 1, 0, 0, 0, 7], [0, 0, 0, 0x80, 0, 0, 0, 7]);
    let packets = [
        ("ICMPv6 echo request", Ipv6::new(from, to, ICMPV6, echo).with_checksum(2)),
        ("TCP SYN", Ipv6::new(from, to, TCP, tcp_syn(40_000, 80, 7)).with_checksum(16)),
        ("UDP", datagram(3)),
        ("UDP with checksum 0", Ipv6::new(from, to, UDP, udp(4242, 4243, &pattern(100)))),
        ("a flow label", Ipv6 { label: 0xa_bcde, ..datagram(4) }),
        ("hop-by-hop options", datagram(5).behind(HOP_BY_HOP, padding)),
        ("first fragment", datagram(6).behind(FRAGMENT, first)),
        ("later fragment", Ipv6::new(from, to, UDP, pattern(44)).behind(FRAGMENT, later)),
        ("a protocol without ports", Ipv6::new(from, to, 99, pattern(24))),
        ("no payload", Ipv6::new(from, to, UDP, udp(4242, 4243, &[])).with_checksum(6)),
        ("as large as the MTU", Ipv6::udp(from, to, 7, 1430 - 48)),
    ];
    wire.expect_equal(&packets.map(|(name, packet)| (name, packet.bytes()))).map(drop)
}

/// DSCP and flow label are not copied out, ECN is, and CE becomes ECT(0) outside (RFC 6040).
#[test]
fn the_outer_traffic_class_equals_the_kernels_for_every_inner_one() -> Result<()> {
    let wire = Wire::new("v6class", &IPV6)?;
    let [from, to] = ends(&wire)?;
    let cases = [(0, 0), (1, 1), (2, 2), (3, 2), (0xb8, 0), (0xba, 2), (0xbb, 2)];
    let packets: Vec<_> = (1..)
        .zip(cases)
        .map(|(number, (class, _))| {
            ("class", Ipv6 { class, label: 0x1_2345, ..Ipv6::udp(from, to, number, 64) }.bytes())
        })
        .collect();
    let all = wire.expect_equal(&packets)?;
    for ((class, outer), both) in cases.iter().zip(all) {
        assert_eq!(both.ours[14..18], [0x60, outer << 4, 0, 0], "inner {class:#x}");
    }
    Ok(())
}
