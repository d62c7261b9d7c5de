//! A frame as a document for programs.

use serde::Serialize;

use crate::top::{Board, board::ReasonRate};

/// The document. The names are an interface; rates are absent (`null`) in the first reading.
#[derive(Debug, Serialize)]
pub(super) struct TopDocument<'a> {
    /// When it was read, in seconds since 1970 UTC.
    time: u64,
    /// The active mode.
    mode: String,
    /// Seconds since the agent's last heartbeat; absent if there was none.
    heartbeat_age: Option<f64>,
    /// True if the programs trust the maps.
    current: bool,
    /// The agent in one line, as its socket answers.
    agent: &'a str,
    /// Its problems.
    problems: &'a [String],
    programs: Vec<ProgramRates>,
    peers: Vec<PeerRates>,
    flows: Vec<FlowRates>,
    drops: Vec<ReasonRates>,
    /// Packets that are left to the kernel, by reason.
    kernel: Vec<ReasonRates>,
}

#[derive(Debug, Serialize)]
struct ProgramRates {
    program: &'static str,
    packets_per_second: Option<f64>,
    bytes_per_second: Option<f64>,
    /// The share of packets that it takes off the kernel's path, of 1.
    fast_share: Option<f64>,
}

#[derive(Debug, Serialize)]
struct PeerRates {
    subnet: String,
    node: String,
    path: &'static str,
    flows: usize,
    to_packets_per_second: Option<f64>,
    from_packets_per_second: Option<f64>,
    packets: u64,
}

#[derive(Debug, Serialize)]
struct FlowRates {
    protocol: &'static str,
    source: String,
    destination: String,
    /// To whom it leaves, where that differs.
    translated: Option<String>,
    way: &'static str,
    packets_per_second: Option<f64>,
    packets: u64,
    state: &'static str,
}

#[derive(Debug, Serialize)]
struct ReasonRates {
    program: &'static str,
    reason: &'static str,
    packets_per_second: Option<f64>,
    packets: u64,
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
            problems: &board.problems,
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
