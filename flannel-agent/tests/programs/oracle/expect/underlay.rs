//! The external interface: which packets are tunnel packets, which of them go straight into their
//! pod, and what the kernel's own tunnel packets show of the path.

use flannel_common::abi::{mode::Mode, reason::Reason};

use super::{Effect, Expected, Packet, direct, flows, guard, rewrite, tunnel};
use crate::{
    oracle::{
        parse::{ETHERNET, Layout, Plain, TUNNEL, ethertype, word},
        sums::checksum,
        world::{Known, Peer, Seen, Way},
    },
    packets::{LO, OUR_MAC, OUTER_PORT, ROUTER_MAC},
};

const PORT: u16 = 8472;
const FRAGMENT_HEADER: u8 = 44;
const ICMPV6: u8 = 58;

pub(super) fn from_underlay(packet: &Packet<'_>) -> Result<Expected, Reason> {
    if !packet.world.has_tunnel {
        return direct::from_peer(packet);
    }
    let looked = match from_tunnel(packet) {
        Err(
            found @ (Reason::InnerOtherSource
            | Reason::InnerOtherMac
            | Reason::OtherProtocol
            | Reason::Malformed
            | Reason::OuterFragment
            | Reason::OuterUnusual
            | Reason::NotForUs),
        ) => guard::look(packet, found),
        judged => judged,
    };
    match looked {
        Err(Reason::NotTunnel) => direct::from_peer(packet),
        judged => judged,
    }
}

/// Classifies a packet that came in: a tunnel packet for us, or the reason why it is none.
fn from_tunnel(packet: &Packet<'_>) -> Result<Expected, Reason> {
    let (layout, world) = (packet.layout, packet.world);
    let ip = &packet.bytes[ETHERNET..];
    if ip.len() < layout.header + TUNNEL {
        return Err(Reason::OuterUnusual);
    }
    let is_for_us = layout.destination(ip) == world.net.our_vtep;
    if layout.is_v6 && ip[6] == ICMPV6 && is_for_us {
        return too_big(packet, ip).ok_or(Reason::NotTunnel);
    }
    let may_hide = if layout.is_v6 {
        [0, 43, FRAGMENT_HEADER, 60].contains(&ip[6])
    } else {
        ip[0] != 0x45 && ip[9] == 17
    };
    let hidden = if may_hide {
        Reason::OuterUnusual
    } else {
        Reason::NotTunnel
    };
    let outer = Outer::read(layout, packet.bytes).or(Err(hidden))?;
    if !is_for_us {
        return Err(Reason::NotForUs);
    }
    if outer.is_fragment {
        return Err(Reason::OuterFragment);
    }
    outer.vxlan()?;
    received(packet, &outer)
}

/// A packet of our tunnel.
fn received(packet: &Packet<'_>, outer: &Outer<'_>) -> Result<Expected, Reason> {
    let (layout, world, bytes) = (packet.layout, packet.world, packet.bytes);
    if outer.inner[..6] != OUR_MAC.0 {
        return Err(Reason::InnerOtherMac);
    }
    if ethertype(outer.inner) != world.net.ethertype {
        return Err(Reason::OtherProtocol);
    }
    let least = if world.mode == Mode::Fast {
        layout.header + 8
    } else {
        layout.header
    };
    let inner = &outer.inner[ETHERNET..];
    if inner.len() < least {
        return Err(Reason::Malformed);
    }
    if world
        .peer_of(layout.source(inner))
        .is_none_or(|peer| peer.vtep != layout.source(outer.ip))
    {
        return Err(Reason::InnerOtherSource);
    }
    if world.mode != Mode::Fast {
        return Err(Reason::TunnelGood);
    }
    let is_whole = layout.total(outer.ip) == outer.ip.len()
        && usize::from(word(outer.udp, 4)) == outer.udp.len();
    if bytes[..6] != [0; 6] || !is_whole {
        return Err(Reason::NotPlain);
    }
    if !layout.is_v6 && checksum(&outer.ip[..layout.header]) != 0 {
        return Err(Reason::OuterIpChecksum);
    }
    if word(outer.udp, 6) != 0 && packet.gso == 0 {
        return Err(Reason::OuterChecksum);
    }
    deliver(packet, outer)
}

