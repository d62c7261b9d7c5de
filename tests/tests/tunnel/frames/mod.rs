//! A frame the programs encapsulate equals the one the kernel's vxlan device makes of the same
//! inner packet: every field of every header, and the inner packet byte for byte. What may differ
//! stands in a table for each family, with the reason.
//!
//! Captured where the frames leave the sending node, on the router's side of its cable.

mod ipv4;
mod ipv6;

use std::{fmt::Write as _, ops::Range, time::Duration};

use anyhow::{Context as _, Result, ensure};
use etherparse::{IpNumber, TcpHeader};
use flannel_tests::{
    Pair,
    cluster::topology::Stack,
    eventually,
    packet::{
        Packet,
        frame::{self, V4, V6, checksum, is_encapsulated_by_us, is_ipv4},
        pattern,
        wire::{Capture, Wanted, inject},
    },
};

/// A field of a tunnel frame before the inner packet.
struct Field {
    name: &'static str,
    at: Range<usize>,
    /// The reason why our bytes may differ from the kernel's; `None` if they must be equal.
    differs: Option<&'static str>,
}

const fn equal(name: &'static str, at: Range<usize>) -> Field {
    Field {
        name,
        at,
        differs: None,
    }
}

const fn may_differ(name: &'static str, at: Range<usize>, why: &'static str) -> Field {
    Field {
        name,
        at,
        differs: Some(why),
    }
}

/// The layout over one family.
struct Layout {
    stack: Stack,
    is_tunnel: Wanted,
    /// Offset of the inner packet.
    inner: usize,
    /// Bytes of the largest UDP payload that a packet in the tunnel has.
    largest: usize,
    /// All fields, in the order of the bytes and without a gap.
    fields: &'static [Field],
}

const IPV4: Layout = Layout {
    stack: Stack::V4,
    is_tunnel: frame::is_tunnel,
    inner: V4.inner,
    largest: 1450 - 28,
    fields: &IPV4_FIELDS,
};

const IPV6: Layout = Layout {
    stack: Stack::V6,
    is_tunnel: frame::is_tunnel_v6,
    inner: V6.inner,
    largest: 1430 - 48,
    fields: &IPV6_FIELDS,
};

const IPV4_FIELDS: [Field; 24] = [
    equal("outer Ethernet destination", 0..6),
    equal("outer Ethernet source", 6..12),
    equal("outer EtherType", 12..14),
    equal("version and header length", 14..15),
    equal("outer TOS", 15..16),
    equal("total length", 16..18),
    may_differ(
        "identification",
        18..20,
        "ours is random, the kernel's a counter with a random start per destination",
    ),
    equal("flags and fragment offset", 20..22),
    equal("TTL", 22..23),
    equal("protocol", 23..24),
    may_differ(
        "header checksum",
        24..26,
        "follows from the identification; that it is right is checked for both",
    ),
    equal("source address", 26..30),
    equal("destination address", 30..34),
    equal("UDP source port", 34..36),
    equal("UDP destination port", 36..38),
    equal("UDP length", 38..40),
    may_differ(
        "UDP checksum",
        40..42,
        "ours is 0, which RFC 7348 permits over IPv4; the vxlan device computes one",
    ),
    equal("VXLAN flags", 42..43),
    equal("VXLAN reserved", 43..46),
    equal("VNI", 46..49),
    equal("VXLAN reserved, last", 49..50),
    equal("inner Ethernet destination", 50..56),
    equal("inner Ethernet source", 56..62),
    equal("inner EtherType", 62..V4.inner),
];

