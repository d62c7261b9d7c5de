//! Rates: the difference between two samples. Pure.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::{IpAddr, SocketAddr},
};

use clap::ValueEnum;
use flannel_common::abi::{
    mode::Mode,
    program::Program,
    reason::{Reason, Verdict},
    stats::Counter,
    traffic::PeerTraffic,
};
use flannel_flows::{history::TrafficHistory, rows::FlowWay};
use flannel_status::ProblemCode;
use ipnet::IpNet;

use super::sample::{CountedFlow, CountedPod, PeerPlace, TopSample};

/// Units a second; `None` before there is a second sample.
pub type Rate = Option<f64>;

/// The programs that take packets off the kernel's path.
const TAKING: [Program; 3] = [Program::FromPod, Program::ToTunnel, Program::FromUnderlay];

/// The line of a node on which no agent answers.
pub const NO_AGENT: &str = "no agent answers";

/// The order of peers and flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SortKey {
    /// The busiest first
    #[default]
    Rate,
    /// The most packets so far first
    Packets,
    /// By address
    Address,
}

/// Everything that is drawn.
#[derive(Clone, Debug)]
pub struct Board {
    /// The active mode.
    pub mode: Mode,
    /// Seconds since the agent's last heartbeat.
    pub heartbeat_age: Option<f64>,
    /// True if the programs trust the maps.
    pub is_current: bool,
    /// The programs that take packets off the kernel's path.
    pub hooks: Vec<HookRate>,
    /// The peers.
    pub peers: Vec<PeerRate>,
    /// The pods that mode `fast` knows.
    pub pods: Vec<PodRate>,
    /// The flows that mode `fast` has learned.
    pub flows: Vec<FlowRate>,
    /// Reasons for which packets are dropped.
    pub drops: Vec<ReasonRate>,
    /// Reasons for which packets are left to the kernel.
    pub left: Vec<ReasonRate>,
    /// The agent in one line, as its socket answers.
    pub agent: String,
    /// True if the agent is ready; `None` if no agent answers.
    pub is_ready: Option<bool>,
    /// Its problems, in words.
    pub problems: Vec<String>,
    /// The kind of each of these problems.
    pub codes: Vec<ProblemCode>,
    /// The rates of the last ten minutes; `None` if no agent has them.
    pub history: Option<TrafficHistory>,
    /// The order of peers, pods and flows.
    pub sort: SortKey,
    /// True if pods are drawn in place of peers.
    pub shows_pods: bool,
}

/// The packets that one program sees.
#[derive(Clone, Debug, PartialEq)]
pub struct HookRate {
    /// The program.
    pub program: Program,
    /// Packets a second.
    pub packets: Rate,
    /// Bytes a second.
    pub bytes: Rate,
    /// The share of packets it takes off the kernel's path, of 1; `None` without packets.
    pub taken: Option<f64>,
}

/// Rates of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrafficRate {
    /// Packets a second.
    pub packets: Rate,
    /// Bits a second.
    pub bits: Rate,
}

/// The packets to and from one peer.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerRate {
    /// The peer.
    pub peer: PeerPlace,
    /// To it, on all paths; none where the programs do not count them.
    pub to: TrafficRate,
    /// From it, likewise.
    pub from: TrafficRate,
    /// Replayed packets a second to it.
    pub replayed_to: Rate,
    /// Replayed packets a second from it.
    pub replayed_from: Rate,
    /// Its flows.
    pub flows: usize,
    /// Replayed packets so far, of the flows that are known now.
    pub total: u64,
}

/// The packets to and from one pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodRate {
    /// The pod.
    pub pod: CountedPod,
    /// To it.
    pub to: TrafficRate,
    /// From it.
    pub from: TrafficRate,
}

/// The replayed packets of one flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRate {
    /// `tcp` or `udp`.
    pub protocol: &'static str,
    /// The sender, as packets come in.
    pub source: SocketAddr,
    /// To whom they are.
    pub destination: SocketAddr,
    /// To whom they leave, where that differs.
    pub translated: Option<SocketAddr>,
    /// The way by which its packets leave.
    pub way: FlowWay,
    /// Packets a second.
    pub packets: Rate,
    /// Bits a second.
    pub bits: Rate,
    /// Packets so far.
    pub total: u64,
    /// Their bytes.
    pub total_bytes: u64,
    /// `usable`, or the reason why not.
    pub state: &'static str,
}

