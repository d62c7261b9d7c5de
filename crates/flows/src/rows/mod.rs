//! The flow tables of mode `fast` as people read them: each flow with what becomes of its next
//! packet, and why.
//!
//! The answer is the programs' decision, checked in their order: node, flow, reverse flow, peer. It
//! is read from the pins, without an agent and without any write.

#[cfg(test)]
mod properties;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use aya::Pod;
use flannel_common::{
    abi::{
        ecmp::EcmpPath,
        entry_state::EntryState,
        fast::FastConfig,
        maps::{FLOWS, FLOWS6},
        mode::{Mode, ModeWord},
        node::{NodeConfig, heartbeat_allows_replay, heartbeat_is_fresh},
        peer::PeerEntry,
        reason::Reason,
        tick::{self, Tick},
    },
    flow::{Egress, Flow},
    flow::{
        expiry::Expiry,
        flow_key::{Address, FlowKey},
    },
    packet::PROTO_TCP,
};
use flannel_datapath::{
    DatapathError, PinRoot,
    kernel::clock,
    maps::{ConfigMap, ModeMap, PeerMap},
    maps::{
        ecmp_paths::{self, PinnedEcmpPaths},
        flows::{FastMap, FlowMap},
        peers::subnet_index,
    },
};
use flannel_host::family::Family;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

/// The state of a flow whose packets are replayed.
const USABLE: &str = "usable";

/// One of a list of names. An alias, because serde's derive borrows what is written as `&str` from
/// the input.
type KnownName = &'static str;

/// One flow. The names are an interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct FlowRow {
    /// `tcp` or `udp`.
    #[serde(deserialize_with = "transport_name")]
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::TransportName")
    )]
    pub protocol: KnownName,
    /// Address and port of the sender, as packets come in.
    pub source: SocketAddr,
    /// To whom they are.
    pub destination: SocketAddr,
    /// Interface index of the device by which they come in.
    pub device: u32,
    /// The sender, as packets leave.
    pub out_source: SocketAddr,
    /// To whom they are then.
    pub out_destination: SocketAddr,
    /// Interface index of the device by which they leave.
    pub out_device: u32,
    /// The way by which they leave.
    pub way: FlowWay,
    /// Packets that found the flow usable since the kernel last saw it for the first time. Nearly
    /// all of them were replayed.
    pub packets: u64,
    /// Bytes of these packets, from the Ethernet header on, without outer headers.
    pub bytes: u64,
    /// Milliseconds since it was learned for the first time; of the last 52 days.
    pub first_seen_ms: i64,
    /// Milliseconds since the last packet that found it usable, or since it was learned.
    pub last_seen_ms: i64,
    /// Milliseconds since the kernel last saw a packet of it, to within a quarter of the interval;
    /// absent if that is not kept.
    pub age_ms: Option<i64>,
    /// Milliseconds until the kernel is to see one again; negative if that is over, absent for a
    /// closed flow.
    pub expires_in_ms: Option<i64>,
    /// The same for the way back; absent if none was seen.
    pub mirror_expires_in_ms: Option<i64>,
    /// True if it is used only while its way back is known.
    pub needs_mirror: bool,
    /// The largest IP packet that is replayed.
    pub mtu: u16,
    /// TOS or traffic class of its packets as they come in. The DSCP in it belongs to the flow, ECN
    /// does not.
    pub tos: u8,
    /// Their TTL or hop limit.
    pub ttl: u8,
    /// Their IPv6 flow label; 0 for IPv4.
    pub flow_label: u32,
    /// `usable`, or the reason for which a packet would be left to the kernel.
    #[serde(deserialize_with = "state_name")]
    #[cfg_attr(
        any(test, feature = "schema"),
        schemars(with = "flannel_json_schema::types::FlowStateName")
    )]
    pub state: KnownName,
    /// The explanation of `state` for this flow; absent for a usable one.
    pub why: Option<String>,
    /// Generation under which it was learned.
    pub generation: u32,
}

/// The way by which the packets of a flow leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum FlowWay {
    /// Into the tunnel to a peer.
    Tunnel,
    /// To a pod of this node.
    Pod,
    /// By a route to a peer, without a tunnel.
    Direct,
    /// Out of the pod network.
    Outside,
}

