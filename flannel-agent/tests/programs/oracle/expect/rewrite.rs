//! Packets as they are after the kernel's translation was done again.

use super::{Packet, Sent};
use crate::oracle::{
    parse::{ETHERNET, Layout},
    sums,
    world::{Known, Tuple, octets},
};

/// An IP packet as it leaves: with the addresses and ports of the flow's other end, TTL and TOS.
/// What was wrong with a checksum before is wrong with it afterwards.
pub(super) fn translated(layout: Layout, ip: &[u8], flow: &Known, tos: u8) -> Vec<u8> {
    let mut out = ip.to_vec();
    let (source, rest) = (layout.addresses, layout.addresses + layout.address);
    out[source..rest].copy_from_slice(&octets(flow.leaves.source));
    out[rest..layout.header].copy_from_slice(&octets(flow.leaves.destination));
    out[layout.ttl] -= flow.ttl_step;
    if layout.is_v6 {
        out[0] = out[0] & 0xf0 | tos >> 4;
        out[1] = out[1] & 0x0f | tos << 4;
    } else {
        out[1] = tos;
        out[10..12].fill(0);
        let mut before = ip[..20].to_vec();
        before[10..12].fill(0);
        let sum = sums::followed(u16::from_be_bytes([ip[10], ip[11]]), &before, &out[..20]);
        out[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let header = &mut out[layout.header..];
    header[..4].copy_from_slice(&ports(&flow.leaves));
    if !same_tuple(&flow.enters, &flow.leaves) {
        let at = checksum_at(flow.enters.protocol);
        let field = u16::from_be_bytes([header[at], header[at + 1]]);
        // Zero is "none" of UDP, and stays so; a sum of zero is written the other way.
        if flow.enters.protocol == 6 || field != 0 {
            let mut sum = sums::followed(field, &pseudo(&flow.enters), &pseudo(&flow.leaves));
            if sum == 0 && flow.enters.protocol == 17 {
                sum = 0xffff;
            }
            header[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
    out
}

/// A packet in the frame its pod gets.
pub(super) fn delivered(packet: &Packet<'_>, flow: &Known, ip: &[u8]) -> Sent {
    let ethertype = packet.world.net.ethertype.to_be_bytes();
    Sent {
        bytes: [&flow.exit_frame[..], &ethertype, ip].concat(),
        outer_of: None,
        sums: sums_of(packet.layout, ETHERNET, flow.enters.protocol),
    }
}

/// Returns the offsets of checksums that were updated incrementally.
pub(super) fn sums_of(layout: Layout, ip_at: usize, protocol: u8) -> Vec<usize> {
    let transport = ip_at + layout.header + checksum_at(protocol);
    match (layout.is_v6, protocol) {
        (false, 6) => vec![ip_at + 10, transport],
        (false, _) => vec![ip_at + 10],
        (true, 6) => vec![transport],
        (true, _) => Vec::new(),
    }
}

const fn checksum_at(protocol: u8) -> usize {
    if protocol == 17 { 6 } else { 16 }
}

fn same_tuple(a: &Tuple, b: &Tuple) -> bool {
    a == b
}

fn ports(tuple: &Tuple) -> Vec<u8> {
    tuple
        .ports
        .iter()
        .flat_map(|port| port.to_be_bytes())
        .collect()
}

/// Returns the part of a tuple that the transport checksum covers.
fn pseudo(tuple: &Tuple) -> Vec<u8> {
    [
        octets(tuple.source),
        octets(tuple.destination),
        ports(tuple),
    ]
    .concat()
}
