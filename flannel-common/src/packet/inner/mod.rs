//! The pods' own packets: their headers as they lie in the packet, and which of them may take the
//! fast way.
//!
//! Plain are whole TCP and UDP packets without IP options whose lengths agree and whose TTL lets
//! them go on. Everything else is the kernel's. What the program looks at is copied once, into a
//! buffer laid out so that every word is aligned.

#![expect(
    clippy::cast_possible_truncation,
    reason = "header lengths are constants below 64"
)]

mod ip;
mod transport;

pub use self::{ip::InnerHeader, transport::TransportWords};

use core::mem::size_of;

use crate::{
    abi::reason::Reason,
    flow::{
        check::Check,
        difference,
        flow_key::{Address, FlowKey},
    },
    packet::{ETH_LEN, PROTO_UDP, UDP_LEN},
    packet::{addr::Mac, checksum, ethernet::EthernetHeader},
};

/// The Ethernet addresses of a frame, destination first, as words: bytes would be copied and
/// compared one by one.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameAddresses([u16; 6]);

impl FrameAddresses {
    /// The addresses of a frame for `destination` from `source`.
    pub const fn new(destination: Mac, source: Mac) -> Self {
        let (to, from) = (words(destination), words(source));
        Self([to[0], to[1], to[2], from[0], from[1], from[2]])
    }

    /// Returns true if the frame is for this address.
    #[inline(always)]
    pub const fn are_to(&self, mac: Mac) -> bool {
        let (to, mac) = (self.0, words(mac));
        (to[0] ^ mac[0]) | (to[1] ^ mac[1]) | (to[2] ^ mac[2]) == 0
    }

    /// Equality, word by word.
    #[inline(always)]
    pub fn same(&self, other: &Self) -> bool {
        difference::is_none(u32::from(self.difference(other)))
    }

    /// Returns a copy, made word by word.
    #[inline(always)]
    #[must_use]
    pub const fn copied(&self) -> Self {
        let a = self.0;
        Self([a[0], a[1], a[2], a[3], a[4], a[5]])
    }

    /// Returns the bits in which both differ.
    #[inline(always)]
    pub(crate) const fn difference(&self, other: &Self) -> u16 {
        let (a, b) = (self.0, other.0);
        (a[0] ^ b[0])
            | (a[1] ^ b[1])
            | (a[2] ^ b[2])
            | (a[3] ^ b[3])
            | (a[4] ^ b[4])
            | (a[5] ^ b[5])
    }

    /// Writes an Ethernet header with these addresses.
    #[inline(always)]
    pub fn write(&self, header: &mut EthernetHeader, ethertype: [u8; 2]) {
        for (at, word) in [0, 2, 4, 6, 8, 10].into_iter().zip(self.0) {
            header.0[at..at + 2].copy_from_slice(&word.to_ne_bytes());
        }
        header.0[12..].copy_from_slice(&ethertype);
    }

    /// Adds the addresses to a check.
    #[inline(always)]
    pub(crate) const fn check(&self, check: &mut Check) {
        let a = self.0;
        check.word(a[0] as u32 | (a[1] as u32) << 16);
        check.word(a[2] as u32 | (a[3] as u32) << 16);
        check.word(a[4] as u32 | (a[5] as u32) << 16);
    }
}

#[inline(always)]
const fn words(Mac(mac): Mac) -> [u16; 3] {
    [
        u16::from_ne_bytes([mac[0], mac[1]]),
        u16::from_ne_bytes([mac[2], mac[3]]),
        u16::from_ne_bytes([mac[4], mac[5]]),
    ]
}

const FRAME_PAD: usize = 2;

/// An Ethernet frame up to the end of the TCP header. The two bytes in front align the rest.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub struct Frame<H> {
    pad: [u8; FRAME_PAD],
    addresses: FrameAddresses,
    ethertype: u16,
    ip: H,
    transport: TransportWords,
}

impl<H> Frame<H> {
    /// Bytes before the frame in this struct.
    pub const PAD: usize = FRAME_PAD;
    /// Bytes up to the end of a TCP header without options.
    pub const LEN: usize = Self::TRANSPORT_AT + size_of::<TransportWords>();
    /// The least a frame must have: up to the end of a UDP header.
    pub const MIN_LEN: usize = Self::TRANSPORT_AT + UDP_LEN;
    /// Offset of the transport header, in bytes.
    pub const TRANSPORT_AT: usize = ETH_LEN + size_of::<H>();
}

impl<H: InnerHeader> Frame<H> {
    /// The IP header.
    #[inline(always)]
    pub const fn ip(&self) -> &H {
        &self.ip
    }

    /// Writes the Ethernet header of a packet that came without one: addresses of zero.
    #[inline(always)]
    pub const fn clear_link_header(&mut self) {
        self.addresses = FrameAddresses([0; 6]);
        self.ethertype = u16::from_ne_bytes(H::ETHERTYPE);
    }

