//! One event of a flow.

use std::{net::IpAddr, time::Duration};

use flannel_common::{
    abi::{
        kernel_drop::KernelDrop,
        monitor::{Event, KERNEL},
        program::Program,
        reason::{Reason, Verdict},
    },
    packet::{PROTO_ICMP, PROTO_ICMPV6, PROTO_TCP, PROTO_UDP},
};

use crate::{
    monitor::{
        Seen,
        packet::{Ip, Packet, protocol_name},
    },
    rows::{FlowRow, FlowWay},
};

/// The first port that clients choose for themselves (`net.ipv4.ip_local_port_range`, Linux).
const EPHEMERAL: u16 = 32_768;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEventKind {
    /// The flow was not known.
    New,
    /// It goes on.
    Active,
    /// Mode `fast` does not know it any more.
    Ended,
    /// A packet was dropped.
    Dropped,
}

impl FlowEventKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::New, Self::Active, Self::Ended, Self::Dropped];

    /// The name in every output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Active => "active",
            Self::Ended => "ended",
            Self::Dropped => "dropped",
        }
    }
}

/// The direction of a flow, seen from the pods of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// To a pod.
    Ingress,
    /// From a pod.
    Egress,
}

impl Direction {
    const fn of(program: Program) -> Self {
        match program {
            Program::FromPod | Program::ToTunnel | Program::ToUnderlay | Program::ToL3Tunnel => {
                Self::Egress
            }
            Program::FromUnderlay
            | Program::FromTunnel
            | Program::ToPod
            | Program::FromL3Tunnel => Self::Ingress,
        }
    }

    /// The name in every output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// The outcome of a packet that was not replayed, by who decided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PacketOutcome {
    /// A program, with its reason.
    Program(Program, Reason),
    /// The kernel dropped it, for this reason.
    Kernel(KernelDrop),
}

impl PacketOutcome {
    /// Returns true if the packet was dropped.
    pub fn is_drop(self) -> bool {
        match self {
            Self::Program(_, reason) => reason.verdict() == Verdict::Drop,
            Self::Kernel(_) => true,
        }
    }

    /// The name of the reason.
    pub const fn reason_name(self) -> &'static str {
        match self {
            Self::Program(_, reason) => reason.name(),
            Self::Kernel(reason) => reason.name(),
        }
    }
}

/// An event of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowEvent {
    /// The time, since 1970.
    pub time: Duration,
    /// The kind.
    pub kind: FlowEventKind,
    /// The outcome, for packets that were not replayed.
    pub outcome: Option<PacketOutcome>,
    /// The direction.
    pub direction: Direction,
    /// The IP protocol number.
    pub protocol: u8,
    /// The source and the destination, as packets come in.
    pub addresses: [IpAddr; 2],
    /// Their ports, for TCP and UDP.
    pub ports: Option<[u16; 2]>,
    /// The same as packets leave, where that is known.
    pub translated: Option<([IpAddr; 2], [u16; 2])>,
    /// The flags of the packet, for TCP.
    pub tcp_flags: Option<u8>,
    /// Type and code, for ICMP.
    pub icmp: Option<[u8; 2]>,
    /// Interface index of the device.
    pub ifindex: u32,
    /// The way by which the packets leave, for replayed flows.
    pub way: Option<FlowWay>,
    /// Packets and bytes that were replayed; one packet for others.
    pub packets: u64,
    /// Bytes, from the Ethernet header on.
    pub bytes: u64,
}

/// The facts of one packet that are not in its headers.
#[derive(Clone, Copy)]
struct PacketFacts {
    time: Duration,
    outcome: PacketOutcome,
    direction: Direction,
    ifindex: u32,
    bytes: u32,
}

impl FlowEvent {
    /// The event of one packet; `None` if it is not IP.
    pub(super) fn of_packet(seen: &Seen<'_>, epoch: Duration) -> Option<Self> {
        let Packet::Ip(ip) = seen.packet() else {
            return None;
        };
        let packet = PacketFacts {
            time: seen.time(epoch),
            outcome: PacketOutcome::Program(seen.program, seen.reason),
            direction: Direction::of(seen.program),
            ifindex: seen.ifindex(),
            bytes: seen.frame_len(),
        };
        Some(Self::of_ip(&ip, packet))
    }

