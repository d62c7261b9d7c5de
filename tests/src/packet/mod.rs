//! Packets made and read by hand: of IPv4, and in [`v6`] of IPv6. No I/O.

pub mod v6;

use std::net::Ipv4Addr;

/// The offset of the inner IPv4 packet in a tunnel frame: after outer Ethernet, IPv4, UDP, VXLAN
/// and inner Ethernet.
pub const INNER_AT: usize = 14 + 20 + 8 + 8 + 14;
/// The offset of the outer UDP header in a tunnel frame.
pub const UDP_AT: usize = 14 + 20;

/// Protocol numbers of IPv4.
pub const ICMP: u8 = 1;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;

/// The flag More Fragments in the word of flags and fragment offset.
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// The flag Don't Fragment.
pub const DONT_FRAGMENT: u16 = 0x4000;

/// An IPv4 packet to be.
#[derive(Clone, Debug)]
pub struct Ipv4 {
    /// Source.
    pub source: Ipv4Addr,
    /// Destination.
    pub destination: Ipv4Addr,
    /// DSCP and ECN.
    pub tos: u8,
    /// Identification; not zero, or the kernel chooses one.
    pub id: u16,
    /// Flags and offset (in units of eight bytes).
    pub fragment: u16,
    /// Options, a multiple of four bytes.
    pub options: Vec<u8>,
    /// Of the payload.
    pub protocol: u8,
    /// The bytes after the header.
    pub payload: Vec<u8>,
}

impl Ipv4 {
    /// Without options, whole, TOS 0.
    pub fn new(source: Ipv4Addr, destination: Ipv4Addr, id: u16, protocol: u8, payload: Vec<u8>) -> Self {
        Self { source, destination, tos: 0, id, fragment: 0, options: Vec::new(), protocol, payload }
    }

    /// A UDP datagram of `length` bytes of data, with a checksum.
    pub fn udp(source: Ipv4Addr, destination: Ipv4Addr, id: u16, length: usize) -> Self {
        let packet = Self::new(source, destination, id, UDP, udp(4242, 4243, &pattern(length)));
        packet.with_checksum(6)
    }

    /// The packet's bytes, TTL 64, header checksum in place.
    pub fn bytes(&self) -> Vec<u8> {
        let header = 20 + self.options.len();
        let total = u16::try_from(header + self.payload.len()).expect("a packet below 64 KiB");
        let mut bytes = vec![0x40 | u8::try_from(header / 4).expect("a header of 60 bytes at most"), self.tos];
        bytes.extend(total.to_be_bytes());
        bytes.extend(self.id.to_be_bytes());
        bytes.extend(self.fragment.to_be_bytes());
        bytes.extend([64, self.protocol, 0, 0]);
        bytes.extend(self.source.octets());
        bytes.extend(self.destination.octets());
        bytes.extend(&self.options);
        let sum = checksum(&bytes);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(&self.payload);
        bytes
    }

    /// The same packet with the checksum of its TCP or UDP payload at this offset of the payload.
    #[must_use]
    pub fn with_checksum(mut self, at: usize) -> Self {
        let mut summed = [self.source.octets(), self.destination.octets()].concat();
        summed.extend([0, self.protocol]);
        summed.extend(u16::try_from(self.payload.len()).expect("a payload below 64 KiB").to_be_bytes());
        summed.extend(&self.payload);
        let sum = checksum(&summed);
        self.payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        self
    }
}

/// A UDP header without checksum, and its data.
pub fn udp(from: u16, to: u16, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + data.len()).expect("a datagram below 64 KiB");
    [&from.to_be_bytes()[..], &to.to_be_bytes(), &length.to_be_bytes(), &[0, 0], data].concat()
}

/// A TCP SYN with an MSS option, without checksum (which belongs at 16).
pub fn tcp_syn(from: u16, to: u16, sequence: u32) -> Vec<u8> {
    let mut bytes = [&from.to_be_bytes()[..], &to.to_be_bytes(), &sequence.to_be_bytes(), &[0; 4]].concat();
    bytes.extend([0x60, 0x02, 0xff, 0xff, 0, 0, 0, 0, 2, 4, 0x05, 0x82]);
    bytes
}

/// An ICMP echo request.
pub fn echo_request(id: u16, length: usize) -> Vec<u8> {
    let mut bytes = [&[8, 0, 0, 0][..], &id.to_be_bytes(), &[0, 1], &pattern(length)].concat();
    let sum = checksum(&bytes);
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Bytes in which a shift or a swap shows.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..251).cycle().take(length).collect()
}

/// The Internet checksum: 0 for a header that holds its own.
pub fn checksum(bytes: &[u8]) -> u16 {
    let sum: u64 = bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0))).sum();
    let folded = (0..4).fold(sum, |sum, _| (sum & 0xffff) + (sum >> 16));
    !u16::try_from(folded).expect("a folded sum")
}

/// Returns true if a frame is an IPv4 packet to the tunnel's port. Fragments after the first do not
/// show the port.
pub fn is_tunnel(frame: &[u8]) -> bool {
    frame.len() >= INNER_AT
        && frame[12..14] == [8, 0]
        && frame[23] == UDP
        && frame[UDP_AT + 2..UDP_AT + 4] == [0x21, 0x18]
}

/// Returns true if a frame is an IPv4 packet.
pub fn is_ipv4(frame: &[u8]) -> bool {
    frame.len() >= 34 && frame[12..14] == [8, 0]
}

/// Returns true if the programs made a tunnel frame of either family: they leave the outer UDP
/// checksum 0, while the vxlan device computes one.
pub fn is_encapsulated_by_us(frame: &[u8]) -> bool {
    let udp = if is_ipv4(frame) { UDP_AT } else { v6::UDP_AT };
    frame[udp + 6..udp + 8] == [0, 0]
}

/// The identification of an IPv4 header.
pub fn identification(header: &[u8]) -> u16 {
    u16::from_be_bytes([header[4], header[5]])
}

/// The total length of an IPv4 header.
pub fn total_length(header: &[u8]) -> u16 {
    u16::from_be_bytes([header[2], header[3]])
}

/// The frame behind so many 802.1Q tags that name no VLAN, only a priority.
pub fn with_priority_tags(frame: &[u8], tags: usize) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(12);
    [addresses, &[0x81, 0, 0, 0].repeat(tags), rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_carries_right_checksums() {
        let [from, to] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
        let packet = Ipv4::udp(from, to, 7, 33);
        let bytes = packet.bytes();
        assert_eq!((bytes.len(), checksum(&bytes[..20]), identification(&bytes), total_length(&bytes)), (61, 0, 7, 61));
        let pseudo = [&from.octets()[..], &to.octets(), &[0, UDP, 0, 41], &bytes[20..]].concat();
        assert_eq!(checksum(&pseudo), 0);
        assert_eq!(checksum(&echo_request(1, 5)), 0);
    }
}
