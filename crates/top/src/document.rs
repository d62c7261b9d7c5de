//! A frame as a document for programs: written by the command on one node, and read by the one that
//! follows several nodes. The names are an interface; rates are `null` in the first reading.

use flannel_common::abi::stats::Counter;
use flannel_document::Document;
use flannel_flows::{history::RateHistory, rows::FlowWay};
use serde::{Deserialize, Serialize};

use super::{
    Board,
    board::{FlowRate, HookRate, PeerRate, PodRate, ReasonRate, TrafficRate},
};

/// The rates of a node between two readings of its maps. A rate is absent where it is not known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct TopDocument {
    /// When it was read, in seconds since 1970 UTC.
    pub time: u64,
    /// The active mode.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::ModeName")
    )]
    pub mode: String,
    /// Seconds since the agent's last heartbeat; absent if there was none.
    pub heartbeat_age: Option<f64>,
    /// True if the programs trust the maps.
    pub current: bool,
    /// The agent in one line, as its socket answers.
    pub agent: String,
    /// True if the agent is ready; absent if no agent answers.
    #[serde(default)]
    pub ready: Option<bool>,
    /// The problems of the agent, in words.
    pub problems: Vec<String>,
    /// The kind of each of these problems, in the same order.
    #[serde(default)]
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "Vec<flannel_json_schema::types::ProblemCode>")
    )]
    pub codes: Vec<String>,
    /// The programs that take packets off the kernel's path.
    pub programs: Vec<ProgramRates>,
    /// The peers.
    pub peers: Vec<PeerRates>,
    /// The pods that mode `fast` knows.
    #[serde(default)]
    pub pods: Vec<PodRates>,
    /// The flows that mode `fast` has learned.
    pub flows: Vec<FlowRates>,
    /// The rates of the programs together in the last ten minutes, which the agent keeps; absent if
    /// it does not answer.
    #[serde(default)]
    pub history: Option<RateHistory>,
    /// Packets that are dropped, by reason.
    pub drops: Vec<ReasonRates>,
    /// Packets that are left to the kernel, by reason.
    pub kernel: Vec<ReasonRates>,
}

/// The packets that one program sees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ProgramRates {
    /// The program.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::ProgramName")
    )]
    pub program: String,
    /// Packets that it sees, a second.
    pub packets_per_second: Option<f64>,
    /// Their bytes, a second.
    pub bytes_per_second: Option<f64>,
    /// The share of packets that it takes off the kernel's path, from 0 to 1; absent without
    /// packets.
    pub fast_share: Option<f64>,
}

/// The packets to and from one peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PeerRates {
    /// The peer's subnet.
    pub subnet: String,
    /// The address of the peer's node.
    pub node: String,
    /// The path to the peer: `direct`, `tunnel` where programs may encapsulate, or `kernel`.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::PathName")
    )]
    pub path: String,
    /// The number of its flows.
    pub flows: usize,
    /// Replayed packets to the peer, a second; absent in modes that know no flows.
    pub to_packets_per_second: Option<f64>,
    /// Replayed packets from the peer, a second, likewise.
    pub from_packets_per_second: Option<f64>,
    /// Replayed packets so far, of the flows that are known now.
    pub packets: u64,
    /// Packets to the peer on all paths; absent where the programs do not count them.
    #[serde(default)]
    pub to: Option<TrafficRates>,
    /// Packets from the peer, likewise.
    #[serde(default)]
    pub from: Option<TrafficRates>,
}

/// The packets of one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct TrafficRates {
    /// Packets a second.
    pub packets_per_second: Option<f64>,
    /// Bits a second, from the Ethernet header on, without outer headers.
    pub bits_per_second: Option<f64>,
    /// Packets so far.
    pub packets: u64,
    /// Bytes so far.
    pub bytes: u64,
}

/// The packets to and from one pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PodRates {
    /// The name of the host side of the pod's veth.
    pub veth: String,
    /// Packets to the pod.
    pub to: TrafficRates,
    /// Packets from the pod.
    pub from: TrafficRates,
}

