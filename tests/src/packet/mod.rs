//! IP packets of either family, as tests send them. No I/O. [`frame`] reads what arrives.

pub mod frame;
pub mod wire;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use etherparse::{
    IcmpEchoHeader, Icmpv4Header, Icmpv4Type, Icmpv6Header, Icmpv6Type, IpFragOffset, IpHeaders,
    IpNumber, Ipv4Extensions, Ipv4Header, Ipv4Options, Ipv6Extensions, Ipv6FragmentHeader,
    Ipv6Header, Ipv6RawExtHeader, PacketBuilder, PacketBuilderStep, TcpHeader, TransportHeader,
    UdpHeader, ip_number,
};

/// The ports of [`Packet::udp`].
pub const PORTS: [u16; 2] = [4242, 4243];

/// The place of a fragment in its packet.
#[derive(Clone, Copy, Debug)]
pub struct Fragment {
    /// In units of eight bytes.
    offset: IpFragOffset,
    more: bool,
}

/// An IP packet to be.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Source.
    pub source: IpAddr,
    /// Destination, of the same family.
    pub destination: IpAddr,
    /// DSCP and ECN.
    pub class: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Identification, in IPv4 and of fragments. Not zero, or the kernel chooses one.
    pub id: u16,
    /// Don't Fragment, in IPv4.
    pub df: bool,
    /// Flow label, in IPv6: twenty bits.
    pub label: u32,
    /// Has options that ask for nothing, in IPv6 those for every hop.
    pub has_options: bool,
    /// Protocol of the payload.
    pub protocol: IpNumber,
    /// The bytes after all IP headers.
    pub payload: Vec<u8>,
    /// Set by [`Packet::fragments`]; `None` for a whole packet.
    pub fragment: Option<Fragment>,
}

impl Packet {
    /// Whole, without options, TTL 64, everything else 0.
    pub const fn new(
        source: IpAddr,
        destination: IpAddr,
        id: u16,
        protocol: IpNumber,
        payload: Vec<u8>,
    ) -> Self {
        Self {
            source,
            destination,
            class: 0,
            ttl: 64,
            id,
            df: false,
            label: 0,
            has_options: false,
            protocol,
            payload,
            fragment: None,
        }
    }

    /// A datagram of `length` bytes between [`PORTS`]. The data begins with the identification, so
    /// that IPv6 packets differ as well.
    pub fn udp(source: IpAddr, destination: IpAddr, id: u16, length: usize) -> Self {
        let mut data = [&id.to_be_bytes()[..], &pattern(length)].concat();
        data.truncate(length);
        Self::datagram(
            (source, PORTS[0]).into(),
            (destination, PORTS[1]).into(),
            id,
            &data,
        )
    }

    /// A datagram.
    pub fn datagram(source: SocketAddr, destination: SocketAddr, id: u16, data: &[u8]) -> Self {
        let header =
            UdpHeader::without_ipv4_checksum(source.port(), destination.port(), data.len());
        Self::new(
            source.ip(),
            destination.ip(),
            id,
            ip_number::UDP,
            Vec::new(),
        )
        .carrying(
            TransportHeader::Udp(header.expect("a datagram below 64 KiB")),
            data,
        )
    }

    /// The same datagram with the checksum 0, which means none.
    #[must_use]
    pub fn without_udp_checksum(mut self) -> Self {
        self.payload[6..8].fill(0);
        self
    }

    /// A TCP segment in the middle of a connection, changed by `change`.
    pub fn tcp(
        [source, destination]: [SocketAddr; 2],
        id: u16,
        data: &[u8],
        change: impl FnOnce(&mut TcpHeader),
    ) -> Self {
        let mut header = TcpHeader::new(source.port(), destination.port(), 1, 256);
        (header.ack, header.acknowledgment_number) = (true, 1);
        change(&mut header);
        Self::new(
            source.ip(),
            destination.ip(),
            id,
            ip_number::TCP,
            Vec::new(),
        )
        .carrying(TransportHeader::Tcp(header), data)
    }

    /// Returns an echo request with `length` bytes of data.
    pub fn echo_request(source: IpAddr, destination: IpAddr, id: u16, length: usize) -> Self {
        let echo = IcmpEchoHeader { id, seq: 1 };
        let (protocol, header) = if source.is_ipv4() {
            (
                ip_number::ICMP,
                TransportHeader::Icmpv4(Icmpv4Header::new(Icmpv4Type::EchoRequest(echo))),
            )
        } else {
            (
                ip_number::IPV6_ICMP,
                TransportHeader::Icmpv6(Icmpv6Header::new(Icmpv6Type::EchoRequest(echo))),
            )
        };
        Self::new(source, destination, id, protocol, Vec::new()).carrying(header, &pattern(length))
    }

    /// The same packet with this header, whose checksum it computes, and data.
    fn carrying(mut self, mut header: TransportHeader, data: &[u8]) -> Self {
        match self.headers() {
            IpHeaders::Ipv4(ip, _) => header
                .update_checksum_ipv4(&ip, data)
                .expect("a packet below 64 KiB"),
            IpHeaders::Ipv6(ip, _) => header
                .update_checksum_ipv6(&ip, data)
                .expect("a packet below 64 KiB"),
        }
        header.write(&mut self.payload).expect("a vector grows");
        self.payload.extend(data);
        self
    }

    /// Returns the packet in two fragments, cut after `cut` bytes of its payload: a multiple of
    /// eight.
    pub fn fragments(&self, cut: usize) -> [Self; 2] {
        let (first, second) = self.payload.split_at(cut);
        let part = |payload: &[u8], at: usize, more| {
            let offset = u16::try_from(at / 8)
                .ok()
                .and_then(|units| units.try_into().ok());
            let fragment = Some(Fragment {
                offset: offset.expect("an offset in a packet"),
                more,
            });
            Self {
                payload: payload.to_vec(),
                fragment,
                ..self.clone()
            }
        };
        [part(first, 0, true), part(second, cut, false)]
    }

