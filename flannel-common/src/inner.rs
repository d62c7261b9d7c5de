//! The pods' own packets: their headers as they lie in the packet, and which of them may take the fast way.
//!
//! Plain are whole TCP and UDP packets without IP options whose lengths agree and whose TTL lets them go on. Everything
//! else is the kernel's. What the program looks at is copied once, into a buffer laid out so that every word is aligned.

use core::mem::{offset_of, size_of};

use crate::{
    addr::Mac,
    checksum::ipv4_updated,
    end::{Address, End},
    packet::{ETH_LEN, ETHERTYPE_IPV4, IPV4_LEN, PROTO_TCP, PROTO_UDP, UDP_LEN},
    reason::Reason,
};

/// The Ethernet addresses of a frame.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameAddresses {
    /// Whom it is for.
    pub destination: Mac,
    /// Who sent it.
    pub source: Mac,
}

/// Source port, destination port and what follows them: the first twenty bytes of TCP, or as many as there are of UDP.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TransportWords {
    ports: u32,
    /// TCP: sequence number. UDP: length and checksum.
    second: u32,
    acknowledged: u32,
    /// Data offset and flags.
    state: [u8; 2],
    window: u16,
    checksum: u16,
    urgent: u16,
}

/// An IPv4 header without options.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Ipv4Words {
    version_ihl: u8,
    tos: u8,
    length: [u8; 2],
    /// Identification, flags and fragment offset.
    ident: u32,
    ttl: u8,
    protocol: u8,
    checksum: u16,
    source: [u32; 1],
    destination: [u32; 1],
}

/// An Ethernet frame with an IPv4 packet, up to the end of the TCP header. The two bytes in front align the rest.
#[repr(C, align(4))]
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameV4 {
    pad: [u8; 2],
    addresses: FrameAddresses,
    ethertype: [u8; 2],
    ip: Ipv4Words,
    transport: TransportWords,
}

/// Flags of TCP that open or close a connection: FIN, SYN, RST.
const CONTROL: u8 = 0x07;

/// The one that opens it.
const SYN: u8 = 0x02;

/// The bits of the fragment word that must be clear: all but Don't Fragment.
const FRAGMENT: u32 = u32::from_ne_bytes([0, 0, 0xbf, 0xff]);

/// A frame of one family, up to the end of the TCP header.
pub trait Frame: Copy + Default {
    /// The family's addresses.
    type Address: Address;
    /// The family's IP header.
    type Ip: Copy;

    /// Bytes before the frame in the struct.
    const PAD: usize;
    /// Bytes up to the end of a TCP header without options.
    const LEN: usize = size_of::<Self>() - Self::PAD;
    /// The least a frame must have: up to the end of a UDP header.
    const MIN_LEN: usize;
    /// Where the transport header stands.
    const TRANSPORT_AT: usize = Self::MIN_LEN - UDP_LEN;

    /// Reads a frame of `len` bytes that entered (or is leaving) by `device`, if it is plain.
    fn plain(&self, len: u32, device: u32) -> Result<Plain<Self::Address>, Reason>;

    /// The frame's IP header as it is at another end, with its TTL lowered by `step` and another TOS.
    fn rewritten(&self, from: &End<Self::Address>, to: &End<Self::Address>, step: u8, tos: u8) -> Self::Ip;

    /// The frame's own IP header.
    fn ip(&self) -> Self::Ip;
}

impl Frame for FrameV4 {
    type Address = [u32; 1];
    type Ip = Ipv4Words;

    const PAD: usize = offset_of!(Self, addresses);
    const MIN_LEN: usize = ETH_LEN + IPV4_LEN + UDP_LEN;

    #[inline(always)]
    fn plain(&self, len: u32, device: u32) -> Result<Plain<[u32; 1]>, Reason> {
        let ip = &self.ip;
        let length = u16::from_be_bytes(ip.length);
        if u16::from_ne_bytes(self.ethertype) != u16::from_ne_bytes(ETHERTYPE_IPV4) {
            return Err(Reason::OtherProtocol);
        }
        if ip.version_ihl != 0x45
            || ip.ident & FRAGMENT != 0
            || ip.ttl <= 1
            || u32::from(length) + ETH_LEN as u32 != len
        {
            return Err(Reason::NotPlain);
        }
        let transport = self.transport.read(ip.protocol, length - IPV4_LEN as u16)?;
        Ok(Plain {
            end: End {
                source: ip.source,
                destination: ip.destination,
                ports: self.transport.ports,
                protocol: u32::from(ip.protocol),
                device,
            },
            addresses: self.addresses,
            headers: IPV4_LEN as u32 + transport.header_len,
            is_control: transport.is_control,
            print: Print {
                ident: ip.ident,
                sequence: transport.sequence,
                acknowledged: transport.acknowledged,
                length,
                state: transport.state,
                checksum: transport.checksum,
                tos: ip.tos,
                ttl: ip.ttl,
            },
        })
    }

