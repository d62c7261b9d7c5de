//! Frames as they are captured, from the Ethernet header on. No I/O.

use etherparse::{
    EtherType, Ethernet2Slice, Icmpv4Slice, Icmpv4Type, Ipv4HeaderSlice, Ipv6ExtensionSlice,
    LaxIpSlice, UdpHeaderSlice, checksum::Sum16BitWords, ip_number,
};

/// The port of tunnels.
const VXLAN_PORT: [u8; 2] = 8472_u16.to_be_bytes();

/// Offsets in a tunnel frame.
#[derive(Clone, Copy, Debug)]
pub struct Tunnel {
    ethertype: EtherType,
    protocol: usize,
    /// The outer UDP header.
    pub udp: usize,
    /// The inner IP packet: after UDP, VXLAN and inner Ethernet header.
    pub inner: usize,
}

/// Over IPv4.
pub const V4: Tunnel = Tunnel {
    ethertype: EtherType::IPV4,
    protocol: 14 + 9,
    udp: 14 + 20,
    inner: 14 + 20 + 30,
};
/// Over IPv6.
pub const V6: Tunnel = Tunnel {
    ethertype: EtherType::IPV6,
    protocol: 14 + 6,
    udp: 14 + 40,
    inner: 14 + 40 + 30,
};

impl Tunnel {
    fn is_of(self, frame: &[u8]) -> bool {
        frame.len() >= self.inner
            && frame[12..14] == self.ethertype.0.to_be_bytes()
            && frame[self.protocol] == ip_number::UDP.0
            && frame[self.udp + 2..self.udp + 4] == VXLAN_PORT
    }
}

/// Returns true if a frame is an IPv4 packet to the tunnel's port. Fragments after the first do not
/// show the port.
pub fn is_tunnel(frame: &[u8]) -> bool {
    V4.is_of(frame)
}

/// The same for IPv6.
pub fn is_tunnel_v6(frame: &[u8]) -> bool {
    V6.is_of(frame)
}

/// Returns true if the programs made a tunnel frame of either family: they leave the outer UDP
/// checksum 0, while the vxlan device computes one.
pub fn is_encapsulated_by_us(frame: &[u8]) -> bool {
    let Tunnel { udp, .. } = if is_ipv4(frame) { V4 } else { V6 };
    frame[udp + 6..udp + 8] == [0, 0]
}

/// Returns the IP packet of a frame, which may be cut.
pub fn ip(frame: &[u8]) -> Option<LaxIpSlice<'_>> {
    let ethernet = Ethernet2Slice::from_slice_without_fcs(frame).ok()?;
    let (ip, _) = LaxIpSlice::from_slice(ethernet.payload_slice()).ok()?;
    let ethertype = if ip.ipv4().is_some() {
        EtherType::IPV4
    } else {
        EtherType::IPV6
    };
    (ethernet.ether_type() == ethertype).then_some(ip)
}

/// The header of an IPv4 packet.
pub fn ipv4(frame: &[u8]) -> Option<Ipv4HeaderSlice<'_>> {
    Ipv4HeaderSlice::from_slice(frame.get(14..)?)
        .ok()
        .filter(|_| frame[12..14] == EtherType::IPV4.0.to_be_bytes())
}

/// Returns true if a frame is an IPv4 packet.
pub fn is_ipv4(frame: &[u8]) -> bool {
    ipv4(frame).is_some()
}

/// Returns true if a frame is an echo request over IPv4.
pub fn is_echo_request(frame: &[u8]) -> bool {
    let ip =
        ip(frame).filter(|ip| ip.payload_ip_number() == ip_number::ICMP && !is_later_fragment(ip));
    let icmp = ip
        .as_ref()
        .and_then(|ip| Icmpv4Slice::from_slice(ip.payload().payload).ok());
    icmp.is_some_and(|icmp| matches!(icmp.icmp_type(), Icmpv4Type::EchoRequest(_)))
}

/// The header of a UDP packet that is whole, or the first fragment of one.
pub fn udp(frame: &[u8]) -> Option<UdpHeaderSlice<'_>> {
    let ip = ip(frame)
        .filter(|ip| ip.payload_ip_number() == ip_number::UDP && !is_later_fragment(ip))?;
    UdpHeaderSlice::from_slice(ip.payload().payload).ok()
}

/// DSCP and ECN.
pub fn class(ip: &LaxIpSlice<'_>) -> u8 {
    match ip {
        LaxIpSlice::Ipv4(ip) => ip.header().slice()[1],
        LaxIpSlice::Ipv6(ip) => ip.header().traffic_class(),
    }
}

/// Returns true for fragments after the first, which have no transport header.
pub fn is_later_fragment(ip: &LaxIpSlice<'_>) -> bool {
    match ip {
        LaxIpSlice::Ipv4(ip) => ip.header().fragments_offset().value() != 0,
        LaxIpSlice::Ipv6(ip) => ip.extensions().clone().into_iter().any(|extension| {
            matches!(
                extension,
                Ipv6ExtensionSlice::Fragment(fragment) if fragment.fragment_offset().value() != 0,
            )
        }),
    }
}

/// The Internet checksum: 0 for a header that holds its own.
pub fn checksum(bytes: &[u8]) -> u16 {
    Sum16BitWords::new()
        .add_slice(bytes)
        .ones_complement()
        .to_be()
}

/// Returns the fault in lengths or inner checksum of a tunnel frame over IPv6 around TCP or UDP
/// that the kernel has segmented; `None` if they are right.
pub fn fault_v6(frame: &[u8]) -> Option<String> {
    let number = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    let inner = &frame[V6.inner..];
    let lengths = [number(18), number(V6.udp + 4), number(V6.inner + 4)];
    let expected = [frame.len() - V6.udp, frame.len() - V6.udp, inner.len() - 40];
    if lengths != expected {
        return Some(format!(
            "payload, UDP and inner payload length {lengths:?} instead of {expected:?}"
        ));
    }
    let length = u32::try_from(inner.len() - 40)
        .expect("a frame")
        .to_be_bytes();
    let pseudo = [&inner[8..40], &length, &[0, 0, 0, inner[6]], &inner[40..]].concat();
    (checksum(&pseudo) != 0).then(|| "the inner checksum is wrong".to_owned())
}