impl FlowWay {
    /// The name in every output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tunnel => "tunnel",
            Self::Pod => "pod",
            Self::Direct => "direct",
            Self::Outside => "outside",
        }
    }

    const fn of(egress: Egress) -> Self {
        match egress {
            Egress::POD => Self::Pod,
            Egress::DIRECT => Self::Direct,
            Egress::OUTSIDE => Self::Outside,
            _ => Self::Tunnel,
        }
    }
}

/// The state of the node that the programs check before they look at a flow.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    mode: ModeWord,
    config: NodeConfig,
    settings: FastConfig,
    now_ns: u64,
}

/// The flows of the pinned tables, the busiest first.
pub fn read(pins: &PinRoot) -> Result<Vec<FlowRow>, DatapathError> {
    let mut rows = Vec::new();
    visit(pins, |row| rows.push(row))?;
    rows.sort_by_key(|row| std::cmp::Reverse(row.packets));
    Ok(rows)
}

/// Visits the flows of the pinned tables one by one, without an order.
pub fn visit(pins: &PinRoot, mut visit: impl FnMut(FlowRow)) -> Result<(), DatapathError> {
    let gate = Gate::read(pins)?;
    let v4 = |[word]: [u32; 1]| Ipv4Addr::from(word.to_ne_bytes()).into();
    family(pins, FLOWS, Family::V4, &gate, v4, &mut visit)?;
    let v6 = |words: [u32; 4]| {
        let [a, b, c, d] = words.map(|word| u128::from(u32::from_be_bytes(word.to_ne_bytes())));
        Ipv6Addr::from_bits(a << 96 | b << 64 | c << 32 | d).into()
    };
    family(pins, FLOWS6, Family::V6, &gate, v6, &mut visit)
}

/// Visits the rows of one table; none where an older agent pinned no such map.
fn family<A: Address>(
    pins: &PinRoot,
    name: &'static str,
    family: Family,
    gate: &Gate,
    address: impl Fn(A) -> IpAddr + Copy,
    visit: &mut impl FnMut(FlowRow),
) -> Result<(), DatapathError>
where
    FlowKey<A>: Pod,
    Flow<A>: Pod,
{
    let map = match FlowMap::open(pins, name) {
        Err(error) if error.is_absent() => return Ok(()),
        other => other?,
    };
    let (peers, ecmp_paths) = (PeerMap::open(pins, family)?, PinnedEcmpPaths::read(pins)?);
    let path_of = |index| {
        let ecmp_paths = ecmp_paths
            .of(family, index)
            .map(|(_, ecmp_path)| *ecmp_path)
            .collect();
        Some(PeerPath {
            entry: peers.get(index).ok()?,
            ecmp_paths,
        })
    };
    let mut paths: BTreeMap<u32, Option<PeerPath>> = BTreeMap::new();
    for entry in map.entries() {
        let (key, flow) = entry?;
        let index = gate.subnet_of(address(flow.action.out.destination));
        let peer = index.and_then(|index| {
            paths
                .entry(index)
                .or_insert_with(|| path_of(index))
                .as_ref()
        });
        visit(FlowRow::new(&key, &flow, peer, gate, address));
    }
    Ok(())
}

impl Gate {
    fn read(pins: &PinRoot) -> Result<Self, DatapathError> {
        let settings = match FastMap::open(pins) {
            Err(error) if error.is_absent() => FastConfig::default(),
            other => other?.get()?,
        };
        let (mode, config) = (ModeMap::open(pins)?.get()?, ConfigMap::open(pins)?.get()?);
        Ok(Self {
            mode,
            config,
            settings,
            now_ns: clock::now_ns(),
        })
    }

