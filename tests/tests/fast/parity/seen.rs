//! The effects of a pod's packet, captured at three places: in the pod it is for, on the wire, and
//! back in the pod that sent it.

use std::{collections::BTreeSet, fmt::Write as _, time::Duration};

use anyhow::Result;
use etherparse::IpNumber;
use flannel_tests::{
    Pair, eventually, eventually_stable,
    packet::{
        Packet, frame,
        wire::{Capture, Wanted, inject},
    },
};

use super::cases::Route;

/// The places where frames are captured, in the order of the captures.
const PLACES: [&str; 3] = ["in the far pod", "on the wire", "back in the near pod"];

/// The protocol of packets that are neither TCP nor UDP nor ICMP.
pub(crate) const OTHER: IpNumber = IpNumber(99);

/// Frames by place.
pub(crate) type Seen = BTreeSet<(usize, Vec<u8>)>;

/// The captures of one address family.
pub(crate) struct Watch {
    captures: [Capture; 3],
    plain: Packet,
    is_v6: bool,
    /// True if the wire carries tunnel packets, and not the pods' own.
    has_tunnel: bool,
}

impl Watch {
    /// Captures what the near pod sends to the far one. Packets like [`Route::plain`] are left out.
    pub(crate) fn new(pair: &Pair, route: &Route) -> Result<Self> {
        let (is_v6, has_tunnel) = (route.to.is_ipv6(), pair.has_tunnel()?);
        let [far, tunnel, near]: [Wanted; 3] = if is_v6 {
            [is_sent_v6, frame::is_tunnel_v6, is_icmp_v6]
        } else {
            [is_sent, frame::is_tunnel, is_icmp]
        };
        let wire = if has_tunnel { tunnel } else { far };
        let captures = [
            Capture::start(&pair.far, "eth0", far)?,
            Capture::start(&pair.net.r, "eth-a", wire)?,
            Capture::start(&pair.near, "eth0", near)?,
        ];
        Ok(Self {
            captures,
            plain: route.plain(),
            is_v6,
            has_tunnel,
        })
    }

    /// Sends the packet that says nothing from the near pod.
    pub(crate) fn send_plain(&self, pair: &Pair) -> Result<()> {
        inject(&pair.near, &self.plain)
    }

    /// Forgets what was seen.
    pub(crate) fn clear(&self) {
        self.captures.iter().for_each(Capture::clear);
    }

    /// Returns the frames seen so far except plain packets, each once.
    pub(crate) fn seen(&self) -> Seen {
        let frames = self.captures.iter().enumerate();
        let frames = frames.flat_map(|(place, capture)| {
            capture
                .frames()
                .into_iter()
                .map(move |frame| (place, frame))
        });
        frames
            .filter(|(_, frame)| !self.is_plain(frame))
            .map(|(place, frame)| (place, self.masked(place, frame)))
            .collect()
    }

    /// Returns the frames seen once no more arrive: after another plain packet has arrived, and the
    /// frames have been the same for some readings.
    pub(crate) fn settled(&self, pair: &Pair) -> Result<Seen> {
        self.arrival_of_plain(pair)?;
        eventually_stable("no more frames", Duration::from_secs(5), 3, || {
            Some(self.seen())
        })
    }

    fn arrival_of_plain(&self, pair: &Pair) -> Result<()> {
        let arrived = || {
            self.captures[0]
                .frames()
                .iter()
                .filter(|frame| self.is_plain(frame))
                .count()
        };
        let before = arrived();
        self.send_plain(pair)?;
        eventually("a plain packet", Duration::from_secs(5), || {
            (arrived() > before).then_some(())
        })
    }

    /// Returns true for a plain packet. Only TTL and header checksum change on the way, so the
    /// length, the identification and everything behind the checksum identify it.
    fn is_plain(&self, frame: &[u8]) -> bool {
        let (numbers, rest) = if self.is_v6 { (4..6, 8) } else { (2..6, 12) };
        let plain = self.plain.bytes();
        let inner = frame.len().checked_sub(plain.len()).map(|at| &frame[at..]);
        inner.is_some_and(|inner| {
            inner[numbers.clone()] == plain[numbers] && inner[rest..] == plain[rest..]
        })
    }

    /// Without what differs from packet to packet: identification and checksums of what the nodes
    /// made themselves. And without what the next node may already have written over: it puts
    /// fragments together and apart again in place, also in the memory that a capture before it
    /// still looks at (`ip_do_fragment` asks whether a fragment is shared, not whether it is
    /// cloned).
    fn masked(&self, place: usize, mut frame: Vec<u8>) -> Vec<u8> {
        let is_later_fragment = frame::ip(&frame).is_some_and(|ip| frame::is_later_fragment(&ip));
        let masks: &[(usize, usize)] = match (place, self.is_v6) {
            (0, _) => &[],
            (1, false) if !self.has_tunnel && is_later_fragment => &[(0, 12), (22, 23), (24, 26)],
            (1, true) if !self.has_tunnel && is_later_fragment => &[(0, 12), (21, 22)],
            (1, _) if !self.has_tunnel => &[],
            (1, false) => &[(18, 20), (24, 26), (40, 42)],
            (2, false) => &[(18, 20), (24, 26)],
            (1, true) => &[(60, 62)],
            // The flow label of an answer is its socket's hash.
            _ => &[(15, 18)],
        };
        for (from, to) in masks {
            frame[*from..*to].fill(0);
        }
        frame
    }
}

/// Returns a text of the frames that only one of two sets has; empty when they are equal.
pub(crate) fn difference(kernel: &Seen, fast: &Seen) -> String {
    let mut text = String::new();
    for (who, frames) in [
        ("in mode kernel", kernel.difference(fast)),
        ("in mode fast", fast.difference(kernel)),
    ] {
        for (place, frame) in frames {
            writeln!(
                text,
                "only {who}, {}: {:02x?}",
                PLACES[*place],
                &frame[..frame.len().min(140)]
            )
            .expect("text grows");
        }
    }
    text
}

fn has_protocol(frame: &[u8], protocols: &[IpNumber]) -> bool {
    frame::ip(frame).is_some_and(|ip| protocols.contains(&ip.payload_ip_number()))
}

fn is_sent(frame: &[u8]) -> bool {
    frame::is_ipv4(frame) && has_protocol(frame, &[IpNumber::UDP, IpNumber::ICMP, OTHER])
}

fn is_sent_v6(frame: &[u8]) -> bool {
    !frame::is_ipv4(frame) && has_protocol(frame, &[IpNumber::UDP, OTHER])
}

fn is_icmp(frame: &[u8]) -> bool {
    has_protocol(frame, &[IpNumber::ICMP])
}

/// Errors; what neighbours say to each other is another matter.
fn is_icmp_v6(frame: &[u8]) -> bool {
    has_protocol(frame, &[IpNumber::IPV6_ICMP]) && frame[54] < 128
}