const IPV6_FIELDS: [Field; 20] = [
    equal("outer Ethernet destination", 0..6),
    equal("outer Ethernet source", 6..12),
    equal("outer EtherType", 12..14),
    equal("version, traffic class and flow label", 14..18),
    equal("payload length", 18..20),
    equal("next header", 20..21),
    equal("hop limit", 21..22),
    equal("source address", 22..38),
    equal("destination address", 38..54),
    equal("UDP source port", 54..56),
    equal("UDP destination port", 56..58),
    equal("UDP length", 58..60),
    may_differ(
        "UDP checksum",
        60..62,
        "ours is 0, which RFC 6935 permits; the vxlan device computes one",
    ),
    equal("VXLAN flags", 62..63),
    equal("VXLAN reserved", 63..66),
    equal("VNI", 66..69),
    equal("VXLAN reserved, last", 69..70),
    equal("inner Ethernet destination", 70..76),
    equal("inner Ethernet source", 76..82),
    equal("inner EtherType", 82..V6.inner),
];

/// The kernel's frame and ours of one inner packet.
struct Both {
    kernel: Vec<u8>,
    ours: Vec<u8>,
}

impl Both {
    /// Returns a text of the forbidden differences; empty when the frames agree.
    fn findings(&self, layout: &Layout) -> String {
        let mut text = String::new();
        let inner = equal(
            "inner packet",
            layout.inner..self.kernel.len().max(self.ours.len()),
        );
        for field in layout
            .fields
            .iter()
            .chain([&inner])
            .filter(|field| field.differs.is_none())
        {
            let (kernel, ours) = (
                self.kernel.get(field.at.clone()),
                self.ours.get(field.at.clone()),
            );
            if kernel != ours {
                writeln!(
                    text,
                    "{}: kernel {kernel:02x?}, ours {ours:02x?}",
                    field.name
                )
                .expect("text grows");
            }
        }
        for (who, frame) in [("kernel", &self.kernel), ("ours", &self.ours)] {
            if is_ipv4(frame) && checksum(&frame[14..34]) != 0 {
                writeln!(text, "{who}: the outer header checksum is wrong").expect("text grows");
            }
        }
        text
    }
}

/// A pair whose frames are captured on the router.
struct Wire {
    // First: it ends before its lab.
    capture: Capture,
    pair: Pair,
    layout: &'static Layout,
}

impl Wire {
    fn new(name: &str, layout: &'static Layout) -> Result<Self> {
        let pair = Pair::with(name, layout.stack, &[])?;
        Ok(Self {
            capture: Capture::start(&pair.net.r, "eth-a", layout.is_tunnel)?,
            pair,
            layout,
        })
    }

    fn datagram(&self, id: u16, length: usize) -> Packet {
        Packet::udp(self.pair.near.ip(), self.pair.far.ip(), id, length)
    }

    fn largest(&self) -> Packet {
        self.datagram(7, self.layout.largest)
    }

    /// The frames with this inner packet, as the node forwards it.
    fn carrying(&self, packet: &Packet) -> Vec<Vec<u8>> {
        let forwarded = Packet {
            ttl: packet.ttl - 1,
            ..packet.clone()
        }
        .bytes();
        let mut frames = self.capture.frames();
        frames.retain(|frame| frame[self.layout.inner..] == forwarded[..]);
        frames
    }

    /// Sends a packet until a frame with it was made by the programs, or by the kernel.
    fn frame(&self, packet: &Packet, by_us: bool) -> Result<Vec<u8>> {
        self.capture.clear();
        eventually(
            "a frame of the wanted maker",
            Duration::from_secs(5),
            || {
                inject(&self.pair.near, packet)?;
                let frames = eventually("a frame", Duration::from_secs(2), || {
                    let frames = self.carrying(packet);
                    (!frames.is_empty()).then_some(frames)
                })?;
                let wanted = frames
                    .into_iter()
                    .find(|frame| is_encapsulated_by_us(frame) == by_us);
                wanted.context("only the other's")
            },
        )
    }