/// Expects the path to be invalidated if this is an ICMPv6 Packet Too Big that quotes the start of
/// a tunnel packet of this node; `None` otherwise.
fn too_big(packet: &Packet<'_>, ip: &[u8]) -> Option<Expected> {
    let (layout, world) = (packet.layout, packet.world);
    let icmp = ip
        .get(40..)
        .filter(|icmp| icmp.len() >= 8 + 40 + TUNNEL && icmp[0] == 2)?;
    let quoted = &icmp[8..];
    let (udp, vxlan) = (&quoted[40..], &quoted[48..]);
    let is_ours = quoted[6] == 17
        && layout.source(quoted) == world.net.our_vtep
        && word(udp, 2) == PORT
        && vxlan[..8] == [8, 0, 0, 0, 0, 0, 1, 0];
    let peer = world
        .peers
        .iter()
        .find(|peer| peer.vtep == layout.destination(quoted))?;
    is_ours.then(|| {
        Expected::pass(Reason::TooBig).with(Effect::Held {
            subnet: peer.subnet,
        })
    })
}

fn deliver(packet: &Packet<'_>, outer: &Outer<'_>) -> Result<Expected, Reason> {
    let (layout, world) = (packet.layout, packet.world);
    let plain = Plain::read(layout, outer.inner, world.net.ethertype)?;
    if plain.is_control {
        return Ok(flows::ends(&plain, plain.tuple));
    }
    packet.allows_replay()?;
    let (number, flow) = world.flow(&plain.tuple, LO).ok_or(Reason::FlowUnknown)?;
    if let Some(reason) = flow.stopped(plain.is_due) {
        return Err(reason);
    }
    if !arrived_as_usual(packet, outer) {
        return Ok(Expected::counted(
            Err(Reason::OuterDiffers),
            number,
            outer.inner.len(),
        ));
    }
    Ok(Expected::counted(
        into_pod(packet, outer, &plain, flow),
        number,
        outer.inner.len(),
    ))
}

/// Rules can see these fields of the outer headers.
fn arrived_as_usual(packet: &Packet<'_>, outer: &Outer<'_>) -> bool {
    let layout = packet.layout;
    packet.bytes[6..12] == ROUTER_MAC.0
        && outer.ip[layout.ttl] == 64
        && layout.tos(outer.ip) & 0xfc == 0
        && word(outer.udp, 0) == OUTER_PORT
}

fn into_pod(
    packet: &Packet<'_>,
    outer: &Outer<'_>,
    plain: &Plain,
    flow: &Known,
) -> Result<Expected, Reason> {
    let layout = packet.layout;
    flows::as_seen(plain, flow, packet.gso)?;
    if flow.way != Way::Pod {
        return Err(Reason::FlowUnknown);
    }
    if packet.gso != 0 && (plain.tuple.protocol == 17 || !flow.takes_merged) {
        return Err(Reason::Merged);
    }
    let tos = congestion(layout.tos(outer.ip), plain.tos).ok_or(Reason::Congested)?;
    if packet.gso != 0 {
        // As in `from_pod`: segments of no kind.
        return Err(Reason::RoomRefused);
    }
    let inner = rewrite::translated(layout, &outer.inner[ETHERNET..], flow, tos);
    let sent = rewrite::delivered(packet, flow, &inner);
    Ok(Expected::sent(Reason::Replayed, sent))
}

/// The inner TOS after the tunnel, by the table of [RFC 6040, section
/// 4.2](https://www.rfc-editor.org/rfc/rfc6040#section-4.2).
fn congestion(outer: u8, inner: u8) -> Option<u8> {
    const NOT: u8 = 0b00;
    const ECT0: u8 = 0b10;
    const ECT1: u8 = 0b01;
    const CE: u8 = 0b11;
    let ecn = match (inner & 3, outer & 3) {
        (NOT, CE) => return None,
        (ECT0 | ECT1, CE) => CE,
        (ECT0, ECT1) => ECT1,
        (ecn, _) => ecn,
    };
    Some(inner & 0b1111_1100 | ecn)
}

pub(super) fn to_underlay(packet: &Packet<'_>) -> Result<Expected, Reason> {
    if !packet.world.has_tunnel {
        return direct::to_peer(packet);
    }
    match observed(packet) {
        Err(Reason::NotTunnel) => direct::to_peer(packet),
        observed => observed,
    }
}

/// Observes the path in the kernel's own tunnel packet.
fn observed(packet: &Packet<'_>) -> Result<Expected, Reason> {
    let (layout, world, bytes) = (packet.layout, packet.world, packet.bytes);
    let outer = Outer::read(layout, bytes)?;
    if outer.is_later_fragment {
        return Err(Reason::OuterFragment);
    }
    outer.vxlan()?;
    if ethertype(outer.inner) != world.net.ethertype {
        return Err(Reason::OtherProtocol);
    }
    let inner = &outer.inner[ETHERNET..];
    if inner.len() < layout.header {
        return Err(Reason::Malformed);
    }
    let peer = world
        .peer_of(layout.destination(inner))
        .ok_or(Reason::NoPeer)?;
    if world.mode == Mode::Kernel {
        return Err(Reason::ModeKernel);
    }
    let held = |reason| {
        Ok(Expected::pass(reason).with(Effect::Held {
            subnet: peer.subnet,
        }))
    };
    if outer.is_fragment {
        return held(Reason::PathFragmented);
    }
    if !peer.by_underlay || !is_as_ours(packet, &outer, peer) {
        return held(Reason::PathDiffers);
    }
    let len = tunnel::segment(layout, inner, packet.gso)? + layout.overhead();
    validated(peer, u32::try_from(len).expect("small"))
}

