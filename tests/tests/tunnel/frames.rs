//! A frame the programs encapsulate equals the one the kernel's vxlan device makes of the same inner packet: every
//! field of every header, and the inner packet byte for byte. What may differ stands in one table, with the reason.
//!
//! Captured where the frames leave the sending node, on the router's side of its cable.

use std::{
    fmt::Write as _,
    net::{Ipv4Addr, UdpSocket},
    ops::Range,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Pair, eventually,
    packet::{
        self, ICMP, INNER_AT, Ipv4, MORE_FRAGMENTS, TCP, UDP, checksum, echo_request, identification,
        is_encapsulated_by_us, pattern, tcp_syn, total_length, udp,
    },
    wire::{Capture, inject},
};

/// A field of a tunnel frame before the inner IPv4 packet.
struct Field {
    name: &'static str,
    at: Range<usize>,
    /// The reason why our bytes may differ from the kernel's; `None` if they must be equal.
    differs: Option<&'static str>,
}

const fn equal(name: &'static str, at: Range<usize>) -> Field {
    Field { name, at, differs: None }
}

const fn may_differ(name: &'static str, at: Range<usize>, why: &'static str) -> Field {
    Field { name, at, differs: Some(why) }
}

/// The one table of fields, in the order of the bytes and without a gap.
const FIELDS: [Field; 24] = [
    equal("outer Ethernet destination", 0..6),
    equal("outer Ethernet source", 6..12),
    equal("outer EtherType", 12..14),
    equal("version and header length", 14..15),
    equal("outer TOS", 15..16),
    equal("total length", 16..18),
    may_differ("identification", 18..20, "ours is random, the kernel's a counter with a random start per destination"),
    equal("flags and fragment offset", 20..22),
    equal("TTL", 22..23),
    equal("protocol", 23..24),
    may_differ("header checksum", 24..26, "follows from the identification; that it is right is checked for both"),
    equal("source address", 26..30),
    equal("destination address", 30..34),
    equal("UDP source port", 34..36),
    equal("UDP destination port", 36..38),
    equal("UDP length", 38..40),
    may_differ("UDP checksum", 40..42, "ours is 0, which RFC 7348 permits over IPv4; the vxlan device computes one"),
    equal("VXLAN flags", 42..43),
    equal("VXLAN reserved", 43..46),
    equal("VNI", 46..49),
    equal("VXLAN reserved, last", 49..50),
    equal("inner Ethernet destination", 50..56),
    equal("inner Ethernet source", 56..62),
    equal("inner EtherType", 62..INNER_AT),
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
        for field in FIELDS.iter().filter(|field| field.differs.is_none()) {
            let (kernel, ours) = (&self.kernel[field.at.clone()], &self.ours[field.at.clone()]);
            if kernel != ours {
                writeln!(text, "{}: kernel {kernel:02x?}, ours {ours:02x?}", field.name).expect("text grows");
            }
        }
        if self.kernel[INNER_AT..] != self.ours[INNER_AT..] {
            writeln!(text, "inner packet: {:02x?} and {:02x?}", &self.kernel[INNER_AT..], &self.ours[INNER_AT..])
                .expect("text grows");
        }
        for (who, frame) in [("kernel", &self.kernel), ("ours", &self.ours)] {
            if checksum(&frame[14..34]) != 0 {
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
}

impl Wire {
    fn new(name: &str) -> Result<Self> {
        let pair = Pair::new(name)?;
        Ok(Self { capture: Capture::tunnel(&pair.net.r, "eth-a")?, pair })
    }

    fn ends(&self) -> Result<[Ipv4Addr; 2]> {
        Ok([self.pair.near.ip4()?, self.pair.far.ip4()?])
    }

    /// The frames with this inner packet, of which only TTL and header checksum change on the way.
    fn carrying(&self, packet: &[u8]) -> Vec<Vec<u8>> {
        let mut forwarded = packet.to_vec();
        forwarded[8] -= 1;
        forwarded[10..12].fill(0);
        let header = usize::from(forwarded[0] & 0x0f) * 4;
        let sum = checksum(&forwarded[..header]);
        forwarded[10..12].copy_from_slice(&sum.to_be_bytes());
        let frames = self.capture.frames().into_iter();
        frames.filter(|frame| frame[INNER_AT..] == forwarded[..]).collect()
    }

    /// Sends a packet until a frame with it was made by the programs, or by the kernel.
    fn frame(&self, packet: &[u8], by_us: bool) -> Result<Vec<u8>> {
        self.capture.clear();
        eventually("a frame of the wanted maker", Duration::from_secs(5), || {
            inject(&self.pair.near, packet)?;
            let frames = eventually("a frame", Duration::from_secs(2), || {
                let frames = self.carrying(packet);
                (!frames.is_empty()).then_some(frames)
            })?;
            let wanted = frames.into_iter().find(|frame| is_encapsulated_by_us(frame) == by_us);
            wanted.context("only the other's")
        })
    }

    /// Both frames of each packet.
    fn both(&self, packets: &[(&str, Vec<u8>)]) -> Result<Vec<Both>> {
        self.pair.sender.set_mode("kernel")?;
        let before = self.pair.encapsulated()?;
        let kernel: Vec<_> = packets
            .iter()
            .map(|(name, packet)| self.frame(packet, false).context((*name).to_owned()))
            .collect::<Result<_>>()?;
        ensure!(self.pair.encapsulated()? == before, "the programs encapsulated in mode kernel");
        self.pair.sender.set_mode("encap")?;
        let ours: Vec<_> = packets
            .iter()
            .map(|(name, packet)| self.frame(packet, true).context((*name).to_owned()))
            .collect::<Result<_>>()?;
        let taken = self.pair.encapsulated()? - before;
        ensure!(taken >= packets.len() as u64, "{taken} encapsulated for {} packets", packets.len());
        Ok(kernel.into_iter().zip(ours).map(|(kernel, ours)| Both { kernel, ours }).collect())
    }

    fn expect_equal(&self, packets: &[(&str, Vec<u8>)]) -> Result<Vec<Both>> {
        let all = self.both(packets)?;
        for ((name, _), both) in packets.iter().zip(&all) {
            assert_eq!(both.findings(), "", "{name}");
        }
        Ok(all)
    }
}

/// Without this a field could be missing from the comparison.
#[test]
fn the_table_covers_every_byte_of_the_headers() {
    let mut at = 0;
    for field in &FIELDS {
        assert_eq!(field.at.start, at, "{}", field.name);
        at = field.at.end;
    }
    assert_eq!(at, INNER_AT);
}

#[test]
fn frames_of_every_kind_of_inner_packet_equal_the_kernels() -> Result<()> {
    let wire = Wire::new("frames")?;
    let [from, to] = wire.ends()?;
    let datagram = |id| Ipv4::udp(from, to, id, 100);
    let zero_checksum = Ipv4::new(from, to, 4, UDP, udp(4242, 4243, &pattern(100)));
    let with_options = Ipv4 { options: vec![1, 1, 1, 0], ..datagram(5) };
    let first = Ipv4 { fragment: MORE_FRAGMENTS, ..Ipv4::new(from, to, 6, UDP, datagram(6).payload[..64].to_vec()) };
    let later = Ipv4 { fragment: 8, ..Ipv4::new(from, to, 6, UDP, pattern(44)) };
    let echo = Ipv4::new(from, to, 1, ICMP, echo_request(9, 56));
    let syn = Ipv4::new(from, to, 2, TCP, tcp_syn(40_000, 80, 7)).with_checksum(16);
    let whole = Ipv4 { fragment: packet::DONT_FRAGMENT, ..datagram(8) };
    let other = Ipv4::new(from, to, 10, 99, pattern(24));
    wire.expect_equal(&[
        ("ICMP echo request", echo.bytes()),
        ("TCP SYN", syn.bytes()),
        ("UDP", datagram(3).bytes()),
        ("UDP with checksum 0", zero_checksum.bytes()),
        ("UDP with IPv4 options", with_options.bytes()),
        ("first fragment", first.bytes()),
        ("later fragment", later.bytes()),
        ("DF inside", whole.bytes()),
        ("a protocol without ports", other.bytes()),
        ("no payload", Ipv4::new(from, to, 11, UDP, udp(4242, 4243, &[])).with_checksum(6).bytes()),
    ])?;
    Ok(())
}

/// DSCP is not copied out, ECN is, and CE becomes ECT(0) outside (RFC 6040).
#[test]
fn the_outer_tos_equals_the_kernels_for_every_inner_one() -> Result<()> {
    let wire = Wire::new("tos")?;
    let [from, to] = wire.ends()?;
    let cases: [(&str, u8, u8); 7] = [
        ("Not-ECT", 0, 0),
        ("ECT(1)", 1, 1),
        ("ECT(0)", 2, 2),
        ("CE", 3, 2),
        ("EF", 0xb8, 0),
        ("EF and ECT(0)", 0xba, 2),
        ("EF and CE", 0xbb, 2),
    ];
    let number = |at: usize| u16::try_from(at + 1).expect("few cases");
    let packets: Vec<_> = cases
        .iter()
        .enumerate()
        .map(|(at, (name, tos, _))| (*name, Ipv4 { tos: *tos, ..Ipv4::udp(from, to, number(at), 64) }.bytes()))
        .collect();
    let all = wire.expect_equal(&packets)?;
    for ((name, tos, outer), both) in cases.iter().zip(all) {
        assert_eq!((both.ours[15], both.ours[INNER_AT + 1]), (*outer, *tos), "{name}");
    }
    Ok(())
}

#[test]
fn the_largest_packet_for_the_mtu_is_encapsulated_like_the_kernels() -> Result<()> {
    let wire = Wire::new("largest")?;
    let [from, to] = wire.ends()?;
    let packet = Ipv4::udp(from, to, 1, 1450 - 28);
    let all = wire.expect_equal(&[("1450 bytes", packet.bytes())])?;
    assert_eq!(total_length(&all[0].ours[14..]), 1500);
    Ok(())
}

/// ECMP in the underlay goes by the outer source port: a flow must not move when the mode changes.
#[test]
fn a_sockets_flow_keeps_its_outer_source_port_across_modes() -> Result<()> {
    let wire = Wire::new("port")?;
    let far = wire.ends()?[1];
    let sockets: Vec<UdpSocket> = wire.pair.near.enter(|| -> Result<_> {
        (0..8)
            .map(|_| {
                let socket = UdpSocket::bind("0.0.0.0:0")?;
                socket.connect((far, 4243))?;
                Ok(socket)
            })
            .collect()
    })??;
    let ports = |by_us: bool| -> Result<Vec<[u8; 2]>> {
        wire.capture.clear();
        sockets.iter().map(|socket| outer_port(&wire, socket, by_us)).collect()
    };
    wire.pair.sender.set_mode("kernel")?;
    let kernel = ports(false)?;
    wire.pair.sender.set_mode("encap")?;
    let ours = ports(true)?;
    assert_eq!(kernel, ours);
    let different: std::collections::BTreeSet<_> = ours.iter().collect();
    assert!(different.len() > 1, "one port for all flows: {ours:?}");
    Ok(())
}

/// The outer source port of the frames by which a socket's datagrams leave.
fn outer_port(wire: &Wire, socket: &UdpSocket, by_us: bool) -> Result<[u8; 2]> {
    let local = socket.local_addr()?.port().to_be_bytes();
    eventually("a frame of this socket", Duration::from_secs(5), || {
        // Nothing listens there; the refusal comes back as an error of a later send.
        drop(socket.send(b"a datagram"));
        let frames = wire.capture.frames();
        let ours = frames.iter().find(|frame| {
            frame[INNER_AT + 9] == UDP
                && frame[INNER_AT + 20..INNER_AT + 22] == local
                && is_encapsulated_by_us(frame) == by_us
        });
        ours.map(|frame| [frame[34], frame[35]])
    })
}

/// Equal ones would mix packets up wherever the underlay fragments.
#[test]
fn identifications_of_our_frames_differ() -> Result<()> {
    let wire = Wire::new("ids")?;
    let [from, to] = wire.ends()?;
    wire.pair.sender.set_mode("encap")?;
    let packet = Ipv4::udp(from, to, 1, 64).bytes();
    wire.frame(&packet, true)?;
    wire.capture.clear();
    for _ in 0..40 {
        inject(&wire.pair.near, &packet)?;
    }
    let ids = eventually("forty frames", Duration::from_secs(5), || {
        let frames = wire.carrying(&packet);
        let ids: Vec<_> = frames
            .iter()
            .filter(|frame| is_encapsulated_by_us(frame))
            .map(|frame| identification(&frame[14..]))
            .collect();
        (frames.len() == 40).then_some(ids)
    })?;
    let different: std::collections::BTreeSet<_> = ids.iter().collect();
    assert!(ids.len() >= 38 && different.len() + 2 >= ids.len(), "{ids:?}");
    Ok(())
}