/// The packets of one program and reason.
#[derive(Clone, Debug, PartialEq)]
pub struct ReasonRate {
    /// The program.
    pub program: Program,
    /// The reason.
    pub reason: Reason,
    /// Packets a second.
    pub packets: Rate,
    /// Packets so far.
    pub total: u64,
}

impl SortKey {
    /// The order after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        match self {
            Self::Rate => Self::Packets,
            Self::Packets => Self::Address,
            Self::Address => Self::Rate,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Packets => "packets",
            Self::Address => "address",
        }
    }
}

impl Board {
    /// Compares two samples. Without an earlier one there are totals and no rates.
    pub fn new(before: Option<&TopSample>, now: &TopSample, sort: SortKey) -> Self {
        let span = Span::between(before, now);
        let flows = flow_rates(before, now, span);
        let peers = peer_rates(before, now, &flows, span);
        let reasons = reason_rates(before, now, span);
        let (drops, left) = reasons
            .into_iter()
            .partition(|row| row.reason.verdict() == Verdict::Drop);
        let mut board = Self {
            mode: now.mode,
            heartbeat_age: now.heartbeat_age_ns.map(seconds),
            is_current: now.is_current,
            hooks: TAKING
                .map(|program| hook_rate(program, before, now, span))
                .to_vec(),
            peers,
            pods: pod_rates(before, now, span),
            flows,
            drops,
            left,
            agent: String::new(),
            is_ready: None,
            problems: Vec::new(),
            codes: Vec::new(),
            history: None,
            sort,
            shows_pods: false,
        };
        board.order(sort);
        board
    }

    /// Keeps the peers, pods and flows with this text in an address, a name, a path, a protocol or
    /// a state.
    pub fn retain(&mut self, text: &str) {
        if !text.is_empty() {
            self.pods.retain(|row| row.pod.veth.contains(text));
            self.peers
                .retain(|row| row.texts().iter().any(|cell| cell.contains(text)));
            self.flows
                .retain(|row| row.texts().iter().any(|cell| cell.contains(text)));
        }
    }

    /// Puts peers, pods and flows in another order.
    pub fn order(&mut self, sort: SortKey) {
        self.sort = sort;
        let busy = |rate: Rate| Reverse(rate.unwrap_or_default().to_bits());
        // Bits of floats that are not negative are in the order of the floats.
        match sort {
            SortKey::Rate => {
                self.peers
                    .sort_by_key(|row| (busy(row.busy()), row.peer.subnet));
                self.pods
                    .sort_by_key(|row| (busy(row.busy()), row.pod.veth.clone()));
                self.flows
                    .sort_by_key(|row| (busy(row.packets), Reverse(row.total), row.key()));
            }
            SortKey::Packets => {
                self.peers
                    .sort_by_key(|row| (Reverse(row.so_far()), row.peer.subnet));
                self.pods
                    .sort_by_key(|row| (Reverse(row.so_far()), row.pod.veth.clone()));
                self.flows
                    .sort_by_key(|row| (Reverse(row.total), row.key()));
            }
            SortKey::Address => {
                self.peers.sort_by_key(|row| row.peer.subnet);
                self.pods.sort_by(|a, b| a.pod.veth.cmp(&b.pod.veth));
                self.flows.sort_by_key(FlowRate::key);
            }
        }
    }
}

impl PeerRate {
    fn texts(&self) -> [String; 3] {
        [
            self.peer.subnet.to_string(),
            self.peer.vtep.to_string(),
            self.peer.way.to_owned(),
        ]
    }

    /// Packets a second in both directions; the replayed ones where others are not counted.
    fn busy(&self) -> Rate {
        sum(self.to.packets, self.from.packets)
            .or_else(|| sum(self.replayed_to, self.replayed_from))
    }

    /// Packets so far, likewise.
    fn so_far(&self) -> u64 {
        self.peer.traffic.map_or(self.total, |traffic| {
            traffic
                .sent
                .packets
                .saturating_add(traffic.received.packets)
        })
    }
}

impl PodRate {
    /// Packets a second in both directions.
    fn busy(&self) -> Rate {
        sum(self.to.packets, self.from.packets)
    }

