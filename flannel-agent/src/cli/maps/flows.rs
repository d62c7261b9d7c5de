//! What mode `fast` has learned, of both families, in one table.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use aya::Pod;
use flannel_common::{
    end::{Address, End},
    flow::{Exit, Flow},
    maps::{FLOWS, FLOWS6},
    packet::PROTO_TCP,
    tick::{self, Tick},
};
use serde::Serialize;

use crate::{
    cli::table,
    datapath::{DatapathError, PinRoot, clock, flows::FlowMap, maps::ModeMap},
};

#[derive(Debug, Serialize)]
pub(super) struct FlowRow {
    protocol: &'static str,
    source: String,
    destination: String,
    /// Interface index of the device by which the packets come in.
    device: u32,
    out_source: String,
    out_destination: String,
    out_device: u32,
    way: &'static str,
    packets: u64,
    /// `usable`, or the reason for which a packet would be left to the kernel.
    state: &'static str,
    generation: u32,
}

/// The flows of the pinned tables, the busiest first.
pub(super) fn rows(pins: &PinRoot) -> Result<Vec<FlowRow>, DatapathError> {
    let now = Now { generation: ModeMap::open(pins)?.get()?.generation(), tick: tick::tick(clock::now_ns()) };
    let mut rows = family(pins, FLOWS, now, |[word]: [u32; 1]| Ipv4Addr::from(word.to_ne_bytes()).into())?;
    rows.extend(family(pins, FLOWS6, now, |words: [u32; 4]| {
        let [a, b, c, d] = words.map(|word| u128::from(u32::from_be_bytes(word.to_ne_bytes())));
        Ipv6Addr::from_bits(a << 96 | b << 64 | c << 32 | d).into()
    })?);
    rows.sort_by_key(|row| std::cmp::Reverse(row.packets));
    Ok(rows)
}

/// What flows are judged by.
#[derive(Clone, Copy)]
pub(super) struct Now {
    pub(super) generation: u32,
    pub(super) tick: Tick,
}

/// The rows of one table; none where an older agent pinned no such map.
fn family<A: Address>(
    pins: &PinRoot,
    name: &'static str,
    now: Now,
    address: impl Fn(A) -> IpAddr + Copy,
) -> Result<Vec<FlowRow>, DatapathError>
where
    End<A>: Pod,
    Flow<A>: Pod,
{
    let map = match FlowMap::open(pins, name) {
        Err(error) if error.is_absent() => return Ok(Vec::new()),
        other => other?,
    };
    map.entries().map(|entry| entry.map(|(key, flow)| row(&key, &flow, now, address))).collect()
}

pub(super) fn row<A: Address>(key: &End<A>, flow: &Flow<A>, now: Now, address: impl Fn(A) -> IpAddr + Copy) -> FlowRow {
    let (body, check) = (&flow.body, flow.body.check(key));
    let [source, destination] = ends(key, address);
    let [out_source, out_destination] = ends(&body.out, address);
    FlowRow {
        protocol: if key.protocol == u32::from(PROTO_TCP) { "tcp" } else { "udp" },
        source,
        destination,
        device: key.device,
        out_source,
        out_destination,
        out_device: body.out.device,
        way: match body.way {
            Exit::POD => "pod",
            Exit::DIRECT => "direct",
            _ => "tunnel",
        },
        packets: flow.packets,
        state: match flow.usable(check, now.generation, now.tick) {
            Ok(()) => "usable",
            Err(reason) => reason.name(),
        },
        generation: body.generation,
    }
}

fn ends<A: Address>(end: &End<A>, address: impl Fn(A) -> IpAddr) -> [String; 2] {
    let [source, destination] = end.port_numbers();
    [(end.source, source), (end.destination, destination)]
        .map(|(ip, port)| SocketAddr::new(address(ip), port).to_string())
}

pub(super) fn table(rows: &[FlowRow]) -> String {
    let cells = |row: &FlowRow| {
        let out = |before: &String, after: &String| if before == after { "=".to_owned() } else { after.clone() };
        [
            row.protocol.to_owned(),
            row.source.clone(),
            row.destination.clone(),
            row.device.to_string(),
            out(&row.source, &row.out_source),
            out(&row.destination, &row.out_destination),
            row.way.to_owned(),
            row.out_device.to_string(),
            row.packets.to_string(),
            row.state.to_owned(),
        ]
    };
    table::render(
        ["PROTO", "FROM", "TO", "IN", "LEAVES-FROM", "LEAVES-TO", "WAY", "OUT", "PACKETS", "STATE"],
        &rows.iter().map(cells).collect::<Vec<_>>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_written_as_people_do() {
        let end = End {
            source: [u32::from_ne_bytes([10, 244, 1, 5])],
            destination: [u32::from_ne_bytes([10, 96, 0, 1])],
            ports: u32::from_ne_bytes([0x9c, 0x40, 0, 80]),
            protocol: 6,
            device: 3,
        };
        let address = |[word]: [u32; 1]| Ipv4Addr::from(word.to_ne_bytes()).into();
        assert_eq!(ends(&end, address), ["10.244.1.5:40000", "10.96.0.1:80"]);
    }
}
