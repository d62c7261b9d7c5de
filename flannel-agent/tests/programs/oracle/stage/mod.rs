//! The oracle's world in the maps of a bench, and what a program made of it.

mod values;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use aya::{
    Pod,
    maps::{Array, HashMap, Map, MapData},
};
use flannel_common::{
    abi::{
        fast::{Bucket, FastConfig, PodEntry},
        guard::{Checks, DeviceKey, Violation},
        maps::{FLOWS, FLOWS6, LEARN_BUCKETS, PEERS, PEERS6, PROBATION, PROBATION6, VIOLATIONS},
        node::{HEARTBEAT_LIMIT_NS, NodeConfig, REPLAY_LIMIT_NS},
        peer::{PATH_PROBE_NS, PathProbe, PeerEntry, VtepEntry},
        tick::{Tick, tick, ticks},
    },
    flow::Flow,
    flow::{expiry::Expiry, flow_key::FlowKey, probation::ProbationSlot},
    packet::addr::{Addr, Mac},
};
use flannel_datapath::{PinRoot, kernel::clock, maps::flow_hints::FlowHints};

use self::values::{end, entry_of, flow_of};
use super::{
    expect::{Effect, Expected},
    world::{Agent, FORMER_SUBNET, Tuple, World},
};
use crate::{
    bench::Bench,
    fast::Words,
    packets::{LO, Net, PEER_INDEX, SUBNETS, V4, V6},
};

const INTERVAL: u32 = ticks(FastConfig::INTERVAL_NS);

/// A bench set up as a world, whose values are as the agent and the programs write them.
pub(super) struct Stage<'a, A: Words>
where
    FlowKey<A>: Pod,
    Flow<A>: Pod,
{
    pub(super) bench: &'a mut Bench,
    peers: Array<MapData, PeerEntry>,
    buckets: Array<MapData, Bucket>,
    table: HashMap<MapData, FlowKey<A>, Flow<A>>,
    probation: Array<MapData, ProbationSlot<A>>,
    hints: FlowHints,
    /// Flows that are in a slot of probation, by its number.
    slots: BTreeMap<u32, FlowKey<A>>,
    tokens_set: Instant,
    flows: Vec<(FlowKey<A>, Flow<A>)>,
    staged_peers: Vec<(u8, PeerEntry)>,
    vteps: Vec<Addr>,
    suspects: HashMap<MapData, Addr, Violation>,
    /// By source: packets, and those of them that were dropped.
    suspected: BTreeMap<Addr, [u64; 2]>,
}

fn open(pins: &PinRoot, name: &str) -> Map {
    MapData::from_pin(pins.map(name))
        .and_then(Map::from_map_data)
        .expect("a pinned map")
}