    /// Checks that flows are used at all. The error is the reason why not, with its explanation.
    fn closed(&self) -> Result<(), (Reason, String)> {
        if self.mode.mode() != Mode::Fast {
            return Err((
                Reason::ModeKernel,
                format!("mode {} is in force", self.mode.mode()),
            ));
        }
        if !self.config.word.has(EntryState::VALID) {
            return Err((
                Reason::NotConfigured,
                "the node's own data are not valid".to_owned(),
            ));
        }
        if !heartbeat_is_fresh(self.now_ns, self.config.heartbeat_ns) {
            return Err((
                Reason::AgentGone,
                "no beat of the agent for a minute".to_owned(),
            ));
        }
        if !heartbeat_allows_replay(self.now_ns, self.config.heartbeat_ns) {
            return Err((Reason::AgentLate, "no agent heartbeat for 5 s".to_owned()));
        }
        Ok(())
    }

    fn subnet_of(&self, address: IpAddr) -> Option<u32> {
        subnet_index(&self.config, address)
    }

    const fn tick(&self) -> Tick {
        tick::tick(self.now_ns)
    }
}

impl FlowRow {
    fn new<A: Address>(
        key: &FlowKey<A>,
        flow: &Flow<A>,
        peer: Option<&PeerPath>,
        gate: &Gate,
        address: impl Fn(A) -> IpAddr,
    ) -> Self {
        let (action, check, now) = (&flow.action, flow.action.check(key), gate.tick());
        let verdict = gate
            .closed()
            .and_then(|()| flow_verdict(key, flow, gate))
            .and_then(|()| match action.egress {
                Egress::TUNNEL => peer_verdict(peer, gate.now_ns),
                _ => Ok(()),
            });
        let expires_in_ms = left(flow.seen, check, now);
        let [source, destination] = ends(key, &address);
        let [out_source, out_destination] = ends(&action.out, &address);
        Self {
            protocol: if key.protocol == u32::from(PROTO_TCP) {
                "tcp"
            } else {
                "udp"
            },
            source,
            destination,
            device: key.device,
            out_source,
            out_destination,
            out_device: action.out.device,
            way: FlowWay::of(action.egress),
            packets: flow.used(),
            bytes: flow.bytes,
            first_seen_ms: since(flow.first, now),
            last_seen_ms: since(flow.last, now),
            age_ms: expires_in_ms
                .map(|left| (milliseconds(gate.settings.interval.cast_signed()) - left).max(0)),
            expires_in_ms,
            mirror_expires_in_ms: left(flow.mirror, check, now),
            needs_mirror: action.needs_mirror != 0,
            mtu: action.mtu,
            tos: action.tos,
            ttl: action.ttl,
            flow_label: u32::from_be_bytes(action.flow_label.to_ne_bytes()),
            state: verdict
                .as_ref()
                .map_or_else(|(reason, _)| reason.name(), |()| USABLE),
            why: verdict.err().map(|(_, why)| why),
            generation: action.generation,
        }
    }
}

/// Reads the protocol of a row.
fn transport_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static str, D::Error> {
    let name = String::deserialize(deserializer)?;
    let known = ["tcp", "udp"].into_iter().find(|known| *known == name);
    known.ok_or_else(|| D::Error::unknown_variant(&name, &["tcp", "udp"]))
}

/// Reads the state of a row. One that only a newer agent has is `unknown`.
fn state_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static str, D::Error> {
    let name = String::deserialize(deserializer)?;
    let mut known = [USABLE].into_iter().chain(Reason::ALL.map(Reason::name));
    Ok(known.find(|known| *known == name).unwrap_or("unknown"))
}

