//! IPv6 packets and tunnel frames: what the module around it is for IPv4.

use std::net::Ipv6Addr;

use super::{UDP, checksum, pattern, udp};

/// The offset of the outer UDP header in a tunnel frame.
pub const UDP_AT: usize = 14 + 40;
/// The offset of the inner packet in a tunnel frame.
pub const INNER_AT: usize = UDP_AT + 8 + 8 + 14;

/// The extension header with options for every hop.
pub const HOP_BY_HOP: u8 = 0;
/// The extension header of fragments.
pub const FRAGMENT: u8 = 44;
/// The next header of ICMPv6.
pub const ICMPV6: u8 = 58;

/// An IPv6 packet to be.
#[derive(Clone, Debug)]
pub struct Ipv6 {
    /// Source.
    pub source: Ipv6Addr,
    /// Destination.
    pub destination: Ipv6Addr,
    /// Traffic class: DSCP and ECN.
    pub class: u8,
    /// Flow label, twenty bits.
    pub label: u32,
    /// The protocol number of the header that follows.
    pub next_header: u8,
    /// The bytes from that header on.
    pub payload: Vec<u8>,
}

impl Ipv6 {
    /// Class and label 0.
    pub fn new(source: Ipv6Addr, destination: Ipv6Addr, next_header: u8, payload: Vec<u8>) -> Self {
        Self { source, destination, class: 0, label: 0, next_header, payload }
    }

    /// Returns a UDP datagram of `length` bytes of data, with a checksum; `number` distinguishes it
    /// from others.
    pub fn udp(source: Ipv6Addr, destination: Ipv6Addr, number: u16, length: usize) -> Self {
        let data = [&number.to_be_bytes()[..], &pattern(length - 2)].concat();
        Self::new(source, destination, UDP, udp(4242, 4243, &data)).with_checksum(6)
    }

    /// The same packet with the checksum of its payload, which begins with a transport header, at
    /// this offset of it.
    #[must_use]
    pub fn with_checksum(mut self, at: usize) -> Self {
        let sum = self.payload_sum();
        self.payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        self
    }

    fn payload_sum(&self) -> u16 {
        let length = u32::try_from(self.payload.len()).expect("a payload below 64 KiB").to_be_bytes();
        let addresses = [self.source.octets(), self.destination.octets()].concat();
        checksum(&[&addresses[..], &length, &[0, 0, 0, self.next_header], &self.payload].concat())
    }

    /// The packet behind this extension header, whose first byte is set.
    #[must_use]
    pub fn behind(mut self, kind: u8, mut header: [u8; 8]) -> Self {
        header[0] = self.next_header;
        self.next_header = kind;
        self.payload.splice(0..0, header);
        self
    }

    /// The packet's bytes, hop limit 64.
    pub fn bytes(&self) -> Vec<u8> {
        let first = 6 << 28 | u32::from(self.class) << 20 | self.label;
        let length = u16::try_from(self.payload.len()).expect("a payload below 64 KiB").to_be_bytes();
        let start = [&first.to_be_bytes()[..], &length, &[self.next_header, 64]].concat();
        [&start[..], &self.source.octets(), &self.destination.octets(), &self.payload].concat()
    }
}

/// Returns true if a frame is a whole IPv6 packet to the tunnel's port.
pub fn is_tunnel(frame: &[u8]) -> bool {
    frame.len() >= INNER_AT + 40
        && frame[12..14] == [0x86, 0xdd]
        && frame[20] == UDP
        && frame[UDP_AT + 2..UDP_AT + 4] == [0x21, 0x18]
}

/// Returns the fault in lengths or inner checksum of a tunnel frame around TCP or UDP that the
/// kernel has segmented; `None` if they are right.
pub fn fault(frame: &[u8]) -> Option<String> {
    let number = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    let inner = &frame[INNER_AT..];
    let lengths = [number(18), number(UDP_AT + 4), number(INNER_AT + 4)];
    let expected = [frame.len() - UDP_AT, frame.len() - UDP_AT, inner.len() - 40];
    if lengths != expected {
        return Some(format!("payload, UDP and inner payload length {lengths:?} instead of {expected:?}"));
    }
    let length = u32::try_from(inner.len() - 40).expect("a frame").to_be_bytes();
    let pseudo = [&inner[8..40], &length, &[0, 0, 0, inner[6]], &inner[40..]].concat();
    (checksum(&pseudo) != 0).then(|| "the inner checksum is wrong".to_owned())
}