impl<'a, A: Words> Stage<'a, A>
where
    FlowKey<A>: Pod,
    Flow<A>: Pod,
{
    pub(super) fn new(bench: &'a mut Bench) -> Self {
        let (peers, flows, probation) = if A::NET.our_vtep.is_ipv4() {
            (PEERS, FLOWS, PROBATION)
        } else {
            (PEERS6, FLOWS6, PROBATION6)
        };
        // The peers of the other fixtures.
        for net in [V4, V6] {
            bench.peers(net).remove(PEER_INDEX).expect("a peer map");
            bench
                .maps
                .vteps
                .remove(net.peer_vtep.into())
                .expect("VTEPS");
        }
        let map = |name| open(bench.pins(), name);
        let suspects = HashMap::try_from(map(VIOLATIONS)).expect("a hash");
        Self {
            peers: Array::try_from(map(peers)).expect("an array"),
            buckets: Array::try_from(map(LEARN_BUCKETS)).expect("an array"),
            table: HashMap::try_from(map(flows)).expect("a hash"),
            probation: Array::try_from(map(probation)).expect("an array"),
            hints: FlowHints::open(bench.pins(), flows).expect("a map of hints"),
            slots: BTreeMap::new(),
            tokens_set: Instant::now(),
            bench,
            flows: Vec::new(),
            staged_peers: Vec::new(),
            vteps: Vec::new(),
            suspects,
            suspected: BTreeMap::new(),
        }
    }

    /// Leaves the family without peers and flows.
    pub(super) fn clear(&mut self) {
        let slots = std::mem::take(&mut self.slots);
        for (key, _) in std::mem::take(&mut self.flows) {
            let slot = ProbationSlot::of(&key);
            if slots.get(&slot) == Some(&key) {
                self.probation
                    .set(slot, ProbationSlot::default(), 0)
                    .expect("a slot");
            } else {
                self.table.remove(&key).expect("a flow table");
            }
        }
        for (subnet, _) in std::mem::take(&mut self.staged_peers) {
            self.peers
                .set(subnet.into(), PeerEntry::default(), 0)
                .expect("a peer map");
        }
        for vtep in std::mem::take(&mut self.vteps) {
            self.bench.maps.vteps.remove(vtep).expect("VTEPS");
        }
        for source in std::mem::take(&mut self.suspected).into_keys() {
            self.suspects.remove(&source).expect("VIOLATIONS");
        }
    }

    /// Makes the bench this world.
    pub(super) fn set(&mut self, world: &World) {
        self.clear();
        self.bench.helper_ports(&[world.helper_port]);
        let maps = &mut self.bench.maps;
        maps.mode.set(world.mode, None).expect("MODE");
        maps.mode.bump().expect("MODE");
        self.set_fast(world);
        self.set_node(world);
        let maps = &mut self.bench.maps;
        let [outer, inner] = world.guard;
        maps.guard
            .set(Checks { outer, inner }, Checks::default())
            .expect("GUARD");
        for mac in &world.elsewhere {
            let family = world.net.ethertype.to_be_bytes();
            maps.elsewhere
                .add(DeviceKey {
                    mac: Mac(*mac),
                    family,
                })
                .expect("NAT_VTEPS");
        }
        self.set_peers(world);
        self.set_flows(world);
        self.set_tokens(world);
    }

    fn set_fast(&mut self, world: &World) {
        let maps = &mut self.bench.maps;
        let flag = |protocol, flag| {
            if world.learns.contains(&protocol) {
                flag
            } else {
                0
            }
        };
        let from_underlay = if world.from_underlay {
            FastConfig::FROM_UNDERLAY
        } else {
            0
        };
        let flags = flag(6, FastConfig::TCP)
            | flag(17, FastConfig::UDP)
            | from_underlay
            | FastConfig::TCP_LIBERAL;
        let fast = FastConfig {
            flags,
            interval: INTERVAL,
            tunnel_mtu: 1450,
            tunnel_mtu6: 1430,
        };
        maps.fast.set(fast).expect("FAST");
        let flags = if world.pod_sends {
            PodEntry::SENDS
        } else {
            PodEntry::RECEIVES
        };
        maps.pods
            .write(
                LO,
                PodEntry {
                    mac: Mac([2, 0, 0, 0, 1, 5]),
                    flags,
                    mtu: 1450,
                    ..PodEntry::default()
                },
            )
            .expect("PODS");
    }

    fn set_node(&mut self, world: &World) {
        let maps = &mut self.bench.maps;
        let now = clock::now_ns();
        let family = |net: Net| {
            if world.has_tunnel {
                net.family()
            } else {
                net.without_tunnel()
            }
        };
        let config = NodeConfig {
            v4: family(V4),
            v6: family(V6),
            ..NodeConfig::default()
        };
        maps.config.write(config, now).expect("CONFIG");
        match world.agent {
            Agent::Beats => maps.config.write_heartbeat(now),
            Agent::Late => maps
                .config
                .write_heartbeat(now - REPLAY_LIMIT_NS - 1_000_000_000),
            Agent::Gone => maps
                .config
                .write_heartbeat(now - HEARTBEAT_LIMIT_NS - 1_000_000_000),
            Agent::NotConfigured => maps.config.invalidate(),
        }
        .expect("CONFIG");
        maps.config.confirm(tick(now)).expect("CONFIG");
    }

    /// Buckets are full again after a second, so they are emptied now and then.
    pub(super) fn refresh(&mut self, world: &World) {
        if !world.has_tokens && self.tokens_set.elapsed() > Duration::from_millis(300) {
            self.set_tokens(world);
        }
    }

    fn set_tokens(&mut self, world: &World) {
        self.tokens_set = Instant::now();
        let spent = if world.has_tokens { 0 } else { u32::MAX };
        let bucket = Bucket(u64::from(tick(clock::now_ns())) << 32 | u64::from(spent));
        for index in (0..SUBNETS)
            .map(Bucket::of_peer)
            .chain([Bucket::of_pod(LO)])
        {
            self.buckets.set(index, bucket, 0).expect("LEARN_BUCKETS");
        }
    }

    fn set_peers(&mut self, world: &World) {
        for index in 0..=FORMER_SUBNET {
            let peer = world.peers.iter().find(|peer| peer.subnet == index);
            let gone = world
                .others
                .iter()
                .find(|other| other.subnet == Some(index));
            let vtep = gone.map_or(Addr::NONE, |gone| gone.address.into());
            let entry = peer.map_or(
                PeerEntry {
                    vtep,
                    ..PeerEntry::default()
                },
                entry_of,
            );
            self.peers.set(index.into(), entry, 0).expect("a peer map");
            self.staged_peers.push((index, entry));
        }
        let others = world
            .others
            .iter()
            .map(|other| (other.address, other.subnet));
        for (address, subnet) in world
            .peers
            .iter()
            .map(|peer| (peer.vtep, Some(peer.subnet)))
            .chain(others)
        {
            let index = subnet.map_or(VtepEntry::UNNUMBERED, u32::from);
            self.bench
                .maps
                .vteps
                .write(address.into(), VtepEntry { index, reserved: 0 })
                .expect("VTEPS");
            self.vteps.push(address.into());
        }
    }

    fn set_flows(&mut self, world: &World) {
        let generation = self.bench.maps.mode.get().expect("MODE").generation();
        for known in &world.flows {
            let (key, flow) = flow_of::<A>(known, generation);
            if known.on_probation {
                // Another flow may have the slot; the table takes any flow.
                self.slots.entry(ProbationSlot::of(&key)).or_insert(key);
            }
            self.write_flow(key, flow);
            self.flows.push((key, flow));
        }
    }

    fn is_in_slot(&self, key: &FlowKey<A>) -> bool {
        self.slots.get(&ProbationSlot::of(key)) == Some(key)
    }

    fn write_flow(&mut self, key: FlowKey<A>, flow: Flow<A>) {
        if self.is_in_slot(&key) {
            let slot = ProbationSlot {
                flow,
                key,
                reserved: 0,
            };
            self.probation
                .set(ProbationSlot::of(&key), slot, 0)
                .expect("a slot");
            self.hints.note_on_probation(&key).expect("a hint");
        } else {
            self.hints.note_in_table(&key).expect("a hint");
            self.table.insert(key, flow, 0).expect("a flow table");
        }
    }

    fn read_flow(&self, key: &FlowKey<A>) -> Result<Flow<A>, String> {
        if !self.is_in_slot(key) {
            return self
                .table
                .get(key, 0)
                .map_err(|error| format!("{key:?}: {error}"));
        }
        let slot = self
            .probation
            .get(&ProbationSlot::of(key), 0)
            .expect("a slot");
        if slot.key == *key {
            Ok(slot.flow)
        } else {
            Err(format!("{key:?}: its slot has {slot:?}"))
        }
    }

    /// Checks what a run since `before` changed, and sets it back.
    pub(super) fn check(&mut self, expected: &Expected, before: u64) -> Result<(), String> {
        if let Some((number, len)) = expected.counted {
            let flow = &mut self.flows[number].1;
            flow.packets += 1;
            flow.bytes += len as u64;
        }
        let span = [before, clock::now_ns()];
        match &expected.effect {
            Effect::Nothing => Ok(()),
            Effect::Ended {
                enters,
                by,
                is_opening,
            } => self.check_ended(enters, *by, *is_opening, span),
            Effect::Validated {
                subnet,
                len,
                is_new,
            } => self.check_peer(
                *subnet,
                |was| {
                    let until = if *is_new { None } else { Some(was.until_ns) };
                    let hold_ns = if *is_new { 0 } else { was.hold_ns };
                    (
                        PathProbe {
                            max_len: *len,
                            hold_ns,
                            ..was
                        },
                        until,
                        Some(hold_ns),
                    )
                },
                span,
            ),
            Effect::Suspected { source, dropped } => {
                let [packets, drops] = self.suspected.entry((*source).into()).or_default();
                *packets += 1;
                *drops += u64::from(*dropped);
                Ok(())
            }
            Effect::Held { subnet } => self.check_peer(
                *subnet,
                |was| (PathProbe { until_ns: 0, ..was }, Some(0), None),
                span,
            ),
        }
    }

    /// Compares what was seen of a path with what is expected of it. A time that is none is one
    /// interval from now.
    fn check_peer(
        &mut self,
        subnet: u8,
        expected: impl Fn(PathProbe) -> (PathProbe, Option<u64>, Option<u64>),
        [before, after]: [u64; 2],
    ) -> Result<(), String> {
        let staged = self.staged_peers[usize::from(subnet)].1;
        let found = self.peers.get(&subnet.into(), 0).expect("a peer map");
        let (seen, until, hold) = expected(staged.seen);
        let in_time = |found: u64, wanted: Option<u64>| match wanted {
            Some(wanted) => found == wanted,
            None => (before + PATH_PROBE_NS..=after + PATH_PROBE_NS).contains(&found),
        };
        let seen = PathProbe {
            word: staged.word,
            until_ns: found.seen.until_ns,
            hold_ns: found.seen.hold_ns,
            ..seen
        };
        let is_right = found == PeerEntry { seen, ..staged }
            && in_time(found.seen.until_ns, until)
            && in_time(found.seen.hold_ns, hold);
        self.peers
            .set(subnet.into(), staged, 0)
            .expect("a peer map");
        if is_right {
            Ok(())
        } else {
            Err(format!("peer {subnet}: {staged:?} became {found:?}"))
        }
    }

    /// The flow and its way back are forgotten, or closed for the longest interval there is.
    fn check_ended(
        &mut self,
        enters: &Tuple,
        by: u32,
        is_opening: bool,
        span: [u64; 2],
    ) -> Result<(), String> {
        let key = end::<A>(enters, by);
        let Some((_, flow)) = self.flows.iter().find(|(at, _)| *at == key) else {
            return Ok(());
        };
        let check = flow.action.check(&key);
        if !is_opening && flow.seen == Expiry::closed(check, flow.seen.moment()) {
            // Closed a moment ago, as the tombstone says: both stay as they are.
            return Ok(());
        }
        let mirror = flow.action.mirror_key();
        for index in 0..self.flows.len() {
            let (at, staged) = self.flows[index];
            if at == key || at == mirror {
                self.check_flow_ended(&at, &staged, is_opening, span)?;
            }
        }
        Ok(())
    }

    fn check_flow_ended(
        &mut self,
        key: &FlowKey<A>,
        staged: &Flow<A>,
        is_opening: bool,
        [before, after]: [u64; 2],
    ) -> Result<(), String> {
        let found = self.read_flow(key)?;
        self.write_flow(*key, *staged);
        let check = staged.action.check(key);
        let moment = found.seen.moment();
        let [first, last]: [Tick; 2] = [tick(before) + INTERVAL, tick(after) + INTERVAL * 5 / 4];
        let is_right = if is_opening {
            found.seen == Expiry::NONE
        } else {
            found.seen == Expiry::closed(check, moment) && (first..=last).contains(&moment)
        };
        let rest = Flow {
            seen: staged.seen,
            window: staged.window,
            last: staged.last,
            ..found
        };
        if is_right && rest == *staged {
            Ok(())
        } else {
            Err(format!("{key:?}: {staged:?} became {found:?}"))
        }
    }

    fn check_suspects(&self) -> Result<(), String> {
        let count = self.suspects.keys().count();
        if count != self.suspected.len() {
            return Err(format!("{count} suspects of {}", self.suspected.len()));
        }
        for (source, counts) in &self.suspected {
            let found = self
                .suspects
                .get(source, 0)
                .map_err(|error| format!("{source}: {error}"))?;
            if [found.packets, found.dropped] != *counts {
                return Err(format!(
                    "{source} is suspected for {found:?}, not {counts:?}"
                ));
            }
        }
        Ok(())
    }

    /// Checks that the maps changed only as expected.
    pub(super) fn check_rest(&mut self) -> Result<(), String> {
        for (subnet, staged) in &self.staged_peers {
            let found = self.peers.get(&u32::from(*subnet), 0).expect("a peer map");
            if found != *staged {
                return Err(format!("peer {subnet}: {staged:?} became {found:?}"));
            }
        }
        self.check_suspects()?;
        let known = self.table.keys().count() + self.slots.len();
        if known != self.flows.len() {
            return Err(format!("{known} flows of {}", self.flows.len()));
        }
        for (key, staged) in &self.flows {
            // The oracle does not compute what packets say about windows and the time.
            let found = Flow {
                window: staged.window,
                last: staged.last,
                ..self.read_flow(key)?
            };
            if found != *staged {
                return Err(format!("{key:?}: {staged:?} became {found:?}"));
            }
        }
        Ok(())
    }
}