/// The replayed packets of one flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct FlowRates {
    /// `tcp` or `udp`.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::TransportName")
    )]
    pub protocol: String,
    /// Address and port of the sender, as packets come in.
    pub source: String,
    /// Address and port of the destination, as packets come in.
    pub destination: String,
    /// Address and port of the destination, as packets leave; absent where they are the same.
    pub translated: Option<String>,
    /// The way by which packets leave.
    pub way: FlowWay,
    /// Replayed packets a second.
    pub packets_per_second: Option<f64>,
    /// Replayed packets so far.
    pub packets: u64,
    /// Replayed bits a second, from the Ethernet header on, without outer headers.
    #[serde(default)]
    pub bits_per_second: Option<f64>,
    /// Replayed bytes so far.
    #[serde(default)]
    pub bytes: u64,
    /// `usable`, or the reason for which a packet would be left to the kernel.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::FlowStateName")
    )]
    pub state: String,
}

/// The packets of one program and reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ReasonRates {
    /// The program.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::ProgramName")
    )]
    pub program: String,
    /// The reason of its verdict.
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::ReasonName")
    )]
    pub reason: String,
    /// Packets a second.
    pub packets_per_second: Option<f64>,
    /// Packets so far.
    pub packets: u64,
}

impl Document for TopDocument {
    const NAME: &'static str = "top";
}

impl TrafficRates {
    const fn new(rate: TrafficRate, so_far: Counter) -> Self {
        Self {
            packets_per_second: rate.packets,
            bits_per_second: rate.bits,
            packets: so_far.packets,
            bytes: so_far.bytes,
        }
    }
}

impl TopDocument {
    /// The document of a board that was read at this time. `rows` limits peers, pods and flows.
    pub fn new(board: &Board, time: u64, rows: Option<usize>) -> Self {
        let rows = rows.unwrap_or(usize::MAX);
        Self {
            time,
            mode: board.mode.to_string(),
            heartbeat_age: board.heartbeat_age,
            current: board.is_current,
            agent: board.agent.clone(),
            ready: board.is_ready,
            problems: board.problems.clone(),
            codes: board
                .codes
                .iter()
                .map(|code| code.name().to_owned())
                .collect(),
            programs: board.hooks.iter().map(ProgramRates::from).collect(),
            peers: board.peers.iter().take(rows).map(PeerRates::from).collect(),
            pods: board.pods.iter().take(rows).map(PodRates::from).collect(),
            flows: board.flows.iter().take(rows).map(FlowRates::from).collect(),
            history: board.history.as_ref().map(|history| history.node.clone()),
            drops: reasons(&board.drops),
            kernel: reasons(&board.left),
        }
    }
}

impl From<&HookRate> for ProgramRates {
    fn from(row: &HookRate) -> Self {
        Self {
            program: row.program.name().to_owned(),
            packets_per_second: row.packets,
            bytes_per_second: row.bytes,
            fast_share: row.taken,
        }
    }
}

impl From<&PeerRate> for PeerRates {
    fn from(row: &PeerRate) -> Self {
        let traffic = row.peer.traffic;
        Self {
            subnet: row.peer.subnet.to_string(),
            node: row.peer.vtep.to_string(),
            path: row.peer.way.to_owned(),
            flows: row.flows,
            to_packets_per_second: row.replayed_to,
            from_packets_per_second: row.replayed_from,
            packets: row.total,
            to: traffic.map(|traffic| TrafficRates::new(row.to, traffic.sent)),
            from: traffic.map(|traffic| TrafficRates::new(row.from, traffic.received)),
        }
    }
}

impl From<&PodRate> for PodRates {
    fn from(row: &PodRate) -> Self {
        let traffic = row.pod.traffic;
        Self {
            veth: row.pod.veth.clone(),
            to: TrafficRates::new(row.to, traffic.to),
            from: TrafficRates::new(row.from, traffic.from),
        }
    }
}

impl From<&FlowRate> for FlowRates {
    fn from(row: &FlowRate) -> Self {
        Self {
            protocol: row.protocol.to_owned(),
            source: row.source.to_string(),
            destination: row.destination.to_string(),
            translated: row.translated.map(|end| end.to_string()),
            way: row.way,
            packets_per_second: row.packets,
            packets: row.total,
            bits_per_second: row.bits,
            bytes: row.total_bytes,
            state: row.state.to_owned(),
        }
    }
}

fn reasons(rows: &[ReasonRate]) -> Vec<ReasonRates> {
    let rates = |row: &ReasonRate| ReasonRates {
        program: row.program.name().to_owned(),
        reason: row.reason.name().to_owned(),
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
        flannel_json_schema::check::<TopDocument>(TopDocument::NAME, TopDocument::SCHEMA_VERSION);
    }
}