    #[inline(always)]
    fn rewritten(&self, from: &End<[u32; 1]>, to: &End<[u32; 1]>, step: u8, tos: u8) -> Ipv4Words {
        let ttl = self.ip.ttl - step;
        let first = |tos| u16::from_ne_bytes([self.ip.version_ihl, tos]);
        let second = |ttl| u16::from_ne_bytes([ttl, self.ip.protocol]);
        let checksum = ipv4_updated(self.ip.checksum, from, to, [second(self.ip.ttl), second(ttl)]);
        let checksum = if tos == self.ip.tos {
            checksum
        } else {
            crate::checksum::updated(checksum, u64::from(!first(self.ip.tos)), u64::from(first(tos)))
        };
        Ipv4Words { ttl, tos, checksum, source: to.source, destination: to.destination, ..self.ip }
    }

    #[inline(always)]
    fn ip(&self) -> Ipv4Words {
        self.ip
    }
}

/// What the transport header says.
struct Transport {
    header_len: u32,
    is_control: bool,
    sequence: u32,
    acknowledged: u32,
    state: [u8; 2],
    checksum: u16,
}

impl TransportWords {
    #[inline(always)]
    fn read(&self, protocol: u8, length: u16) -> Result<Transport, Reason> {
        match protocol {
            PROTO_TCP => self.tcp(length),
            PROTO_UDP => self.udp(length),
            _ => Err(Reason::NotPlain),
        }
    }

    #[inline(always)]
    fn tcp(&self, length: u16) -> Result<Transport, Reason> {
        let header_len = u32::from(self.state[0] >> 4) * 4;
        if header_len < 20 || header_len > u32::from(length) {
            return Err(Reason::NotPlain);
        }
        Ok(Transport {
            header_len,
            is_control: self.state[1] & CONTROL != 0,
            sequence: self.second,
            acknowledged: self.acknowledged,
            state: self.state,
            checksum: self.checksum,
        })
    }

    #[inline(always)]
    const fn udp(&self, length: u16) -> Result<Transport, Reason> {
        let [a, b, c, d] = self.second.to_ne_bytes();
        if u16::from_be_bytes([a, b]) != length {
            return Err(Reason::NotPlain);
        }
        Ok(Transport {
            header_len: UDP_LEN as u32,
            is_control: false,
            sequence: 0,
            acknowledged: 0,
            state: [0; 2],
            checksum: u16::from_ne_bytes([c, d]),
        })
    }
}

/// A plain packet.
#[derive(Clone, Copy, Debug)]
pub struct Plain<A> {
    /// Addresses, ports and device.
    pub end: End<A>,
    /// The frame's Ethernet addresses.
    pub addresses: FrameAddresses,
    /// Length of IP and transport header together.
    pub headers: u32,
    /// TCP with SYN, FIN or RST.
    pub is_control: bool,
    /// What netfilter leaves as it is.
    pub print: Print,
}

impl<A: Address> Plain<A> {
    /// The largest IP packet it becomes, `gso_size` being the payload of one segment or 0.
    #[inline(always)]
    pub const fn segment_len(&self, gso_size: u32) -> u32 {
        if gso_size == 0 { self.print.length as u32 } else { self.headers + gso_size }
    }

    /// Whether it is TCP that opens a connection.
    #[inline(always)]
    pub const fn is_opening(&self) -> bool {
        self.print.state[1] & SYN != 0
    }

    /// Whether it is UDP.
    #[inline(always)]
    pub const fn is_udp(&self) -> bool {
        self.end.protocol == PROTO_UDP as u32
    }
}

/// What tells one packet from the next and is not changed by NAT: by it a packet is known again behind netfilter. TTL
/// and checksum follow rules of their own.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Print {
    /// IPv4: identification, flags and fragment offset. IPv6: flow label.
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
    assert!(size_of::<FrameV4>() == 56 && FrameV4::PAD == 2 && FrameV4::LEN == 54);
    assert!(offset_of!(FrameV4, ip) == 16 && offset_of!(FrameV4, transport) == 36);
    assert!(size_of::<Ipv4Words>() == IPV4_LEN && size_of::<Print>() == 20 && size_of::<FrameAddresses>() == 12);
};

#[cfg(test)]
mod tests;
