//! The way into the tunnel: `to_tunnel`, and the outer headers.

use flannel_common::abi::{mode::Mode, reason::Reason};

use super::{Expected, Packet, Sent, flows, rewrite};
use crate::{
    oracle::{
        parse::{ETHERNET, Layout, TUNNEL, word},
        sums,
        world::{Known, Peer, Reached, Seen, octets},
    },
    packets::OUR_MAC,
};

pub(super) fn to_tunnel(packet: &Packet<'_>) -> Expected {
    let mut expected = sends(packet).unwrap_or_else(Expected::pass);
    if packet.world.mode == Mode::Fast {
        // The reason why the packet is not learned from is counted in addition to its verdict. That
        // a packet to learn from was not noted is not counted.
        match packet.plain() {
            Ok(plain) if plain.is_control => {
                let ended = flows::ends(&plain, plain.tuple.reversed());
                expected.reasons.insert(0, Reason::TcpControl);
                expected.effect = ended.effect;
            }
            Ok(_) => {}
            Err(reason) => expected.reasons.insert(0, reason),
        }
    }
    expected
}

fn sends(packet: &Packet<'_>) -> Result<Expected, Reason> {
    let (layout, world) = (packet.layout, packet.world);
    let ip = packet
        .bytes
        .get(ETHERNET..)
        .filter(|ip| ip.len() >= layout.header)
        .ok_or(Reason::Malformed)?;
    let peer = world
        .peer_of(layout.destination(ip))
        .ok_or(Reason::NoPeer)?;
    if peer.reached != Reached::Plainly {
        return Err(Reason::PeerNotPlain);
    }
    if packet.bytes[..12] != [peer.mac, OUR_MAC.0].concat() {
        return Err(Reason::UnexpectedMac);
    }
    let Seen::UpTo(_) = peer.seen else {
        return Err(Reason::PathUnseen);
    };
    let segment = segment(layout, ip, packet.gso)?;
    path_takes(packet, peer, segment)?;
    if packet.gso != 0 {
        return Err(Reason::RoomRefused);
    }
    let outer = Outer {
        peer,
        tos: layout.tos(ip),
    };
    Ok(Expected::sent(
        Reason::Encapsulated,
        encapsulated(packet, &outer, ip, None),
    ))
}

/// The size of the largest IP packet that an IP packet becomes once the kernel has cut it.
pub(super) fn segment(layout: Layout, ip: &[u8], gso: usize) -> Result<usize, Reason> {
    if gso == 0 {
        return Ok(ip.len());
    }
    let header = if layout.is_v6 {
        40
    } else {
        usize::from(ip[0] & 15) * 4
    };
    let transport = match ip[layout.protocol] {
        6 => usize::from(*ip.get(header + 12).ok_or(Reason::Malformed)? >> 4) * 4,
        17 => 8,
        _ => return Err(Reason::GsoOther),
    };
    Ok(header + transport + gso)
}

/// Checks that the peer's path is plain, recently validated, and takes segments of inner packets of
/// this size.
pub(super) fn path_takes(packet: &Packet<'_>, peer: &Peer, segment: usize) -> Result<(), Reason> {
    if peer.reached != Reached::Plainly {
        return Err(Reason::PeerNotPlain);
    }
    let Seen::UpTo(largest) = peer.seen else {
        return Err(Reason::PathUnseen);
    };
    let outer = segment + packet.layout.overhead();
    if outer > usize::try_from(peer.mtu.min(largest)).expect("small") {
        Err(Reason::TooBig)
    } else {
        Ok(())
    }
}

/// The values that the outer headers depend on.
pub(super) struct Outer<'a> {
    pub(super) peer: &'a Peer,
    pub(super) tos: u8,
}

/// The tunnel packet around an IP packet. Identification, source port and what depends on them are
/// zero.
pub(super) fn encapsulated(
    packet: &Packet<'_>,
    outer: &Outer<'_>,
    inner: &[u8],
    flow: Option<&Known>,
) -> Sent {
    let (layout, net) = (packet.layout, packet.world.net);
    let ethertype = net.ethertype.to_be_bytes();
    let udp = u16::try_from(inner.len() + TUNNEL)
        .expect("a packet")
        .to_be_bytes();
    let header = outer_header(layout, outer.tos, inner.len());
    let addresses = [octets(net.our_vtep), octets(outer.peer.vtep)].concat();
    let tunnel = [
        &[0, 0, 0x21, 0x18, udp[0], udp[1], 0, 0][..],
        &[0x08, 0, 0, 0, 0, 0, 1, 0],
        &outer.peer.mac,
        &OUR_MAC.0,
        &ethertype[..],
    ];
    let bytes = [
        &[0; 12][..],
        &ethertype,
        &header,
        &addresses,
        &tunnel.concat(),
        inner,
    ]
    .concat();
    let inner_at = ETHERNET + layout.overhead();
    let sums = flow.map_or_else(Vec::new, |flow| {
        rewrite::sums_of(layout, inner_at, flow.enters.protocol)
    });
    Sent {
        bytes,
        outer_of: Some(hashed(layout, inner)),
        sums,
    }
}

/// The outer IP header up to its addresses: hop limit 64, no DSCP, no flow label, DF clear, ECN
/// after [RFC 3168, section 9.1.1](https://www.rfc-editor.org/rfc/rfc3168#section-9.1.1).
fn outer_header(layout: Layout, inner_tos: u8, inner: usize) -> Vec<u8> {
    let ecn = if inner_tos & 3 == 3 { 2 } else { inner_tos & 3 };
    let udp = inner + TUNNEL;
    if layout.is_v6 {
        let [high, low] = u16::try_from(udp).expect("a packet").to_be_bytes();
        vec![0x60, ecn << 4, 0, 0, high, low, 17, 64]
    } else {
        let [high, low] = u16::try_from(udp + 20).expect("a packet").to_be_bytes();
        vec![0x45, ecn, high, low, 0, 0, 0, 0, 64, 17, 0, 0]
    }
}

/// Returns the fields that the kernel's flow hash covers; empty for a packet that it cannot read.
fn hashed(layout: Layout, ip: &[u8]) -> Vec<u8> {
    let is_fragment = |ip: &[u8]| ip[6] & 0x20 != 0 || word(ip, 6) & 0x1fff != 0;
    let is_read = if layout.is_v6 {
        ip[0] >> 4 == 6
    } else {
        ip[0] == 0x45 && !is_fragment(ip)
    };
    let label = if layout.is_v6 {
        vec![ip[1] & 0x0f, ip[2], ip[3]]
    } else {
        Vec::new()
    };
    match ip[layout.protocol] {
        6 | 17 if is_read && ip.len() >= layout.header + 20 => [
            &label,
            &ip[layout.addresses..layout.header + 4],
            &[ip[layout.protocol]],
        ]
        .concat(),
        _ => Vec::new(),
    }
}

/// Fills in what is the program's own choice, from the packet found.
pub(in crate::oracle) fn fill(layout: Layout, bytes: &mut [u8], found: &[u8]) {
    if found.len() != bytes.len() {
        return;
    }
    let udp = ETHERNET + layout.header;
    bytes[udp..udp + 2].copy_from_slice(&found[udp..udp + 2]);
    if !layout.is_v6 {
        bytes[18..20].copy_from_slice(&found[18..20]);
        let sum = sums::checksum(&bytes[ETHERNET..ETHERNET + 20]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    }
}
