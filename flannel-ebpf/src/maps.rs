//! The pinned maps, as `flannel_common::abi::maps` describes them. The peer maps and those of
//! pending packets are declared with one element: the agent sets their capacity when it loads the
//! object. Maps that are private to the programs are declared where they are used.

use aya_ebpf::{
    bindings::BPF_F_NO_PREALLOC,
    macros::map,
    maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf},
};
use flannel_common::{
    abi::{
        ecmp::{EcmpPath, EcmpPathKey},
        fast::{Bucket, FastConfig, LEARN_BUCKETS as BUCKET_COUNT, PORT_WORDS, PodEntry},
        guard::{DeviceKey, GuardWord, Violation},
        maps::{ECMP_PATHS_MAX, FLOWS_MAX, PEERS_MAX, PODS_MAX, VIOLATIONS_MAX},
        mode::ModeWord,
        monitor::{EVENTS_BYTES, Missed, Monitor},
        node::NodeConfig,
        peer::{PeerEntry, VtepEntry},
        stats::{Counter, SLOTS},
        traffic::{POD_TRAFFIC_MAX, PeerTraffic},
    },
    flow::Flow,
    flow::{
        arrival::ArrivalNote,
        connection::CONNECTIONS_BYTES,
        flow_hint::FlowHint,
        flow_key::FlowKey,
        pending::{CpuState, PendingPacket},
        probation::{PROBATION_SLOTS, ProbationSlot},
    },
    packet::addr::Addr,
};

#[map]
pub(crate) static PEERS: Array<PeerEntry> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static PEERS6: Array<PeerEntry> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static VTEPS: HashMap<Addr, VtepEntry> =
    HashMap::with_max_entries(PEERS_MAX, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static ECMP_PATHS: HashMap<EcmpPathKey, EcmpPath> =
    HashMap::with_max_entries(ECMP_PATHS_MAX, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static MODE: Array<ModeWord> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static CONFIG: Array<NodeConfig> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static STATS: PerCpuArray<Counter> = PerCpuArray::with_max_entries(SLOTS, 0);

#[map]
pub(crate) static PEER_TRAFFIC: PerCpuArray<PeerTraffic> = PerCpuArray::with_max_entries(1, 0);

#[map]
pub(crate) static PEER_TRAFFIC6: PerCpuArray<PeerTraffic> = PerCpuArray::with_max_entries(1, 0);

#[map]
pub(crate) static POD_TRAFFIC: PerCpuArray<Counter> =
    PerCpuArray::with_max_entries(POD_TRAFFIC_MAX, 0);

#[map]
pub(crate) static FAST: Array<FastConfig> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static FLOWS: LruHashMap<FlowKey<[u32; 1]>, Flow<[u32; 1]>> =
    LruHashMap::with_max_entries(FLOWS_MAX, 0);

#[map]
pub(crate) static FLOWS6: LruHashMap<FlowKey<[u32; 4]>, Flow<[u32; 4]>> =
    LruHashMap::with_max_entries(FLOWS_MAX, 0);

#[map]
pub(crate) static PROBATION: Array<ProbationSlot<[u32; 1]>> =
    Array::with_max_entries(PROBATION_SLOTS, 0);

#[map]
pub(crate) static PROBATION6: Array<ProbationSlot<[u32; 4]>> =
    Array::with_max_entries(PROBATION_SLOTS, 0);

#[map]
pub(crate) static FLOW_HINTS: Array<FlowHint> = Array::with_max_entries(PROBATION_SLOTS, 0);

#[map]
pub(crate) static FLOW_HINTS6: Array<FlowHint> = Array::with_max_entries(PROBATION_SLOTS, 0);

#[map]
pub(crate) static PENDING: Array<PendingPacket<[u32; 1]>> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static PENDING6: Array<PendingPacket<[u32; 4]>> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static CPU_STATE: PerCpuArray<CpuState> = PerCpuArray::with_max_entries(1, 0);

#[map]
pub(crate) static PODS: HashMap<u32, PodEntry> =
    HashMap::with_max_entries(PODS_MAX, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static HELPER_PORTS: Array<u64> = Array::with_max_entries(PORT_WORDS, 0);

#[map]
pub(crate) static LEARN_BUCKETS: Array<Bucket> = Array::with_max_entries(BUCKET_COUNT, 0);

#[map]
pub(crate) static ENTRANCES: LruHashMap<FlowKey<[u32; 1]>, u32> =
    LruHashMap::with_max_entries(FLOWS_MAX, 0);

#[map]
pub(crate) static ENTRANCES6: LruHashMap<FlowKey<[u32; 4]>, u32> =
    LruHashMap::with_max_entries(FLOWS_MAX, 0);

#[map]
pub(crate) static ARRIVALS: Array<ArrivalNote> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static CONNECTIONS: RingBuf = RingBuf::with_byte_size(CONNECTIONS_BYTES, 0);

#[map]
pub(crate) static GUARD: Array<GuardWord> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static NAT_VTEPS: HashMap<DeviceKey, u32> =
    HashMap::with_max_entries(PEERS_MAX, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static VIOLATIONS: LruHashMap<Addr, Violation> =
    LruHashMap::with_max_entries(VIOLATIONS_MAX, 0);

#[map]
pub(crate) static MONITOR: Array<Monitor> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static EVENTS: RingBuf = RingBuf::with_byte_size(EVENTS_BYTES, 0);

#[map]
pub(crate) static MISSED: PerCpuArray<Missed> = PerCpuArray::with_max_entries(1, 0);
