//! The packets: every kind that may or must not be replayed, as one that a known flow could hold.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Result;
use flannel_common::abi::reason::Reason;
use flannel_tests::{
    Pair,
    fast::Family,
    packet::{Packet, pattern},
};

use super::seen::OTHER;

/// Packets that a pod sends in the middle of a known flow, and the reason under which `from_pod` is
/// to count them.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) packets: Vec<Packet>,
    pub(crate) reason: Reason,
}

/// The way from the near pod to the far one, over one family.
pub(crate) struct Route {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    /// The largest packet it takes.
    pub(crate) mtu: usize,
}

impl Route {
    pub(crate) fn new(pair: &Pair, family: Family, mtu: usize) -> Result<Self> {
        Ok(Self {
            from: family.of(&pair.near)?,
            to: family.of(&pair.far)?,
            mtu,
        })
    }

    fn udp(&self, id: u16, length: usize) -> Packet {
        Packet::udp(self.from, self.to, id, length)
    }

    /// A datagram as large as the way takes, or larger by some bytes.
    fn largest(&self, id: u16, more: usize) -> Packet {
        let headers = if self.from.is_ipv4() { 28 } else { 48 };
        self.udp(id, self.mtu - headers + more)
    }

    /// The packet that says nothing, as large as the way takes: what is as large may leave as well.
    pub(crate) fn plain(&self) -> Packet {
        Packet {
            class: 2,
            ..self.largest(0x7fff, 0)
        }
    }
}

/// DSCP and ECN: every codepoint of ECN, with and without expedited forwarding.
pub(crate) fn classes(route: &Route) -> Vec<Case> {
    let case = |(id, (name, class))| {
        // Rules can ask for the DSCP: a packet with another than its flow's is the kernel's. ECN
        // changes from packet to packet.
        let reason = if class & 0xfc == 0 {
            Reason::Replayed
        } else {
            Reason::FieldsDiffer
        };
        Case {
            name,
            packets: vec![Packet {
                class,
                ..route.udp(id, 64)
            }],
            reason,
        }
    };
    (100..).zip(CLASSES).map(case).collect()
}

const CLASSES: [(&str, u8); 7] = [
    ("Not-ECT", 0),
    ("ECT(1)", 1),
    ("ECT(0)", 2),
    ("CE", 3),
    ("EF", 0xb8),
    ("EF and ECT(0)", 0xba),
    ("EF and CE", 0xbb),
];

/// All others.
pub(crate) fn kinds(route: &Route) -> Vec<Case> {
    let with_ttl = |id, ttl| Packet {
        ttl,
        ..route.udp(id, 100)
    };
    let mut wrong_sum = route.udp(5, 100);
    wrong_sum.payload[6] ^= 0x5a;
    let other_protocol = Packet::new(route.from, route.to, 9, OTHER, pattern(24));
    // Options of IPv6 are a header in front of UDP's.
    let options = if route.from.is_ipv4() {
        Reason::NotPlain
    } else {
        Reason::OtherTransport
    };
    let mut kinds = vec![
        ("small", Reason::Replayed, route.udp(1, 3)),
        ("wrong checksum", Reason::ChecksumUnverified, wrong_sum),
        (
            "as large as the MTU, DF",
            Reason::Replayed,
            Packet {
                df: true,
                ..route.largest(6, 0)
            },
        ),
        (
            "options",
            options,
            Packet {
                has_options: true,
                ..route.udp(7, 100)
            },
        ),
        (
            "neither TCP nor UDP",
            Reason::OtherTransport,
            other_protocol,
        ),
        ("TTL 1", Reason::NotPlain, with_ttl(11, 1)),
        ("TTL 2", Reason::FieldsDiffer, with_ttl(12, 2)),
        ("TTL 3", Reason::FieldsDiffer, with_ttl(13, 3)),
        ("too large", Reason::TooBig, route.largest(16, 1)),
    ];
    kinds.extend(match route.from {
        IpAddr::V4(from) => of_ipv4(route, from),
        IpAddr::V6(_) => of_ipv6(route),
    });
    let one = |(name, reason, packet)| Case {
        name,
        packets: vec![packet],
        reason,
    };
    let packets = route.udp(8, 1000).fragments(512).into();
    let fragments = Case {
        name: "fragments",
        packets,
        reason: Reason::Fragment,
    };
    kinds.into_iter().map(one).chain([fragments]).collect()
}

fn of_ipv6(route: &Route) -> Vec<(&'static str, Reason, Packet)> {
    let label = Packet {
        label: 0xa_bcde,
        ..route.udp(2, 100)
    };
    vec![("flow label", Reason::FieldsDiffer, label)]
}

fn of_ipv4(route: &Route, from: Ipv4Addr) -> Vec<(&'static str, Reason, Packet)> {
    // An address of the same /24 that no pod has.
    let [a, b, c, _] = from.octets();
    let other = Ipv4Addr::new(a, b, c, 77);
    vec![
        ("no payload", Reason::Replayed, route.udp(2, 0)),
        (
            "DF",
            Reason::Replayed,
            Packet {
                df: true,
                ..route.udp(3, 100)
            },
        ),
        (
            "checksum 0",
            Reason::Replayed,
            route.udp(4, 99).without_udp_checksum(),
        ),
        (
            "ICMP",
            Reason::OtherTransport,
            Packet::echo_request(route.from, route.to, 10, 56),
        ),
        (
            "TTL 255",
            Reason::FieldsDiffer,
            Packet {
                ttl: 255,
                ..route.udp(14, 100)
            },
        ),
        (
            "too large, DF",
            Reason::TooBig,
            Packet {
                df: true,
                ..route.largest(15, 1)
            },
        ),
        (
            "from another's address",
            Reason::Sampled,
            Packet::udp(other.into(), route.to, 17, 100),
        ),
    ]
}