    /// The event of a packet that the kernel dropped, from an item of the ring buffer; `None` if it
    /// is none.
    pub(super) fn of_kernel_drop(item: &[u8], epoch: Duration) -> Option<Self> {
        let event = Event::from_bytes(item).filter(|event| event.program == KERNEL)?;
        let frame =
            item[Event::LEN..].get(usize::from(event.inner_at)..usize::from(event.captured))?;
        let Packet::Ip(ip) = Packet::read(frame, event.len) else {
            return None;
        };
        let packet = PacketFacts {
            time: epoch.saturating_add(Duration::from_nanos(event.time_ns)),
            outcome: PacketOutcome::Kernel(KernelDrop::from_number(event.reason)?),
            direction: if event.is_inbound == 0 {
                Direction::Egress
            } else {
                Direction::Ingress
            },
            ifindex: event.ifindex,
            bytes: event.len,
        };
        Some(Self::of_ip(&ip, packet))
    }

    fn of_ip(ip: &Ip<'_>, packet: PacketFacts) -> Self {
        let PacketFacts {
            time,
            outcome,
            direction,
            ifindex,
            bytes,
        } = packet;
        Self {
            time,
            kind: if outcome.is_drop() {
                FlowEventKind::Dropped
            } else {
                FlowEventKind::New
            },
            outcome: Some(outcome),
            direction,
            protocol: ip.protocol,
            addresses: ends(ip),
            ports: ip.ports(),
            translated: None,
            tcp_flags: ip.tcp_flags(),
            icmp: ip.icmp(),
            ifindex,
            way: None,
            packets: 1,
            bytes: bytes.into(),
        }
    }

    /// The event of a flow of the tables, whose last packet was `now` less its age.
    pub(super) fn of_row(row: &FlowRow, kind: FlowEventKind, now: Duration) -> Self {
        let age = Duration::from_millis(row.last_seen_ms.unsigned_abs());
        Self {
            time: if kind == FlowEventKind::Ended {
                now
            } else {
                now.saturating_sub(age)
            },
            kind,
            outcome: None,
            direction: if row.way == FlowWay::Pod {
                Direction::Ingress
            } else {
                Direction::Egress
            },
            protocol: if row.protocol == "tcp" {
                PROTO_TCP
            } else {
                PROTO_UDP
            },
            addresses: [row.source.ip(), row.destination.ip()],
            ports: Some([row.source.port(), row.destination.port()]),
            translated: Some((
                [row.out_source.ip(), row.out_destination.ip()],
                [row.out_source.port(), row.out_destination.port()],
            )),
            tcp_flags: None,
            icmp: None,
            ifindex: row.device,
            way: Some(row.way),
            packets: row.packets,
            bytes: row.bytes,
        }
    }

    /// The protocol's name, or its number.
    pub fn protocol_name(&self) -> String {
        protocol_name(self.protocol)
    }

    /// True for a packet of the end that answers; `None` if that cannot be known.
    ///
    /// A SYN opens a connection and a SYN-ACK answers it; a translated destination is that of a
    /// request to a Service. Otherwise the end with a port that clients choose (32768 and above) is
    /// the client, if only one has such a port. ICMP answers are echo replies.
    pub fn is_reply(&self) -> Option<bool> {
        const SYN: u8 = 0x02;
        const SYN_ACK: u8 = 0x12;
        match self.tcp_flags.map(|flags| flags & SYN_ACK) {
            Some(SYN) => return Some(false),
            Some(SYN_ACK) => return Some(true),
            _ => {}
        }
        if let Some(([_, to], _)) = self.translated
            && to != self.addresses[1]
            && self
                .ports
                .is_some_and(|[from, to]| from >= EPHEMERAL || to < EPHEMERAL)
        {
            return Some(false);
        }
        match (self.ports, self.protocol, self.icmp) {
            (Some([from, to]), ..) if (from >= EPHEMERAL) != (to >= EPHEMERAL) => {
                Some(to >= EPHEMERAL)
            }
            (None, PROTO_ICMP, Some([0, _])) | (None, PROTO_ICMPV6, Some([129, _])) => Some(true),
            (None, PROTO_ICMP, Some([8, _])) | (None, PROTO_ICMPV6, Some([128, _])) => Some(false),
            _ => None,
        }
    }

    /// Every address of the event, for the look-up of names.
    pub fn all_addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses
            .into_iter()
            .chain(self.translated.iter().flat_map(|(addresses, _)| *addresses))
    }
}

const fn ends(ip: &Ip<'_>) -> [IpAddr; 2] {
    [ip.addresses.source, ip.addresses.destination]
}