/// Checks that the flow itself is usable. The error is the reason why not, with its explanation.
fn flow_verdict<A: Address>(
    key: &FlowKey<A>,
    flow: &Flow<A>,
    gate: &Gate,
) -> Result<(), (Reason, String)> {
    let (check, generation, now) = (flow.action.check(key), gate.mode.generation(), gate.tick());
    flow.usable(check, generation, now, gate.config.confirmed)
        .map_err(|reason| {
            let expired = |what: &str, stamp| match left(stamp, check, now) {
                Some(left) => format!("what was seen of {what} expired {} ago", seconds(-left)),
                None => format!("what was seen of {what} belongs to an earlier entry with its key"),
            };
            let why = match reason {
            Reason::FlowClosed => {
                let moment = flow.seen.moment().wrapping_sub(now).cast_signed();
                format!("its connection was closed; not learned for another \
                    {}", seconds(milliseconds(moment)))
            }
            Reason::Unconfirmed => {
                "learned a moment ago; used once the agent has made sure that no program queues \
                 packets".to_owned()
            }
            Reason::ReverseMissing if flow.mirror == Expiry::NONE => "its way back was not \
                seen".to_owned(),
            Reason::ReverseMissing => expired("its way back", flow.mirror),
            _ if !gate.settings.learns(key.protocol) => "flows of its protocol are not learned \
                now".to_owned(),
            _ if flow.action.generation != generation => {
                format!("learned under generation {}, and {generation} is in \
                    force", flow.action.generation)
            }
            _ if flow.seen == Expiry::NONE => "forgotten: a new connection began at its \
                ends".to_owned(),
            _ if flow.seen == Expiry::closed(check, flow.seen.moment()) => {
                "its connection was closed, and nothing was seen of it since".to_owned()
            }
            _ => expired("it", flow.seen),
        };
            (reason, why)
        })
}

/// A peer as its map has it, and its ECMP paths.
#[derive(Clone, Debug)]
struct PeerPath {
    entry: PeerEntry,
    ecmp_paths: Vec<EcmpPath>,
}

impl PeerPath {
    /// Returns true if a recent observation validates its path, or that of one of its ECMP paths.
    /// Only the kernel knows which of them a flow takes.
    fn is_validated(&self, now_ns: u64) -> bool {
        let entry = &self.entry;
        let by_path = |ecmp_path: &EcmpPath| {
            ecmp_paths::seen(entry, ecmp_path, now_ns).is_validated(entry.word, now_ns)
        };
        if entry.word.has(EntryState::ECMP) {
            self.ecmp_paths.iter().any(by_path)
        } else {
            entry.path_is_validated(now_ns)
        }
    }
}

/// Checks that packets to the peer may be encapsulated now. The error is the reason why not, with
/// its explanation.
fn peer_verdict(peer: Option<&PeerPath>, now_ns: u64) -> Result<(), (Reason, String)> {
    let said = |reason: Reason, why: &str| Err((reason, why.to_owned()));
    match peer.filter(|peer| peer.entry.word.has(EntryState::VALID)) {
        None => said(
            Reason::NoPeer,
            "its destination lies in no peer's subnet any more",
        ),
        Some(peer) if !peer.entry.word.has(EntryState::PLAIN) => {
            said(Reason::PeerNotPlain, "the path to the peer is not plain")
        }
        Some(peer) if !peer.is_validated(now_ns) => said(
            Reason::PathUnseen,
            "the path to the peer is not validated by a recent packet of the kernel",
        ),
        Some(_) => Ok(()),
    }
}

/// Milliseconds until a stamp's moment; none where it is not this flow's, or a tombstone.
fn left(stamp: Expiry, check: u32, now: Tick) -> Option<i64> {
    let is_its = stamp != Expiry::NONE && stamp == Expiry::until(check, stamp.moment());
    is_its.then(|| milliseconds(stamp.moment().wrapping_sub(now).cast_signed()))
}

/// Milliseconds since a tick. The programs may have read the clock a moment later.
fn since(tick: Tick, now: Tick) -> i64 {
    let passed = now.wrapping_sub(tick);
    if tick::is_ahead(tick, now) {
        0
    } else {
        (i64::from(passed) << 20) / 1_000_000
    }
}

/// A number of ticks in milliseconds.
fn milliseconds(ticks: i32) -> i64 {
    (i64::from(ticks) << 20) / 1_000_000
}

/// Milliseconds as people read them.
pub fn seconds(milliseconds: i64) -> String {
    let tenths = (milliseconds + 50) / 100;
    format!("{}.{} s", tenths / 10, (tenths % 10).abs())
}

fn ends<A: Address>(end: &FlowKey<A>, address: impl Fn(A) -> IpAddr) -> [SocketAddr; 2] {
    let [source, destination] = end.port_numbers();
    [(end.source, source), (end.destination, destination)]
        .map(|(ip, port)| SocketAddr::new(address(ip), port))
}

#[cfg(test)]
mod tests;