    /// Both frames of each packet.
    fn both(&self, packets: &[(&str, Packet)]) -> Result<Vec<Both>> {
        self.pair.sender.set_mode("kernel")?;
        let before = self.pair.encapsulated()?;
        let kernel: Vec<_> = packets
            .iter()
            .map(|(name, packet)| self.frame(packet, false).context((*name).to_owned()))
            .collect::<Result<_>>()?;
        ensure!(
            self.pair.encapsulated()? == before,
            "the programs encapsulated in mode kernel"
        );
        self.pair.sender.set_mode("encap")?;
        let ours: Vec<_> = packets
            .iter()
            .map(|(name, packet)| self.frame(packet, true).context((*name).to_owned()))
            .collect::<Result<_>>()?;
        let taken = self.pair.encapsulated()? - before;
        ensure!(
            taken >= packets.len() as u64,
            "{taken} encapsulated for {} packets",
            packets.len()
        );
        Ok(kernel
            .into_iter()
            .zip(ours)
            .map(|(kernel, ours)| Both { kernel, ours })
            .collect())
    }

    fn expect_equal(&self, packets: &[(&str, Packet)]) -> Result<Vec<Both>> {
        let all = self.both(packets)?;
        for ((name, _), both) in packets.iter().zip(&all) {
            assert_eq!(both.findings(self.layout), "", "{name}");
        }
        Ok(all)
    }

    fn expect_equal_kinds(&self) -> Result<()> {
        let (from, to) = (self.pair.near.ip(), self.pair.far.ip());
        let datagram = |id| self.datagram(id, 100);
        let syn = |tcp: &mut TcpHeader| {
            (tcp.ack, tcp.syn, tcp.acknowledgment_number) = (false, true, 0);
            tcp.options = [2, 4, 0x05, 0x82].into();
        };
        let [first, later] = datagram(6).fragments(64);
        self.expect_equal(&[
            ("echo request", Packet::echo_request(from, to, 1, 56)),
            (
                "TCP SYN",
                Packet::tcp([(from, 40_000).into(), (to, 80).into()], 2, &[], syn),
            ),
            ("UDP", datagram(3)),
            ("UDP with checksum 0", datagram(4).without_udp_checksum()),
            (
                "options",
                Packet {
                    has_options: true,
                    ..datagram(5)
                },
            ),
            ("first fragment", first),
            ("later fragment", later),
            ("as large as the MTU", self.largest()),
            (
                "DF, or a flow label",
                Packet {
                    df: true,
                    label: 0xa_bcde,
                    ..datagram(8)
                },
            ),
            (
                "a protocol without ports",
                Packet::new(from, to, 10, IpNumber(99), pattern(24)),
            ),
            ("no payload", self.datagram(11, 0)),
        ])?;
        Ok(())
    }

    /// DSCP is not copied out, ECN is, and CE becomes ECT(0) outside ([RFC 3168, section
    /// 9.1.1](https://www.rfc-editor.org/rfc/rfc3168#section-9.1.1)). Returns the inner class, the
    /// outer one, and our frame.
    fn expect_equal_classes(&self) -> Result<Vec<(u8, u8, Vec<u8>)>> {
        let cases = [
            ("Not-ECT", 0, 0),
            ("ECT(1)", 1, 1),
            ("ECT(0)", 2, 2),
            ("CE", 3, 2),
            ("EF", 0xb8, 0),
            ("EF and ECT(0)", 0xba, 2),
            ("EF and CE", 0xbb, 2),
        ];
        let packet = |(id, (name, class, _))| {
            (
                name,
                Packet {
                    class,
                    label: 0x1_2345,
                    ..self.datagram(id, 64)
                },
            )
        };
        let packets: Vec<_> = (1..).zip(cases).map(packet).collect();
        let all = self.expect_equal(&packets)?;
        Ok(cases
            .into_iter()
            .zip(all)
            .map(|((_, class, outer), both)| (class, outer, both.ours))
            .collect())
    }
}

/// Without this a field could be missing from the comparison.
#[test]
fn the_tables_cover_every_byte_of_the_headers() {
    for layout in [IPV4, IPV6] {
        let end = layout.fields.iter().fold(0, |end, field| {
            assert_eq!(field.at.start, end, "{}", field.name);
            field.at.end
        });
        assert_eq!(end, layout.inner);
    }
}
