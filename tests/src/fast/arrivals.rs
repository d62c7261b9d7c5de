//! The headers with which the packets of a conversation arrive at its pods, to compare modes.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};

use anyhow::Result;
use etherparse::{IpNumber, LaxIpSlice};

use super::{Family, FastLab};
use crate::packet::{
    frame,
    wire::{Capture, Wanted},
};

/// An arrival: from where, to where, with which TTL or hop limit. The client's port is 0, because
/// each conversation has another.
pub type Arrival = (SocketAddr, SocketAddr, u8);

/// Captures of TCP and UDP in the near and in the far pod of a lab.
pub struct Arrivals {
    captures: [Capture; 2],
    addresses: [IpAddr; 2],
}

impl Arrivals {
    /// Starts the captures of one family.
    pub fn capture(lab: &FastLab, family: Family) -> Result<Self> {
        let wanted: Wanted = if family == Family::V4 {
            is_transport_v4
        } else {
            is_transport_v6
        };
        let start = |pod| Capture::start(pod, "eth0", wanted);
        let addresses = [family.of(&lab.near)?, family.of(&lab.far)?];
        Ok(Self {
            captures: [start(&lab.near)?, start(&lab.far)?],
            addresses,
        })
    }

    /// Returns the arrivals so far, each once, and forgets them. The pods are clients and servers
    /// of conversations whose server has a port below 32768.
    pub fn take(&self) -> BTreeSet<Arrival> {
        let mut arrivals = BTreeSet::new();
        for (capture, own) in self.captures.iter().zip(self.addresses) {
            let frames = capture.frames();
            capture.clear();
            arrivals.extend(
                frames
                    .iter()
                    .filter_map(|frame| arrival(frame))
                    .filter(|(_, to, _)| to.ip() == own),
            );
        }
        arrivals
    }
}

fn is_transport_v4(frame: &[u8]) -> bool {
    frame::is_ipv4(frame) && arrival(frame).is_some()
}

fn is_transport_v6(frame: &[u8]) -> bool {
    !frame::is_ipv4(frame) && arrival(frame).is_some()
}

fn arrival(frame: &[u8]) -> Option<Arrival> {
    let ip = frame::ip(frame)?;
    if ![IpNumber::TCP, IpNumber::UDP].contains(&ip.payload_ip_number()) {
        return None;
    }
    let (from, to, ttl): (IpAddr, IpAddr, u8) = match &ip {
        LaxIpSlice::Ipv4(ip) => {
            let header = ip.header();
            (
                header.source_addr().into(),
                header.destination_addr().into(),
                header.ttl(),
            )
        }
        LaxIpSlice::Ipv6(ip) => {
            let header = ip.header();
            (
                header.source_addr().into(),
                header.destination_addr().into(),
                header.hop_limit(),
            )
        }
    };
    let port = |at: usize| -> Option<u16> {
        let bytes = ip.payload().payload.get(at..at + 2)?;
        let port = u16::from_be_bytes([bytes[0], bytes[1]]);
        Some(if port < 32768 { port } else { 0 })
    };
    Some((
        SocketAddr::new(from, port(0)?),
        SocketAddr::new(to, port(2)?),
        ttl,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Packet;

    #[test]
    fn an_arrival_has_the_port_of_the_server_alone() {
        let [near, far]: [SocketAddr; 2] =
            ["10.244.1.2:40000", "10.244.2.2:8080"].map(|end| end.parse().expect("an end"));
        let frame = Packet {
            ttl: 62,
            ..Packet::tcp([near, far], 7, b"x", |_| ())
        }
        .framed([2; 6], [3; 6]);
        assert_eq!(
            arrival(&frame),
            Some((SocketAddr::new(near.ip(), 0), far, 62))
        );
        let echo = Packet::echo_request(near.ip(), far.ip(), 1, 8).framed([2; 6], [3; 6]);
        assert_eq!(arrival(&echo), None);
    }
}