    /// Reads a frame of `len` bytes that entered (or is leaving) by `device` into `packet`, if it
    /// is plain. In place, because a BPF program has no room for a copy.
    #[inline(always)]
    pub fn read(
        &self,
        len: u32,
        device: u32,
        packet: &mut ParsedPacket<H::Address>,
    ) -> Result<(), Reason> {
        let ip = &self.ip;
        if self.ethertype != u16::from_ne_bytes(H::ETHERTYPE) {
            return Err(Reason::OtherProtocol);
        }
        let Some(length) = ip.plain_len() else {
            return Err(ip.not_plain());
        };
        if u32::from(length) + ETH_LEN as u32 != len {
            return Err(Reason::NotPlain);
        }
        let Some(transport) = self
            .transport
            .read(ip.protocol(), length - size_of::<H>() as u16)
        else {
            return Err(ip.not_plain());
        };
        packet.key.source = ip.source_address();
        packet.key.destination = ip.destination_address();
        packet.key.ports = transport.ports;
        packet.key.protocol = u32::from(ip.protocol());
        packet.key.device = device;
        packet.addresses = self.addresses;
        packet.headers = size_of::<H>() as u32 + transport.header_len;
        packet.is_control = transport.is_control;
        packet.is_opening = transport.is_opening;
        packet.window = transport.window;
        packet.fingerprint = Fingerprint {
            ident: ip.ident(),
            sequence: transport.sequence,
            acknowledged: transport.acknowledged,
            length,
            state: transport.state,
            checksum: transport.checksum,
            tos: ip.tos(),
            ttl: ip.ttl(),
        };
        Ok(())
    }
}

/// A plain packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParsedPacket<A> {
    /// Addresses, ports and device.
    pub key: FlowKey<A>,
    /// The frame's Ethernet addresses.
    pub addresses: FrameAddresses,
    /// Length of IP and transport header together.
    pub headers: u32,
    /// TCP with SYN, FIN or RST.
    pub is_control: bool,
    /// TCP with SYN.
    pub is_opening: bool,
    /// TCP window, as it lies in the packet.
    pub window: u16,
    /// The fields that netfilter does not change.
    pub fingerprint: Fingerprint,
}

impl<A: Address> ParsedPacket<A> {
    /// The largest IP packet it becomes, `gso_size` being the payload of one segment or 0.
    #[inline(always)]
    pub const fn segment_len(&self, gso_size: u32) -> u32 {
        if gso_size == 0 {
            self.fingerprint.length as u32
        } else {
            self.headers + gso_size
        }
    }

    /// Returns true for the SYN-ACK that answers a SYN.
    #[inline(always)]
    pub const fn is_answer(&self) -> bool {
        self.is_opening && self.fingerprint.state[1] & transport::HANDSHAKE == transport::SYN_ACK
    }

    /// Bytes of the transport header and its payload, behind an IP header of `ip_len`.
    #[inline(always)]
    pub const fn transport_len(&self, ip_len: u16) -> u16 {
        self.fingerprint.length - ip_len
    }

    /// The sum over its pseudo header.
    #[inline(always)]
    pub fn pseudo_header(&self, ip_len: u16) -> u64 {
        checksum::pseudo_header(&self.key, self.transport_len(ip_len))
    }

    /// Returns true if the device is to complete its checksum: a socket sent it.
    #[inline(always)]
    pub fn awaits_checksum(&self, ip_len: u16) -> bool {
        checksum::is_partial(self.fingerprint.checksum, self.pseudo_header(ip_len))
    }

    /// Returns true for UDP without a checksum.
    #[inline(always)]
    pub const fn has_no_checksum(&self) -> bool {
        self.is_udp() && self.fingerprint.checksum == 0
    }

    /// Returns true for UDP.
    #[inline(always)]
    pub const fn is_udp(&self) -> bool {
        self.key.protocol == PROTO_UDP as u32
    }
}

/// The fields that identify a packet and that NAT does not change: by them it is recognised behind
/// netfilter. TTL and checksum are compared separately.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint {
    /// IPv4: identification, flags and fragment offset. IPv6: the first word, with the flow label.
    pub ident: u32,
    /// TCP sequence number.
    pub sequence: u32,
    /// TCP acknowledgement number.
    pub acknowledged: u32,
    /// Length of the IP packet, bytes.
    pub length: u16,
    /// TCP data offset and flags.
    pub state: [u8; 2],
    /// TCP or UDP checksum, as it lies in the packet.
    pub checksum: u16,
    /// TOS or traffic class.
    pub tos: u8,
    /// TTL or hop limit.
    pub ttl: u8,
}

const _: () = {
    use crate::packet::ip::{Ipv4Header, Ipv6Header};
    assert!(size_of::<Frame<Ipv4Header>>() == 56 && Frame::<Ipv4Header>::LEN == 54);
    assert!(size_of::<Frame<Ipv6Header>>() == 80 && Frame::<Ipv6Header>::LEN == 74);
    assert!(size_of::<Fingerprint>() == 20 && size_of::<FrameAddresses>() == 12);
};

#[cfg(test)]
mod tests;
