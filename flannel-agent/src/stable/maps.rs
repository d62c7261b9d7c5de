//! Pinned maps: the sizes of their keys and values.

use std::collections::BTreeSet;

use flannel_common::{
    SCHEMA,
    abi::{
        ecmp::{EcmpPath, EcmpPathKey},
        fast::{Bucket, FastConfig, PodEntry},
        guard::{DeviceKey, GuardWord, Violation},
        maps,
        mode::ModeWord,
        monitor::{Missed, Monitor},
        node::NodeConfig,
        peer::{PeerEntry, VtepEntry},
        stats::Counter,
        traffic::PeerTraffic,
    },
    flow::Flow,
    flow::{
        arrival::ArrivalNote,
        flow_hint::FlowHint,
        flow_key::FlowKey,
        pending::{CpuState, PendingPacket},
        probation::ProbationSlot,
    },
    packet::addr::Addr,
};

use super::{Interface, difference};

const MAP: &str = "map";
const SCHEMA_LINE: &str = "schema";

macro_rules! sizes {
    ($($name:ident: $key:ty => $value:ty;)+) => {
        [$((maps::$name, size_of::<$key>(), size_of::<$value>())),+]
    };
}

pub(super) fn all() -> Vec<Interface> {
    // Ring buffers have neither.
    let sizes = sizes! {
        PEERS: u32 => PeerEntry;
        PEERS6: u32 => PeerEntry;
        VTEPS: Addr => VtepEntry;
        ECMP_PATHS: EcmpPathKey => EcmpPath;
        MODE: u32 => ModeWord;
        CONFIG: u32 => NodeConfig;
        STATS: u32 => Counter;
        PEER_TRAFFIC: u32 => PeerTraffic;
        PEER_TRAFFIC6: u32 => PeerTraffic;
        POD_TRAFFIC: u32 => Counter;
        FAST: u32 => FastConfig;
        FLOWS: FlowKey<[u32; 1]> => Flow<[u32; 1]>;
        FLOWS6: FlowKey<[u32; 4]> => Flow<[u32; 4]>;
        PROBATION: u32 => ProbationSlot<[u32; 1]>;
        PROBATION6: u32 => ProbationSlot<[u32; 4]>;
        FLOW_HINTS: u32 => FlowHint;
        FLOW_HINTS6: u32 => FlowHint;
        PENDING: u32 => PendingPacket<[u32; 1]>;
        PENDING6: u32 => PendingPacket<[u32; 4]>;
        CPU_STATE: u32 => CpuState;
        PODS: u32 => PodEntry;
        HELPER_PORTS: u32 => u64;
        LEARN_BUCKETS: u32 => Bucket;
        ENTRANCES: FlowKey<[u32; 1]> => u32;
        ENTRANCES6: FlowKey<[u32; 4]> => u32;
        ARRIVALS: u32 => ArrivalNote;
        GUARD: u32 => GuardWord;
        NAT_VTEPS: DeviceKey => u32;
        VIOLATIONS: Addr => Violation;
        MONITOR: u32 => Monitor;
        MISSED: u32 => Missed;
        MONITOR_DEADLINE: u32 => u64;
    };
    let known: BTreeSet<_> = sizes
        .iter()
        .map(|(name, ..)| *name)
        .chain([maps::CONNECTIONS, maps::EVENTS])
        .collect();
    assert_eq!(
        known,
        maps::ALL.into_iter().collect(),
        "the maps that are pinned"
    );
    let schema = Interface::new(SCHEMA_LINE, "-", "SCHEMA", &SCHEMA.to_string());
    let map =
        |(name, key, value)| Interface::new(MAP, "-", name, &format!("{key} to {value} bytes"));
    sizes.into_iter().map(map).chain([schema]).collect()
}

/// Requires another schema if a map has changed.
pub(super) fn expect_schema(released: &BTreeSet<Interface>, present: &BTreeSet<Interface>) {
    let changed =
        difference(released, present).find(|line| line.kind == MAP && released.contains(line));
    let is_raised = difference(released, present).any(|line| line.kind == SCHEMA_LINE);
    assert!(
        changed.is_none() || is_raised,
        "another layout needs another SCHEMA: {changed:?}"
    );
}
