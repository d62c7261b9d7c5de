//! A frame the programs encapsulate equals the one the kernel's vxlan device makes of the same inner packet, but for the
//! UDP checksum.

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv6Addr},
    ops::Range,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_common::mode::Mode;
use flannel_tests::{
    eventually,
    packet::{TCP, UDP, pattern, tcp_syn, udp},
    packet_v6::{FRAGMENT, HOP_BY_HOP, ICMPV6, INNER_AT, Ipv6, inject, is_encapsulated_by_us, is_tunnel},
    wire::Capture,
};

use super::tunnel::Tunnel;

/// A field of a tunnel frame before the inner packet, and whether ours may differ.
type Field = (&'static str, Range<usize>, bool);

/// The one table of fields, in the order of the bytes and without a gap.
const FIELDS: [Field; 20] = [
    ("outer Ethernet destination", 0..6, false),
    ("outer Ethernet source", 6..12, false),
    ("outer EtherType", 12..14, false),
    ("version, traffic class and flow label", 14..18, false),
    ("payload length", 18..20, false),
    ("next header", 20..21, false),
    ("hop limit", 21..22, false),
    ("source address", 22..38, false),
    ("destination address", 38..54, false),
    ("UDP source port", 54..56, false),
    ("UDP destination port", 56..58, false),
    ("UDP length", 58..60, false),
    // Ours is 0 (RFC 6935), the vxlan device computes one.
    ("UDP checksum", 60..62, true),
    ("VXLAN flags", 62..63, false),
    ("VXLAN reserved", 63..66, false),
    ("VNI", 66..69, false),
    ("VXLAN reserved, last", 69..70, false),
    ("inner Ethernet destination", 70..76, false),
    ("inner Ethernet source", 76..82, false),
    ("inner EtherType", 82..INNER_AT, false),
];

/// The kernel's frame and ours of one inner packet.
struct Both {
    kernel: Vec<u8>,
    ours: Vec<u8>,
}

impl Both {
    /// Returns a text of the forbidden differences; empty when the frames agree.
    fn findings(&self) -> String {
        let mut text = String::new();
        let inner: Field = ("inner packet", INNER_AT..self.kernel.len().max(self.ours.len()), false);
        for (name, at, _) in FIELDS.iter().chain([&inner]).filter(|(.., may_differ)| !may_differ) {
            let (kernel, ours) = (self.kernel.get(at.clone()), self.ours.get(at.clone()));
            if kernel != ours {
                writeln!(text, "{name}: kernel {kernel:02x?}, ours {ours:02x?}").expect("text grows");
            }
        }
        text
    }
}

/// A tunnel whose frames are captured where they arrive.
struct Wire {
    // First: it ends before its lab.
    capture: Capture,
    tunnel: Tunnel,
}

impl Wire {
    fn new(name: &str) -> Result<Option<Self>> {
        let Some(tunnel) = Tunnel::new(name)? else { return Ok(None) };
        Ok(Some(Self { capture: Capture::start(&tunnel.far.node, "eth0", is_tunnel)?, tunnel }))
    }

    fn ends(&self) -> Result<[Ipv6Addr; 2]> {
        let v6 = |ip| match ip {
            IpAddr::V6(v6) => Ok(v6),
            IpAddr::V4(v4) => anyhow::bail!("{v4} is no IPv6 address"),
        };
        Ok([v6(self.tunnel.near.pod.ip())?, v6(self.tunnel.far.pod.ip())?])
    }

    /// Sends a packet until a frame with it was made by the programs, or by the kernel. Only its hop limit changes on the way.
    fn frame(&self, packet: &[u8], by_us: bool) -> Result<Vec<u8>> {
        let mut forwarded = packet.to_vec();
        forwarded[7] -= 1;
        self.capture.clear();
        eventually("a frame of the wanted maker", Duration::from_secs(5), || {
            inject(&self.tunnel.near.pod, packet)?;
            let frames = eventually("a frame", Duration::from_secs(2), || {
                let mut frames = self.capture.frames();
                frames.retain(|frame| frame[INNER_AT..] == forwarded[..]);
                (!frames.is_empty()).then_some(frames)
            })?;
            let wanted = frames.into_iter().find(|frame| is_encapsulated_by_us(frame) == by_us);
            wanted.context("only the other's")
        })
    }

    /// Both frames of each packet, which must agree.
    fn expect_equal(&mut self, packets: &[(&str, Ipv6)]) -> Result<Vec<Both>> {
        let frames = |wire: &Self, by_us| -> Result<Vec<_>> {
            let frame = |(name, packet): &(&str, Ipv6)| wire.frame(&packet.bytes(), by_us).context((*name).to_owned());
            packets.iter().map(frame).collect()
        };
        self.tunnel.set_mode(Mode::Kernel)?;
        let kernel = frames(self, false)?;
        let before = self.tunnel.near.encapsulated()?;
        self.tunnel.set_mode(Mode::Encap)?;
        let ours = frames(self, true)?;
        let taken = self.tunnel.near.encapsulated()? - before;
        ensure!(taken >= packets.len() as u64, "{taken} encapsulated for {} packets", packets.len());
        let all: Vec<_> = kernel.into_iter().zip(ours).map(|(kernel, ours)| Both { kernel, ours }).collect();
        for ((name, _), both) in packets.iter().zip(&all) {
            assert_eq!(both.findings(), "", "{name}");
        }
        Ok(all)
    }
}

/// Without this a field could be missing from the comparison.
#[test]
fn the_table_covers_every_byte_of_the_headers() {
    let end = FIELDS.iter().fold(0, |end, (name, at, _)| {
        assert_eq!(at.start, end, "{name}");
        at.end
    });
    assert_eq!(end, INNER_AT);
}

#[test]
fn frames_of_every_kind_of_inner_packet_equal_the_kernels() -> Result<()> {
    let Some(mut wire) = Wire::new("v6frames")? else { return Ok(()) };
    let [from, to] = wire.ends()?;
    let datagram = |number| Ipv6::udp(from, to, number, 100);
    let echo = [&[128, 0, 0, 0, 0, 9, 0, 1][..], &pattern(56)].concat();
    let padding = [0, 0, 1, 4, 0, 0, 0, 0];
    let (first, later) = ([0, 0, 0, 1, 0, 0, 0, 7], [0, 0, 0, 0x80, 0, 0, 0, 7]);
    wire.expect_equal(&[
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
    ])?;
    Ok(())
}

/// DSCP and flow label are not copied out, ECN is, and CE becomes ECT(0) outside (RFC 6040).
#[test]
fn the_outer_traffic_class_equals_the_kernels_for_every_inner_one() -> Result<()> {
    let Some(mut wire) = Wire::new("v6class")? else { return Ok(()) };
    let [from, to] = wire.ends()?;
    let cases = [(0, 0), (1, 1), (2, 2), (3, 2), (0xb8, 0), (0xba, 2), (0xbb, 2)];
    let packets: Vec<_> = (1..)
        .zip(cases)
        .map(|(number, (class, _))| ("class", Ipv6 { class, label: 0x1_2345, ..Ipv6::udp(from, to, number, 64) }))
        .collect();
    let all = wire.expect_equal(&packets)?;
    for ((class, outer), both) in cases.iter().zip(all) {
        assert_eq!(both.ours[14..18], [0x60, outer << 4, 0, 0], "inner {class:#x}");
    }
    Ok(())
}
