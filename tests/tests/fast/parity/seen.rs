//! The effects of a pod's packet, captured at three places: in the pod it is for, on the wire, and
//! back in the pod that sent it.

use std::{collections::BTreeSet, fmt::Write as _, net::IpAddr, time::Duration};

use anyhow::Result;
use flannel_tests::{
    Pair, eventually, eventually_stable,
    packet::{
        self, ICMP, UDP,
        v6::{self, FRAGMENT, HOP_BY_HOP, ICMPV6},
    },
    wire::{Capture, inject},
};

/// The places where frames are captured, in the order of the captures.
const PLACES: [&str; 3] = ["in the far pod", "on the wire", "back in the near pod"];

/// Frames by place.
pub(crate) type Seen = BTreeSet<(usize, Vec<u8>)>;

/// The captures of one address family.
pub(crate) struct Watch {
    captures: [Capture; 3],
    plain: Vec<u8>,
    is_v6: bool,
    /// True if the wire carries tunnel packets, and not the pods' own.
    has_tunnel: bool,
}

impl Watch {
    /// Looks at what the near pod sends to this address. `plain` is a packet that says nothing; it
    /// and what is like it are not looked at.
    pub(crate) fn new(pair: &Pair, at: IpAddr, plain: Vec<u8>) -> Result<Self> {
        let (is_v6, has_tunnel) = (at.is_ipv6(), pair.has_tunnel()?);
        let [far, tunnel, near] = if is_v6 {
            [is_sent_v6, v6::is_tunnel, is_icmp_v6]
        } else {
            [is_sent as fn(&[u8]) -> bool, packet::is_tunnel, is_icmp]
        };
        let wire = if has_tunnel { tunnel } else { far };
        let captures = [
            Capture::start(&pair.far, "eth0", far)?,
            Capture::start(&pair.net.r, "eth-a", wire)?,
            Capture::start(&pair.near, "eth0", near)?,
        ];
        Ok(Self { captures, plain, is_v6, has_tunnel })
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
        let frames = frames.flat_map(|(place, capture)| capture.frames().into_iter().map(move |frame| (place, frame)));
        frames
            .filter(|(_, frame)| !self.is_plain(frame))
            .map(|(place, frame)| (place, self.masked(place, frame)))
            .collect()
    }

    /// Returns the frames seen once no more arrive: after another plain packet has arrived, and the
    /// frames have been the same for some readings.
    pub(crate) fn settled(&self, pair: &Pair) -> Result<Seen> {
        self.arrival_of_plain(pair)?;
        eventually_stable("no more frames", Duration::from_secs(5), 3, || Some(self.seen()))
    }

    fn arrival_of_plain(&self, pair: &Pair) -> Result<()> {
        let arrived = || self.captures[0].frames().iter().filter(|frame| self.is_plain(frame)).count();
        let before = arrived();
        self.send_plain(pair)?;
        eventually("a plain packet", Duration::from_secs(5), || (arrived() > before).then_some(()))
    }

    /// Returns true for a plain packet. Only TTL and header checksum change on the way, so the
    /// length, the identification and everything behind the checksum identify it.
    fn is_plain(&self, frame: &[u8]) -> bool {
        let (numbers, rest) = if self.is_v6 { (4..6, 8) } else { (2..6, 12) };
        let inner = frame.len().checked_sub(self.plain.len()).map(|at| &frame[at..]);
        inner.is_some_and(|inner| inner[numbers.clone()] == self.plain[numbers] && inner[rest..] == self.plain[rest..])
    }

    /// Without what differs from packet to packet: identification and checksums of what the nodes
    /// made themselves. And without what the next node may already have written over: it puts
    /// fragments together and apart again in place, also in the memory that a capture before it
    /// still looks at (`ip_do_fragment` asks whether a fragment is shared, not whether it is
    /// cloned).
    fn masked(&self, place: usize, mut frame: Vec<u8>) -> Vec<u8> {
        let masks: &[(usize, usize)] = match (place, self.is_v6) {
            (0, _) => &[],
            (1, false) if !self.has_tunnel && is_later_fragment(&frame) => &[(0, 12), (22, 23), (24, 26)],
            (1, true) if !self.has_tunnel && is_later_fragment_v6(&frame) => &[(0, 12), (21, 22)],
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

fn is_later_fragment(frame: &[u8]) -> bool {
    frame.get(20..22).is_some_and(|word| u16::from_be_bytes([word[0] & 0x1f, word[1]]) != 0)
}

fn is_later_fragment_v6(frame: &[u8]) -> bool {
    let offset = frame.get(56..58).map(|word| u16::from_be_bytes([word[0], word[1]]) >> 3);
    frame.get(20) == Some(&FRAGMENT) && offset.is_some_and(|offset| offset != 0)
}

/// Returns a text of the frames that only one of two sets has; empty when they are equal.
pub(crate) fn difference(kernel: &Seen, fast: &Seen) -> String {
    let mut text = String::new();
    for (who, frames) in [("in mode kernel", kernel.difference(fast)), ("in mode fast", fast.difference(kernel))] {
        for (place, frame) in frames {
            writeln!(text, "only {who}, {}: {:02x?}", PLACES[*place], &frame[..frame.len().min(140)])
                .expect("text grows");
        }
    }
    text
}

fn is_v4(frame: &[u8], protocols: &[u8]) -> bool {
    packet::is_ipv4(frame) && protocols.contains(&frame[23])
}

fn is_v6(frame: &[u8], headers: &[u8]) -> bool {
    frame.len() >= 54 && frame[12..14] == [0x86, 0xdd] && headers.contains(&frame[20])
}

fn is_sent(frame: &[u8]) -> bool {
    is_v4(frame, &[UDP, ICMP, 99])
}

fn is_sent_v6(frame: &[u8]) -> bool {
    is_v6(frame, &[UDP, HOP_BY_HOP, FRAGMENT, 99])
}

fn is_icmp(frame: &[u8]) -> bool {
    is_v4(frame, &[ICMP])
}

/// Errors; what neighbours say to each other is another matter.
fn is_icmp_v6(frame: &[u8]) -> bool {
    is_v6(frame, &[ICMPV6]) && frame[54] < 128
}