    /// Packets so far.
    const fn so_far(&self) -> u64 {
        self.pod
            .traffic
            .to
            .packets
            .saturating_add(self.pod.traffic.from.packets)
    }
}

fn sum(one: Rate, other: Rate) -> Rate {
    Some(one? + other?)
}

impl FlowRate {
    fn texts(&self) -> [String; 6] {
        let translated = self
            .translated
            .map(|end| end.to_string())
            .unwrap_or_default();
        let [protocol, way, state] =
            [self.protocol, self.way.name(), self.state].map(str::to_owned);
        [
            self.source.to_string(),
            self.destination.to_string(),
            translated,
            protocol,
            way,
            state,
        ]
    }

    const fn key(&self) -> (SocketAddr, SocketAddr, &'static str) {
        (self.source, self.destination, self.protocol)
    }
}

/// Seconds between two samples.
#[derive(Clone, Copy, Debug)]
struct Span(Option<f64>);

impl Span {
    fn between(before: Option<&TopSample>, now: &TopSample) -> Self {
        let nanoseconds = before
            .map(|before| now.now_ns.saturating_sub(before.now_ns))
            .filter(|span| *span > 0);
        Self(nanoseconds.map(seconds))
    }

    fn rate(self, number: u64) -> Rate {
        self.0.map(|span| float(number) / span)
    }

    fn bits(self, bytes: u64) -> Rate {
        self.rate(bytes).map(|bytes| bytes * 8.0)
    }

    /// The rates of a counter; none for one that was not there before.
    fn traffic(self, before: Option<Counter>, now: Counter) -> TrafficRate {
        let Some(before) = before else {
            return TrafficRate::default();
        };
        let Counter { packets, bytes } = difference(Some(before), now);
        TrafficRate {
            packets: self.rate(packets),
            bits: self.bits(bytes),
        }
    }
}

/// Nanoseconds as seconds.
fn seconds(nanoseconds: u64) -> f64 {
    float(nanoseconds) / 1e9
}

/// Converts a number for display; the display shows three digits.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(super) const fn float(number: u64) -> f64 {
    number as f64
}

/// The increase of a counter; its whole value if it is smaller than before, as with new maps.
fn increase(before: Option<u64>, now: u64) -> u64 {
    before
        .and_then(|before| now.checked_sub(before))
        .unwrap_or(now)
}

fn since(key: (Program, Reason), before: Option<&TopSample>, now: &TopSample) -> Counter {
    let of = |sample: &TopSample| sample.counters.get(&key).copied().unwrap_or_default();
    difference(before.map(of), of(now))
}

fn difference(before: Option<Counter>, now: Counter) -> Counter {
    Counter {
        packets: increase(before.map(|one| one.packets), now.packets),
        bytes: increase(before.map(|one| one.bytes), now.bytes),
    }
}

/// True for packets that count as seen: not the host's own traffic.
fn is_ours(reason: Reason) -> bool {
    reason != Reason::NotTunnel
}

fn hook_rate(
    program: Program,
    before: Option<&TopSample>,
    now: &TopSample,
    span: Span,
) -> HookRate {
    let (mut all, mut taken) = (Counter::default(), 0);
    for reason in Reason::ALL.into_iter().filter(|reason| is_ours(*reason)) {
        let counted = since((program, reason), before, now);
        all.packets += counted.packets;
        all.bytes += counted.bytes;
        taken += if reason.verdict() == Verdict::Redirect {
            counted.packets
        } else {
            0
        };
    }
    let share = (span.0.is_some() && all.packets > 0).then(|| float(taken) / float(all.packets));
    HookRate {
        program,
        packets: span.rate(all.packets),
        bytes: span.rate(all.bytes),
        taken: share,
    }
}

/// Reasons for which packets were dropped so far, or are left to the kernel now; the busiest first.
fn reason_rates(before: Option<&TopSample>, now: &TopSample, span: Span) -> Vec<ReasonRate> {
    let row = |(&(program, reason), counter): (&(Program, Reason), &Counter)| {
        let packets = span.rate(since((program, reason), before, now).packets);
        ReasonRate {
            program,
            reason,
            packets,
            total: counter.packets,
        }
    };
    let is_shown = |row: &ReasonRate| match row.reason.verdict() {
        Verdict::Drop => true,
        Verdict::Redirect => false,
        Verdict::Pass => {
            TAKING.contains(&row.program)
                && is_ours(row.reason)
                && row.packets.is_some_and(|rate| rate > 0.0)
        }
    };
    let mut rows: Vec<_> = now.counters.iter().map(row).filter(is_shown).collect();
    rows.sort_by_key(|row| {
        (
            Reverse(row.packets.unwrap_or_default().to_bits()),
            Reverse(row.total),
        )
    });
    rows
}

