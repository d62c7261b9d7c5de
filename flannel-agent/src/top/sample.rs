//! One reading of the pinned maps.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use flannel_common::{
    entry_state::EntryState,
    mode::Mode,
    node::{NodeConfig, heartbeat_is_fresh},
    program::Program,
    reason::Reason,
    stats::Counter,
};
use flannel_datapath::{
    DatapathError, PinRoot, clock,
    maps::{ConfigMap, ModeMap, StatsMap},
    peers::{PinnedPeer, pinned_peers},
};
use ipnet::IpNet;

use crate::observe::flows::{self, FlowRow, FlowWay};

/// The maps at one time.
#[derive(Clone, Debug)]
pub struct TopSample {
    /// When, by the programs' clock, in nanoseconds.
    pub now_ns: u64,
    /// The active mode.
    pub mode: Mode,
    /// Nanoseconds since the agent's last heartbeat; `None` if it never wrote one.
    pub heartbeat_age_ns: Option<u64>,
    /// True if the programs trust the maps: they are valid, and the heartbeat is fresh.
    pub is_current: bool,
    /// The counters that are not zero.
    pub counters: BTreeMap<(Program, Reason), Counter>,
    /// The peers, by subnet.
    pub peers: Vec<PeerPlace>,
    /// The flows that mode `fast` has learned.
    pub flows: Vec<CountedFlow>,
}

/// The part of a flow that is shown: a table holds a hundred thousand of them, and two readings are
/// kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedFlow {
    /// `tcp` or `udp`.
    pub protocol: &'static str,
    /// The sender, as packets come in.
    pub source: SocketAddr,
    /// To whom they are.
    pub destination: SocketAddr,
    /// Interface index of the device by which they come in.
    pub device: u32,
    /// To whom they leave.
    pub out_destination: SocketAddr,
    /// The way by which its packets leave.
    pub way: FlowWay,
    /// Replayed packets.
    pub packets: u64,
    /// `usable`, or the reason why not.
    pub state: &'static str,
}

impl From<FlowRow> for CountedFlow {
    fn from(row: FlowRow) -> Self {
        let FlowRow { protocol, source, destination, device, out_destination, way, packets, state, .. } = row;
        Self { protocol, source, destination, device, out_destination, way, packets, state }
    }
}

/// A peer and the path to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPlace {
    /// Its subnet.
    pub subnet: IpNet,
    /// Its node's address.
    pub vtep: IpAddr,
    /// `direct`, `tunnel` where programs may encapsulate, or `kernel`.
    pub way: &'static str,
}

impl TopSample {
    /// Reads the maps.
    pub fn read(pins: &PinRoot) -> Result<Self, DatapathError> {
        let (config, now_ns) = (ConfigMap::open(pins)?.get()?, clock::now_ns());
        Ok(Self {
            now_ns,
            mode: ModeMap::open(pins)?.get()?.mode(),
            heartbeat_age_ns: now_ns.checked_sub(config.heartbeat_ns).filter(|_| config.heartbeat_ns != 0),
            is_current: is_current(&config, now_ns),
            counters: counters(&StatsMap::open(pins)?)?,
            peers: pinned_peers(pins, &config)?.iter().map(place).collect(),
            flows: flows::read(pins)?.into_iter().map(CountedFlow::from).collect(),
        })
    }
}

fn is_current(config: &NodeConfig, now_ns: u64) -> bool {
    config.word.has(EntryState::VALID) && heartbeat_is_fresh(now_ns, config.heartbeat_ns)
}

fn counters(map: &StatsMap) -> Result<BTreeMap<(Program, Reason), Counter>, DatapathError> {
    let mut counters = BTreeMap::new();
    for program in Program::ALL {
        for reason in Reason::ALL {
            let counter = map.get(program, reason)?;
            if counter.packets != 0 {
                counters.insert((program, reason), counter);
            }
        }
    }
    Ok(counters)
}

fn place(peer: &PinnedPeer) -> PeerPlace {
    PeerPlace { subnet: peer.subnet, vtep: peer.entry.vtep.into(), way: peer.way() }
}