/// The kernel's packet has the headers ours would have; identification, source port, checksum and
/// lengths may differ.
fn is_as_ours(packet: &Packet<'_>, outer: &Outer<'_>, peer: &Peer) -> bool {
    let (layout, net) = (packet.layout, packet.world.net);
    let inner_tos = layout.tos(&outer.inner[ETHERNET..]);
    let tos = if inner_tos & 3 == 3 { 2 } else { inner_tos & 3 };
    let ip = outer.ip;
    let no_label_no_df = if layout.is_v6 {
        [ip[1] & 15, ip[2], ip[3]] == [0; 3]
    } else {
        ip[6] & 0x40 == 0
    };
    layout.source(ip) == net.our_vtep
        && layout.destination(ip) == peer.vtep
        && layout.tos(ip) == tos
        && ip[layout.ttl] == 64
        && no_label_no_df
        && outer.inner[..12] == [peer.mac, OUR_MAC.0].concat()
}

fn validated(peer: &Peer, len: u32) -> Result<Expected, Reason> {
    let effect = match peer.seen {
        Seen::Other => return Err(Reason::PathHeld),
        Seen::UpTo(largest) if len <= largest => Effect::Nothing,
        Seen::UpTo(_) => Effect::Validated {
            subnet: peer.subnet,
            len,
            is_new: false,
        },
        _ => Effect::Validated {
            subnet: peer.subnet,
            len,
            is_new: true,
        },
    };
    Ok(Expected::pass(Reason::PathSeen).with(effect))
}

/// A packet of the tunnel, or what shows of one.
struct Outer<'a> {
    ip: &'a [u8],
    udp: &'a [u8],
    /// The inner frame; with its whole Ethernet header.
    inner: &'a [u8],
    is_fragment: bool,
    is_later_fragment: bool,
}

impl<'a> Outer<'a> {
    /// Reads UDP to the tunnel's port without IP options.
    fn read(layout: Layout, bytes: &'a [u8]) -> Result<Self, Reason> {
        let ip = bytes
            .get(ETHERNET..)
            .filter(|ip| ip.len() >= layout.header + TUNNEL)
            .ok_or(Reason::NotTunnel)?;
        let outer = if layout.is_v6 {
            Self::read_v6(ip)
        } else {
            Self::read_v4(ip)
        };
        outer
            .filter(|outer| word(outer.udp, 2) == PORT)
            .ok_or(Reason::NotTunnel)
    }

    fn read_v4(ip: &'a [u8]) -> Option<Self> {
        let (offset, more) = (word(ip, 6) & 0x1fff, ip[6] & 0x20 != 0);
        (ip[0] == 0x45 && ip[9] == 17).then(|| Self {
            ip,
            udp: &ip[20..],
            inner: &ip[36..],
            is_fragment: more || offset != 0,
            is_later_fragment: offset != 0,
        })
    }

    fn read_v6(ip: &'a [u8]) -> Option<Self> {
        match ip[6] {
            FRAGMENT_HEADER => {
                let fragment = ip.get(40..).filter(|rest| rest.len() >= 8 + TUNNEL)?;
                let starts = fragment[0] == 17 && word(fragment, 2) & 0xfff8 == 0;
                let udp = &fragment[8..];
                starts.then(|| Self {
                    ip,
                    udp,
                    inner: &udp[16..],
                    is_fragment: true,
                    is_later_fragment: false,
                })
            }
            17 if ip[0] >> 4 == 6 => Some(Self {
                ip,
                udp: &ip[40..],
                inner: &ip[56..],
                is_fragment: false,
                is_later_fragment: false,
            }),
            _ => None,
        }
    }

    /// VNI 1, flags exactly the VNI bit, nothing reserved.
    fn vxlan(&self) -> Result<(), Reason> {
        let vxlan = &self.udp[8..16];
        if vxlan[..4] != [8, 0, 0, 0] || vxlan[7] != 0 {
            return Err(Reason::BadVxlanHeader);
        }
        if vxlan[4..7] == [0, 0, 1] {
            Ok(())
        } else {
            Err(Reason::OtherVni)
        }
    }
}
