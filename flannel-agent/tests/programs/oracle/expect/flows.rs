//! Mode `fast` at the pods' veths and behind the tunnel device: what is noted, what is sent on,
//! what ends.

use flannel_common::abi::reason::Reason;

use super::{
    Effect, Expected, Packet, rewrite,
    tunnel::{self, Outer},
};
use crate::{
    oracle::{
        parse::{ETHERNET, Plain, word},
        sums,
        world::{Known, Tuple, Way},
    },
    packets::LO,
};

pub(super) fn from_pod(packet: &Packet<'_>) -> Result<Expected, Reason> {
    let plain = packet.plain()?;
    let sends = if packet.world.pod_sends {
        Ok(())
    } else {
        Err(Reason::NotLearned)
    };
    if plain.is_control {
        return Ok(packet.ends_or_answers(&plain, sends));
    }
    packet.allows_replay()?;
    let Some((number, flow)) = packet.world.flow(&plain.tuple, LO) else {
        let by_chance = packet.noted_by_chance(&plain);
        return Ok(Expected {
            or: sends.err().or(by_chance.or),
            ..by_chance
        });
    };
    match flow.stopped(plain.is_due) {
        None => Ok(Expected::counted(
            replay(packet, &plain, flow),
            number,
            packet.bytes.len(),
        )),
        Some(reason @ (Reason::Refreshing | Reason::Handshake)) => {
            sends?;
            Err(packet.noted_again(&plain, flow, reason))
        }
        Some(reason) => Err(reason),
    }
}

pub(super) fn from_tunnel(packet: &Packet<'_>) -> Result<Expected, Reason> {
    let plain = packet.plain()?;
    if plain.is_control {
        return Ok(packet.ends_or_answers(&plain, packet.comes_from_underlay()));
    }
    packet.allows_replay()?;
    packet.comes_from_underlay()?;
    let Some((_, flow)) = packet.world.flow(&plain.tuple, LO) else {
        return Ok(packet.noted_by_chance(&plain));
    };
    Err(match flow.stopped(plain.is_due) {
        None => Reason::NotFollowed,
        Some(reason @ (Reason::Refreshing | Reason::Handshake)) => {
            packet.noted_again(&plain, flow, reason)
        }
        Some(reason) => reason,
    })
}

/// A packet of a test run was never noted, so it teaches no flow; a packet that closes a connection
/// ends the reverse flow.
pub(super) fn to_pod(packet: &Packet<'_>) -> Result<Expected, Reason> {
    let plain = packet.plain()?;
    if plain.is_control {
        return Ok(ends(&plain, plain.tuple.reversed()));
    }
    Err(Reason::NotFollowed)
}

/// The flow with this way in ends, and so does its way back.
pub(super) fn ends(plain: &Plain, enters: Tuple) -> Expected {
    Expected::pass(Reason::TcpControl).with(Effect::Ended {
        enters,
        by: LO,
        is_opening: plain.is_opening,
    })
}

fn replay(packet: &Packet<'_>, plain: &Plain, flow: &Known) -> Result<Expected, Reason> {
    packet.has_right_checksum()?;
    as_seen(plain, flow, packet.gso)?;
    let layout = packet.layout;
    let inner = rewrite::translated(layout, &packet.bytes[ETHERNET..], flow, plain.tos);
    let sent = match flow.way {
        Way::Unknown => return Err(Reason::FlowUnknown),
        Way::Pod => rewrite::delivered(packet, flow, &inner),
        Way::Link => {
            let peer = packet.world.direct_peer_of(flow.leaves.destination);
            peer.filter(|_| flow.leaves_by == LO)
                .ok_or(Reason::NoPeer)?;
            rewrite::delivered(packet, flow, &inner)
        }
        Way::Tunnel => {
            let peer = packet
                .world
                .peer_of(flow.leaves.destination)
                .ok_or(Reason::NoPeer)?;
            tunnel::path_takes(packet, peer, plain.segment(packet.gso))?;
            if packet.gso != 0 {
                // A test run has segments, but not their kind, and then the kernel makes no room.
                return Err(Reason::RoomRefused);
            }
            tunnel::encapsulated(
                packet,
                &Outer {
                    peer,
                    tos: plain.tos,
                },
                &inner,
                Some(flow),
            )
        }
    };
    Ok(Expected::sent(Reason::Replayed, sent))
}

