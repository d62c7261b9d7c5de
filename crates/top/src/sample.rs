//! One reading of the pinned maps.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use flannel_common::abi::{
    entry_state::EntryState,
    mode::Mode,
    node::{NodeConfig, heartbeat_is_fresh},
    program::Program,
    reason::Reason,
    stats::Counter,
    traffic::PeerTraffic,
};
use flannel_datapath::{
    DatapathError, PinRoot,
    kernel::clock,
    maps::{ConfigMap, ModeMap, StatsMap},
    maps::{
        flows::PodMap,
        peers::{PinnedPeer, pinned_peers},
        traffic::PeerCounters,
    },
};
use flannel_flows::{
    monitor::DeviceNames,
    pod_traffic::{AllLinkCounters, PodCounters, PodTraffic},
    rows::{self, FlowRow, FlowWay},
};
use ipnet::IpNet;

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
    /// The pods that mode `fast` knows.
    pub pods: Vec<CountedPod>,
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
    /// Their bytes.
    pub bytes: u64,
    /// `usable`, or the reason why not.
    pub state: &'static str,
}

impl From<FlowRow> for CountedFlow {
    fn from(row: FlowRow) -> Self {
        let FlowRow {
            protocol,
            source,
            destination,
            device,
            out_destination,
            way,
            packets,
            bytes,
            state,
            ..
        } = row;
        Self {
            protocol,
            source,
            destination,
            device,
            out_destination,
            way,
            packets,
            bytes,
            state,
        }
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
    /// Its packets so far; `None` where the programs do not count them.
    pub traffic: Option<PeerTraffic>,
}

/// A pod and its packets so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedPod {
    /// The name of the host side of its veth.
    pub veth: String,
    /// The traffic since the veth was made.
    pub traffic: PodTraffic,
}

impl TopSample {
    /// Reads the maps. `links` are the counters of all links, if these are known.
    pub fn read(pins: &PinRoot, links: Option<&AllLinkCounters>) -> Result<Self, DatapathError> {
        let flows = rows::read(pins)?
            .into_iter()
            .map(CountedFlow::from)
            .collect();
        Ok(Self {
            flows,
            ..Self::read_counters(pins, links, true)?
        })
    }

    /// The same without flows, of which there may be a hundred thousand, and where `has_peers` is
    /// false without peers.
    pub fn read_counters(
        pins: &PinRoot,
        links: Option<&AllLinkCounters>,
        has_peers: bool,
    ) -> Result<Self, DatapathError> {
        let (config, now_ns) = (ConfigMap::open(pins)?.get()?, clock::now_ns());
        let mode = ModeMap::open(pins)?.get()?.mode();
        Ok(Self {
            now_ns,
            mode,
            heartbeat_age_ns: now_ns
                .checked_sub(config.heartbeat_ns)
                .filter(|_| config.heartbeat_ns != 0),
            is_current: is_current(&config, now_ns),
            counters: counters(&StatsMap::open(pins)?)?,
            peers: if has_peers {
                peers(pins, &config, mode, now_ns)?
            } else {
                Vec::new()
            },
            pods: pods(pins, links)?,
            flows: Vec::new(),
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

fn peers(
    pins: &PinRoot,
    config: &NodeConfig,
    mode: Mode,
    now_ns: u64,
) -> Result<Vec<PeerPlace>, DatapathError> {
    let counters = PeerCounters::open(pins)?;
    let has_counters = is_current(config, now_ns);
    let place = |peer: &PinnedPeer| {
        let traffic = if has_counters && peer.is_counted(mode) {
            counters.of(peer)?
        } else {
            None
        };
        Ok(PeerPlace {
            subnet: peer.subnet,
            vtep: peer.entry.vtep.into(),
            way: peer.way(),
            traffic,
        })
    };
    pinned_peers(pins, config)?.iter().map(place).collect()
}

/// The pods whose veths are links of this namespace.
fn pods(pins: &PinRoot, links: Option<&AllLinkCounters>) -> Result<Vec<CountedPod>, DatapathError> {
    let (counters, mut devices) = (PodCounters::open(pins, links)?, DeviceNames::default());
    let mut pods = Vec::new();
    for entry in PodMap::open(pins)?.entries() {
        let (ifindex, pod) = entry?;
        if let (Some(traffic), Some(veth)) = (counters.of(ifindex, &pod)?, devices.get(ifindex)) {
            pods.push(CountedPod {
                veth: veth.to_owned(),
                traffic,
            });
        }
    }
    pods.sort_by(|a, b| a.veth.cmp(&b.veth));
    Ok(pods)
}