fn flow_rates(before: Option<&TopSample>, now: &TopSample, span: Span) -> Vec<FlowRate> {
    let key = |row: &CountedFlow| (row.protocol, row.source, row.destination, row.device);
    let counter = |row: &CountedFlow| Counter {
        packets: row.packets,
        bytes: row.bytes,
    };
    let earlier: HashMap<_, Counter> = before
        .iter()
        .flat_map(|sample| &sample.flows)
        .map(|row| (key(row), counter(row)))
        .collect();
    let since = |row: &CountedFlow| difference(earlier.get(&key(row)).copied(), counter(row));
    let rate = |row: &CountedFlow| FlowRate {
        protocol: row.protocol,
        source: row.source,
        destination: row.destination,
        translated: Some(row.out_destination).filter(|out| *out != row.destination),
        way: row.way,
        packets: span.rate(since(row).packets),
        bits: span.bits(since(row).bytes),
        total: row.packets,
        total_bytes: row.bytes,
        state: row.state,
    };
    now.flows.iter().map(rate).collect()
}

fn pod_rates(before: Option<&TopSample>, now: &TopSample, span: Span) -> Vec<PodRate> {
    let earlier: HashMap<_, _> = before
        .iter()
        .flat_map(|sample| &sample.pods)
        .map(|pod| (&pod.veth, pod.traffic))
        .collect();
    let rate = |pod: &CountedPod| {
        let before = earlier.get(&pod.veth);
        PodRate {
            pod: pod.clone(),
            to: span.traffic(before.map(|before| before.to), pod.traffic.to),
            from: span.traffic(before.map(|before| before.from), pod.traffic.from),
        }
    };
    now.pods.iter().map(rate).collect()
}

/// The rates of each peer, and the sums of its flows. In other modes than `fast` no flow is known,
/// and no rate of replayed packets.
fn peer_rates(
    before: Option<&TopSample>,
    now: &TopSample,
    flows: &[FlowRate],
    span: Span,
) -> Vec<PeerRate> {
    let earlier: HashMap<_, _> = before
        .iter()
        .flat_map(|sample| &sample.peers)
        .filter_map(|peer| Some((peer.subnet, peer.traffic?)))
        .collect();
    let zero = span.rate(0).filter(|_| now.mode == Mode::Fast);
    let idle = |peer: &PeerPlace| {
        let rate = |of: fn(PeerTraffic) -> Counter| {
            let before = earlier.get(&peer.subnet).copied().map(of);
            peer.traffic.map_or_else(TrafficRate::default, |traffic| {
                span.traffic(before, of(traffic))
            })
        };
        PeerRate {
            peer: peer.clone(),
            to: rate(|traffic| traffic.sent),
            from: rate(|traffic| traffic.received),
            replayed_to: zero,
            replayed_from: zero,
            flows: 0,
            total: 0,
        }
    };
    let mut rates: Vec<PeerRate> = now.peers.iter().map(idle).collect();
    let places: BTreeMap<IpNet, usize> =
        now.peers.iter().map(|peer| peer.subnet).zip(0..).collect();
    let peer_of = |address: IpAddr| {
        // Subnets do not overlap, so the last that begins before the address has it, or none.
        let (subnet, place) = places.range(..=IpNet::from(address)).next_back()?;
        subnet.contains(&address).then_some(*place)
    };
    for flow in flows {
        let out = flow.way != FlowWay::Pod;
        let end = if out {
            flow.translated.unwrap_or(flow.destination)
        } else {
            flow.source
        };
        let Some(rate) = peer_of(end.ip()).and_then(|place| rates.get_mut(place)) else {
            continue;
        };
        let direction = if out {
            &mut rate.replayed_to
        } else {
            &mut rate.replayed_from
        };
        *direction = direction.zip(flow.packets).map(|(sum, more)| sum + more);
        rate.flows += 1;
        rate.total += flow.total;
    }
    rates
}