/// The frame is as those seen, with the same DSCP, TTL and flow label, and no larger than the way
/// out takes.
pub(super) fn as_seen(plain: &Plain, flow: &Known, gso: usize) -> Result<(), Reason> {
    if plain.frame != flow.frame {
        return Err(Reason::FrameDiffers);
    }
    if plain.tos & 0xfc != flow.tos & 0xfc || plain.ttl != flow.ttl || plain.flow_label != [0; 3] {
        return Err(Reason::FieldsDiffer);
    }
    if plain.segment(gso) > usize::from(flow.mtu) {
        Err(Reason::TooBig)
    } else {
        Ok(())
    }
}

impl Packet<'_> {
    pub(super) fn plain(&self) -> Result<Plain, Reason> {
        Plain::read(self.layout, self.bytes, self.world.net.ethertype)
    }

    /// A socket leaves the checksum of TCP or UDP to the device. Of others it is right, in a packet
    /// that is not too long for the programs.
    fn has_right_checksum(&self) -> Result<(), Reason> {
        const VERIFIED_MAX: usize = 2048;
        let ip = &self.bytes[ETHERNET..];
        let (addresses, transport) = (
            &ip[self.layout.addresses..][..2 * self.layout.address],
            &ip[self.layout.header..],
        );
        let protocol = ip[self.layout.protocol];
        let length = u16::try_from(transport.len())
            .expect("a packet")
            .to_be_bytes();
        let pseudo_header = [addresses, &[0, protocol], &length].concat();
        let field = word(transport, if protocol == 17 { 6 } else { 16 });
        let is_complete = || {
            transport.len() <= VERIFIED_MAX
                && sums::checksum(&[&pseudo_header, transport].concat()) == 0
        };
        let is_absent = protocol == 17 && field == 0;
        let is_partial = sums::same(field, !sums::checksum(&pseudo_header));
        if self.gso != 0 || is_absent || is_partial || is_complete() {
            Ok(())
        } else {
            Err(Reason::ChecksumUnverified)
        }
    }

    /// Returns the expectation for a packet of an unknown flow: the program notes one packet in
    /// eight, if its sender has a token.
    pub(super) fn noted_by_chance(&self, plain: &Plain) -> Expected {
        let noted = if self.world.has_tokens {
            self.noted(plain, Reason::Sampled)
        } else {
            Reason::TooManyFlows
        };
        Expected {
            or: Some(noted),
            ..Expected::pass(Reason::FlowUnknown)
        }
    }

    /// A packet that opens or closes ends its flow. The answer to one that opens is noted where its
    /// sender is `followed` and flows are replayed.
    pub(super) fn ends_or_answers(&self, plain: &Plain, followed: Result<(), Reason>) -> Expected {
        let ended = ends(plain, plain.tuple);
        let is_noted = plain.is_answer
            && followed.and(self.allows_replay()).is_ok()
            && self.noted(plain, Reason::Handshake) == Reason::Handshake;
        if is_noted {
            Expected {
                reasons: vec![Reason::Handshake],
                ..ended
            }
        } else {
            ended
        }
    }

    /// `reason`, if the packet of a flow to be refreshed, or expected, may be noted. A flow on
    /// probation that is refreshed takes a token: it goes into the table.
    pub(super) fn noted_again(&self, plain: &Plain, flow: &Known, reason: Reason) -> Reason {
        if flow.on_probation && reason == Reason::Refreshing && !self.world.has_tokens {
            return Reason::TooManyFlows;
        }
        self.noted(plain, reason)
    }

    /// `reason`, if the packet may be noted.
    pub(super) fn noted(&self, plain: &Plain, reason: Reason) -> Reason {
        let learns = self.world.learns.contains(&plain.tuple.protocol);
        let has_helper = plain.tuple.ports.contains(&self.world.helper_port);
        if learns && !has_helper {
            reason
        } else {
            Reason::NotLearned
        }
    }
}
