//! A frame as a document for programs.

use flannel_status::ProblemCode;
use serde::Serialize;

use crate::{
    document::Document,
    observe::flows::FlowWay,
    top::{Board, board::ReasonRate},
};

/// The rates of a node between two readings of its maps. A rate is absent where it is not known.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct TopDocument<'a> {
    /// When it was read, in seconds since 1970 UTC.
    time: u64,
    /// The active mode.
    #[cfg_attr(test, schemars(with = "crate::schema::ModeName"))]
    mode: String,
    /// Seconds since the agent's last heartbeat; absent if there was none.
    heartbeat_age: Option<f64>,
    /// True if the programs trust the maps.
    current: bool,
    /// The agent in one line, as its socket answers.
    agent: &'a str,
    /// True if the agent is ready; absent if no agent answers.
    ready: Option<bool>,
    /// The problems of the agent, in words.
    problems: &'a [String],
    /// The kind of each of these problems, in the same order.
    #[cfg_attr(test, schemars(with = "Vec<crate::schema::ProblemCode>"))]
    codes: &'a [ProblemCode],
    /// The programs that take packets off the kernel's path.
    programs: Vec<ProgramRates>,
    /// The peers.
    peers: Vec<PeerRates>,
    /// The flows that mode `fast` has learned.
    flows: Vec<FlowRates>,
    /// Packets that are dropped, by reason.
    drops: Vec<ReasonRates>,
    /// Packets that are left to the kernel, by reason.
    kernel: Vec<ReasonRates>,
}

/// The packets that a program sees.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ProgramRates {
    /// The program.
    #[cfg_attr(test, schemars(with = "crate::schema::ProgramName"))]
    program: &'static str,
    /// Packets that it sees, a second.
    packets_per_second: Option<f64>,
    /// Their bytes, a second.
    bytes_per_second: Option<f64>,
    /// The share of packets that it takes off the kernel's path, from 0 to 1; absent without
    /// packets.
    fast_share: Option<f64>,
}

/// The replayed packets to and from a peer.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PeerRates {
    /// The peer's subnet.
    subnet: String,
    /// The address of the peer's node.
    node: String,
    /// The path to the peer: `direct`, `tunnel` where programs may encapsulate, or `kernel`.
    #[cfg_attr(test, schemars(with = "crate::schema::PathName"))]
    path: &'static str,
    /// The number of its flows.
    flows: usize,
    /// Replayed packets to the peer, a second.
    to_packets_per_second: Option<f64>,
    /// Replayed packets from the peer, a second.
    from_packets_per_second: Option<f64>,
    /// Replayed packets so far, of the flows that are known now.
    packets: u64,
}

/// The replayed packets of a flow.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FlowRates {
    /// `tcp` or `udp`.
    #[cfg_attr(test, schemars(with = "crate::schema::TransportName"))]
    protocol: &'static str,
    /// Address and port of the sender, as packets come in.
    source: String,
    /// Address and port of the destination, as packets come in.
    destination: String,
    /// Address and port of the destination, as packets leave; absent where they are the same.
    translated: Option<String>,
    /// The way by which packets leave.
    way: FlowWay,
    /// Replayed packets a second.
    packets_per_second: Option<f64>,
    /// Replayed packets so far.
    packets: u64,
    /// `usable`, or the reason for which a packet would be left to the kernel.
    #[cfg_attr(test, schemars(with = "crate::schema::FlowStateName"))]
    state: &'static str,
}

/// The packets of one program and reason.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ReasonRates {
    /// The program.
    #[cfg_attr(test, schemars(with = "crate::schema::ProgramName"))]
    program: &'static str,
    /// The reason of its verdict.
    #[cfg_attr(test, schemars(with = "crate::schema::ReasonName"))]
    reason: &'static str,
    /// Packets a second.
    packets_per_second: Option<f64>,
    /// Packets so far.
    packets: u64,
}

impl Document for TopDocument<'_> {
    const NAME: &'static str = "top";
}

impl<'a> TopDocument<'a> {
    /// The document of a board that was read at this time.
    pub(super) fn new(board: &'a Board, time: u64) -> Self {
        let programs = board.hooks.iter().map(|row| ProgramRates {
            program: row.program.name(),
            packets_per_second: row.packets,
            bytes_per_second: row.bytes,
            fast_share: row.taken,
        });
        let peers = board.peers.iter().map(|row| PeerRates {
            subnet: row.peer.subnet.to_string(),
            node: row.peer.vtep.to_string(),
            path: row.peer.way,
            flows: row.flows,
            to_packets_per_second: row.to,
            from_packets_per_second: row.from,
            packets: row.total,
        });
        let flows = board.flows.iter().map(|row| FlowRates {
            protocol: row.protocol,
            source: row.source.to_string(),
            destination: row.destination.to_string(),
            translated: row.translated.map(|end| end.to_string()),
            way: row.way,
            packets_per_second: row.packets,
            packets: row.total,
            state: row.state,
        });
        Self {
            time,
            mode: board.mode.to_string(),
            heartbeat_age: board.heartbeat_age,
            current: board.is_current,
            agent: &board.agent,
            ready: board.is_ready,
            problems: &board.problems,
            codes: &board.codes,
            programs: programs.collect(),
            peers: peers.collect(),
            flows: flows.collect(),
            drops: reasons(&board.drops),
            kernel: reasons(&board.left),
        }
    }
}

fn reasons(rows: &[ReasonRate]) -> Vec<ReasonRates> {
    let rates = |row: &ReasonRate| ReasonRates {
        program: row.program.name(),
        reason: row.reason.name(),
        packets_per_second: row.packets,
        packets: row.total,
    };
    rows.iter().map(rates).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_that_of_the_types() {
        flannel_json_schema::check::<TopDocument<'_>>(TopDocument::NAME, TopDocument::SCHEMA_VERSION);
    }
}
