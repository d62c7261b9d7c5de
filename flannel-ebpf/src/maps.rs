//! The maps, as `flannel_common::maps` describes them. The peer maps are declared with one element: the agent
//! sets their capacity when it loads the object.

use aya_ebpf::{
    bindings::BPF_F_NO_PREALLOC,
    macros::map,
    maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf},
};
use flannel_common::{
    addr::Addr,
    class::PathKey,
    end::End,
    fast::{BUCKETS as BUCKET_COUNT, Bucket, FastConfig, PORT_WORDS, PodEntry},
    flow::Flow,
    guard::{DeviceKey, GuardWord, Suspect},
    ip::{Ipv4Header, Ipv6Header},
    leg::{LegEntry, LegKey},
    maps::{FLOWS_MAX, LEGS_MAX, PATHS_MAX, PEERS_MAX, PODS_MAX, SUSPECTS_MAX},
    mode::ModeWord,
    monitor::{EVENTS_BYTES, Missed, Monitor},
    node::NodeConfig,
    note::{CpuState, Note},
    peer::{PathSeen, PeerEntry, VtepEntry},
    stats::{Counter, SLOTS},
};

use crate::{
    bytes::{Room, Space},
    monitor::Told,
    tables::Scratch,
};

#[map]
pub(crate) static PEERS: Array<PeerEntry> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static PEERS6: Array<PeerEntry> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static VTEPS: HashMap<Addr, VtepEntry> = HashMap::with_max_entries(PEERS_MAX, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static LEGS: HashMap<LegKey, LegEntry> = HashMap::with_max_entries(LEGS_MAX, BPF_F_NO_PREALLOC);

/// Observations of the path for packets with a mark or a priority. The programs' own: not pinned.
#[map]
pub(crate) static PATHS: LruHashMap<PathKey, PathSeen> = LruHashMap::with_max_entries(PATHS_MAX, 0);

#[map]
pub(crate) static MODE: Array<ModeWord> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static CONFIG: Array<NodeConfig> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static STATS: PerCpuArray<Counter> = PerCpuArray::with_max_entries(SLOTS, 0);

#[map]
pub(crate) static FAST: Array<FastConfig> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static FLOWS: LruHashMap<End<[u32; 1]>, Flow<[u32; 1]>> = LruHashMap::with_max_entries(FLOWS_MAX, 0);

#[map]
pub(crate) static FLOWS6: LruHashMap<End<[u32; 4]>, Flow<[u32; 4]>> = LruHashMap::with_max_entries(FLOWS_MAX, 0);

#[map]
pub(crate) static NOTES: Array<Note<[u32; 1]>> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static NOTES6: Array<Note<[u32; 4]>> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static CPUS: PerCpuArray<CpuState> = PerCpuArray::with_max_entries(1, 0);

#[map]
pub(crate) static PODS: HashMap<u32, PodEntry> = HashMap::with_max_entries(PODS_MAX, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static HELPER_PORTS: Array<u64> = Array::with_max_entries(PORT_WORDS, 0);

#[map]
pub(crate) static BUCKETS: Array<Bucket> = Array::with_max_entries(BUCKET_COUNT, 0);

#[map]
pub(crate) static GUARD: Array<GuardWord> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static ELSEWHERE: HashMap<DeviceKey, u32> = HashMap::with_max_entries(PEERS_MAX, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static SUSPECTS: LruHashMap<Addr, Suspect> = LruHashMap::with_max_entries(SUSPECTS_MAX, 0);

#[map]
pub(crate) static MONITOR: Array<Monitor> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static EVENTS: RingBuf = RingBuf::with_byte_size(EVENTS_BYTES, 0);

#[map]
pub(crate) static MISSED: PerCpuArray<Missed> = PerCpuArray::with_max_entries(1, 0);

/// The programs' own: not pinned.
#[map]
pub(crate) static SCRATCH: PerCpuArray<Scratch<Ipv4Header>> = PerCpuArray::with_max_entries(1, 0);

/// The same for IPv6.
#[map]
pub(crate) static SCRATCH6: PerCpuArray<Scratch<Ipv6Header>> = PerCpuArray::with_max_entries(1, 0);

/// Bytes of packets ([`Room`]). The programs' own as well.
#[map]
pub(crate) static ROOMS: PerCpuArray<Space> = PerCpuArray::with_max_entries(Room::COUNT, 0);

/// What is about to be told to the monitor. The programs' own as well.
#[map]
pub(crate) static TOLD: PerCpuArray<Told> = PerCpuArray::with_max_entries(1, 0);