    /// The packet's bytes, with lengths and the header checksum.
    pub fn bytes(&self) -> Vec<u8> {
        self.written(PacketBuilder::ip(self.headers()))
    }

    /// The packet in a frame.
    pub fn framed(&self, to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
        self.written(PacketBuilder::ethernet2(from, to).ip(self.headers()))
    }

    fn written(&self, builder: PacketBuilderStep<IpHeaders>) -> Vec<u8> {
        let mut bytes = Vec::new();
        builder
            .write(&mut bytes, self.protocol, &self.payload)
            .expect("a packet below 64 KiB");
        bytes
    }

    fn headers(&self) -> IpHeaders {
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                IpHeaders::Ipv4(self.ipv4(source, destination), Ipv4Extensions::default())
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                IpHeaders::Ipv6(self.ipv6(source, destination), self.extensions())
            }
            (source, destination) => panic!("{source} and {destination} are of two families"),
        }
    }

    fn ipv4(&self, source: Ipv4Addr, destination: Ipv4Addr) -> Ipv4Header {
        Ipv4Header {
            dscp: (self.class >> 2).try_into().expect("six bits"),
            ecn: (self.class & 3).try_into().expect("two bits"),
            identification: self.id,
            dont_fragment: self.df,
            more_fragments: self.fragment.is_some_and(|fragment| fragment.more),
            fragment_offset: self
                .fragment
                .map_or(IpFragOffset::ZERO, |fragment| fragment.offset),
            time_to_live: self.ttl,
            options: if self.has_options {
                [1, 1, 1, 0].into()
            } else {
                Ipv4Options::new()
            },
            source: source.octets(),
            destination: destination.octets(),
            ..Ipv4Header::default()
        }
    }

    fn ipv6(&self, source: Ipv6Addr, destination: Ipv6Addr) -> Ipv6Header {
        Ipv6Header {
            traffic_class: self.class,
            flow_label: self.label.try_into().expect("twenty bits"),
            hop_limit: self.ttl,
            source: source.octets(),
            destination: destination.octets(),
            ..Ipv6Header::default()
        }
    }

    fn extensions(&self) -> Ipv6Extensions {
        // One option: four bytes of padding (PadN).
        let padding =
            || Ipv6RawExtHeader::new_raw(self.protocol, &[1, 4, 0, 0, 0, 0]).expect("eight bytes");
        let header = |Fragment { offset, more }| {
            Ipv6FragmentHeader::new(self.protocol, offset, more, self.id.into())
        };
        Ipv6Extensions {
            hop_by_hop_options: self.has_options.then(padding),
            fragment: self.fragment.map(header),
            ..Ipv6Extensions::default()
        }
    }
}

/// A frame behind the VXLAN header of VNI 1.
pub fn vxlan(frame: &[u8]) -> Vec<u8> {
    [&[0x08, 0, 0, 0, 0, 0, 1, 0], frame].concat()
}

/// Bytes in which a shift or a swap shows.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..251).cycle().take(length).collect()
}

/// Returns the frame behind `tags` 802.1Q tags that name no VLAN, only a priority.
pub fn with_priority_tags(frame: &[u8], tags: usize) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(12);
    [addresses, &[0x81, 0, 0, 0].repeat(tags), rest].concat()
}

#[cfg(test)]
mod tests {
    use etherparse::IpSlice;

    use super::{frame::checksum, *};

    /// Both families' addresses.
    const ENDS: [[&str; 2]; 2] = [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]];

    fn ends(ends: [&str; 2]) -> [IpAddr; 2] {
        ends.map(|end| end.parse().expect("an address"))
    }

    #[test]
    fn what_is_built_carries_right_checksums() {
        for [from, to] in ENDS.map(ends) {
            let packet = Packet::udp(from, to, 7, 33);
            let bytes = packet.bytes();
            let header = bytes.len() - packet.payload.len();
            assert_eq!(bytes.len(), if from.is_ipv4() { 61 } else { 81 });
            assert!(checksum(&bytes[..header]) == 0 || from.is_ipv6());
            let segment = Packet::tcp([(from, 1).into(), (to, 2).into()], 8, b"data", |_| ());
            for packet in [packet, segment, Packet::echo_request(from, to, 9, 5)] {
                let bytes = packet.bytes();
                let addresses = &bytes[if from.is_ipv4() { 12..20 } else { 8..40 }];
                let length = u16::try_from(packet.payload.len())
                    .expect("small")
                    .to_be_bytes();
                let pseudo = [addresses, &length, &[0, packet.protocol.0]].concat();
                let pseudo = if packet.protocol == ip_number::ICMP {
                    Vec::new()
                } else {
                    pseudo
                };
                assert_eq!(
                    checksum(&[pseudo, packet.payload].concat()),
                    0,
                    "{from} {:?}",
                    packet.protocol
                );
            }
        }
    }

    #[test]
    fn fragments_make_the_packet() {
        for [from, to] in ENDS.map(ends) {
            let whole = Packet {
                class: 0xb9,
                label: 7,
                has_options: true,
                ..Packet::udp(from, to, 7, 100)
            };
            let halves = whole.fragments(64).map(|half| half.bytes());
            let [first, second] = halves
                .each_ref()
                .map(|half| IpSlice::from_slice(half).expect("a packet"));
            assert!(first.is_fragmenting_payload() && second.is_fragmenting_payload());
            assert_eq!(
                [first.payload().payload, second.payload().payload].concat(),
                whole.payload
            );
        }
    }
}
