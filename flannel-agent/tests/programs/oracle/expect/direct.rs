//! Mode `fast` on the external interface, with peers that are reached without a tunnel.

use flannel_common::abi::{mode::Mode, reason::Reason};

use super::{Expected, Packet, flows, rewrite};
use crate::{
    oracle::{
        parse::{ETHERNET, Plain},
        world::{Known, Way},
    },
    packets::LO,
};

/// Returns the expectation for a packet that came without a tunnel: it is noted, or put into its
/// pod.
pub(super) fn from_peer(packet: &Packet<'_>) -> Result<Expected, Reason> {
    let world = packet.world;
    let source = packet.layout.source(&packet.bytes[ETHERNET..]);
    if world.mode != Mode::Fast || world.direct_peer_of(source).is_none() {
        return Err(Reason::NotTunnel);
    }
    if packet.bytes[..6] != [0; 6] {
        return Err(Reason::NotPlain);
    }
    let plain = packet.plain()?;
    if plain.is_control {
        return Ok(packet.ends_or_answers(&plain, packet.comes_from_underlay()));
    }
    packet.allows_replay()?;
    packet.comes_from_underlay()?;
    let Some((number, flow)) = world.flow(&plain.tuple, LO) else {
        return Ok(packet.noted_by_chance(&plain));
    };
    match flow.stopped(plain.is_due) {
        None => {}
        Some(reason @ (Reason::Refreshing | Reason::Handshake)) => {
            return Err(packet.noted_again(&plain, flow, reason));
        }
        Some(reason) => return Err(reason),
    }
    Ok(Expected::counted(
        into_pod(packet, &plain, flow),
        number,
        packet.bytes.len(),
    ))
}

fn into_pod(packet: &Packet<'_>, plain: &Plain, flow: &Known) -> Result<Expected, Reason> {
    flows::as_seen(plain, flow, packet.gso)?;
    if flow.way != Way::Pod {
        return Err(Reason::FlowUnknown);
    }
    if packet.gso != 0 && (plain.tuple.protocol == 17 || !flow.takes_merged) {
        return Err(Reason::Merged);
    }
    let ip = rewrite::translated(packet.layout, &packet.bytes[ETHERNET..], flow, plain.tos);
    let sent = rewrite::delivered(packet, flow, &ip);
    Ok(Expected::sent(Reason::Replayed, sent))
}

/// Returns the expectation for a packet that leaves without a tunnel: if it closes a connection, it
/// ends the reverse flow.
pub(super) fn to_peer(packet: &Packet<'_>) -> Result<Expected, Reason> {
    let world = packet.world;
    let destination = packet.layout.destination(&packet.bytes[ETHERNET..]);
    if world.mode != Mode::Fast || world.direct_peer_of(destination).is_none() {
        return Err(Reason::NotTunnel);
    }
    let plain = packet.plain()?;
    if plain.is_control {
        return Ok(flows::ends(&plain, plain.tuple.reversed()));
    }
    Err(Reason::NotFollowed)
}
