//! The guard: tunnel packets with which something is wrong, and what is done about them.
//!
//! A stranger's packet is a stranger's whatever it looks like: behind options, in fragments, cut
//! short, with any frame inside. Only packets that end on this host, with our port and our VNI, are
//! refused, and such as hide that behind many extension headers.

use std::net::IpAddr;

use flannel_common::abi::{
    guard::GuardMode,
    reason::{Reason, Verdict},
};

use super::{Effect, Expected, Packet};
use crate::oracle::parse::{ETHERNET, word};

const PORT: u16 = 8472;
/// Hop-by-hop options, routing, fragment, destination options.
const EXTENSIONS: [u8; 4] = [0, 43, FRAGMENT, 60];
const FRAGMENT: u8 = 44;

/// The verdict on a packet that was found to be of our tunnel, or that may be.
pub(super) fn look(packet: &Packet<'_>, found: Reason) -> Result<Expected, Reason> {
    let (layout, world) = (packet.layout, packet.world);
    let ip = &packet.bytes[ETHERNET..];
    let (found, frame) = match found {
        Reason::OuterUnusual | Reason::OuterFragment | Reason::NotForUs => {
            let (found, udp) = find_udp(packet, ip, found)?;
            (found, udp + 16)
        }
        other => (other, layout.header + 16),
    };
    let source = layout.source(ip);
    // The bench forwards nothing, so whatever comes in ends there, to whomever it is.
    let Some(vtep) = world.vtep(source) else {
        return Ok(stranger(packet, source, ip.get(frame..)));
    };
    if found != Reason::InnerOtherSource {
        return Err(found);
    }
    let owner = world.owner_of(layout.source(&ip[frame + ETHERNET..]));
    match (owner, vtep.subnet) {
        (Some(owner), _) if owner == source => Err(Reason::PeerChanging),
        (None, None) => Err(Reason::SenderUnnumbered),
        _ => Ok(judged(
            world.guard[1],
            source,
            [Reason::InnerOtherSource, Reason::RefusedSource],
        )),
    }
}

/// Applies the guard to a packet from a pod to the tunnel port of the pod's node, if it would be
/// left to the kernel. Returns `sent_on` for all others. The bench forwards nothing, so every
/// address is the node's.
pub(super) fn from_pod(
    packet: &Packet<'_>,
    sent_on: Result<Expected, Reason>,
) -> Result<Expected, Reason> {
    let is_left = match &sent_on {
        Ok(expected) => expected
            .reasons
            .iter()
            .all(|reason| reason.verdict() == Verdict::Pass),
        Err(reason) => reason.verdict() == Verdict::Pass,
    };
    let (layout, mode) = (packet.layout, packet.world.guard[0]);
    let ip = &packet.bytes[ETHERNET..];
    if !is_left || mode == GuardMode::Off || !packet.world.has_tunnel || ip.len() < layout.header {
        return sent_on;
    }
    if find_udp(packet, ip, Reason::NotTunnel).is_err() {
        return sent_on;
    }
    let judged = judged(
        mode,
        layout.source(ip),
        [Reason::PodTunnel, Reason::RefusedPodTunnel],
    );
    Ok(Expected {
        counted: sent_on.ok().and_then(|expected| expected.counted),
        ..judged
    })
}

/// Finds the tunnel's UDP header. Returns the reason that describes the packet, and the header's
/// offset in the IP packet.
fn find_udp(packet: &Packet<'_>, ip: &[u8], found: Reason) -> Result<(Reason, usize), Reason> {
    let layout = packet.layout;
    let (at, protocol, is_fragment) = if layout.is_v6 {
        behind_extensions(ip)?
    } else {
        let (offset, more) = (word(ip, 6) & 0x1fff, ip[6] & 0x20 != 0);
        if offset != 0 {
            return Err(if found == Reason::OuterUnusual {
                Reason::NotTunnel
            } else {
                found
            });
        }
        (usize::from(ip[0] & 15) * 4, ip[9], more)
    };
    // Only the kernel parses headers behind still more extensions.
    if layout.is_v6 && EXTENSIONS.contains(&protocol) {
        return Ok((found, at));
    }
    let udp = ip
        .get(at..)
        .filter(|udp| udp.len() >= 8 && protocol == 17 && word(udp, 2) == PORT);
    let udp = udp.ok_or(Reason::NotTunnel)?;
    if udp.len() < 16 && !is_fragment {
        return Err(Reason::NotTunnel);
    }
    if udp.get(8..16).is_some_and(|vxlan| vxlan[4..7] != [0, 0, 1]) {
        return Err(Reason::OtherVni);
    }
    let is_for_us = layout.destination(ip) == packet.world.net.our_vtep;
    let found = match (is_for_us, is_fragment) {
        (false, _) => Reason::NotForUs,
        (true, true) => Reason::OuterFragment,
        (true, false) => Reason::OuterUnusual,
    };
    Ok((found, at))
}

/// Skips up to six extension headers. Returns the offset and the protocol number of what follows,
/// and true if it is in a fragment.
fn behind_extensions(ip: &[u8]) -> Result<(usize, u8, bool), Reason> {
    let (mut at, mut next, mut is_fragment) = (40, ip[6], ip[6] == FRAGMENT);
    for _ in 0..6 {
        if !EXTENSIONS.contains(&next) {
            break;
        }
        let header = ip.get(at..at + 8).ok_or(Reason::NotTunnel)?;
        let is_fragment_header = next == FRAGMENT;
        if is_fragment_header && word(header, 2) >> 3 != 0 {
            return Err(Reason::NotTunnel);
        }
        is_fragment |= is_fragment_header;
        at += if is_fragment_header {
            8
        } else {
            (usize::from(header[1]) + 1) * 8
        };
        next = header[0];
    }
    Ok((at, next, is_fragment))
}

/// A packet from no peer. Devices whose packets may come from elsewhere are not refused.
fn stranger(packet: &Packet<'_>, source: IpAddr, frame: Option<&[u8]>) -> Expected {
    let maker = frame
        .filter(|frame| frame.len() >= ETHERNET)
        .map(|frame| &frame[6..12]);
    let is_known =
        maker.is_some_and(|maker| packet.world.elsewhere.iter().any(|known| known == maker));
    let refused = if is_known {
        Reason::UnknownVtep
    } else {
        Reason::RefusedVtep
    };
    judged(
        packet.world.guard[0],
        source,
        [Reason::UnknownVtep, refused],
    )
}

fn judged(mode: GuardMode, source: IpAddr, [audited, enforced]: [Reason; 2]) -> Expected {
    let reason = if mode == GuardMode::Enforce {
        enforced
    } else {
        audited
    };
    let dropped = reason.verdict() == Verdict::Drop;
    match mode {
        GuardMode::Off => Expected::pass(reason),
        _ => Expected::pass(reason).with(Effect::Suspected { source, dropped }),
    }
}
