//! The maps, as `flannel_common::maps` describes them. The peer maps are declared with one element: the agent
//! sets their capacity when it loads the object.

use aya_ebpf::{
    bindings::BPF_F_NO_PREALLOC,
    macros::map,
    maps::{Array, HashMap, PerCpuArray},
};
use flannel_common::{
    addr::Addr,
    maps::PEERS_MAX,
    mode::ModeWord,
    node::NodeConfig,
    peer::{PeerEntry, VtepEntry},
    stats::{Counter, SLOTS},
};

#[map]
pub(crate) static PEERS: Array<PeerEntry> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static PEERS6: Array<PeerEntry> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static VTEPS: HashMap<Addr, VtepEntry> = HashMap::with_max_entries(PEERS_MAX, BPF_F_NO_PREALLOC);

#[map]
pub(crate) static MODE: Array<ModeWord> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static CONFIG: Array<NodeConfig> = Array::with_max_entries(1, 0);

#[map]
pub(crate) static STATS: PerCpuArray<Counter> = PerCpuArray::with_max_entries(SLOTS, 0);
