//! `aya::Pod` for what crosses between the agent and the programs.

use aya::Pod;

use crate::{
    addr::Addr,
    end::End,
    fast::{Bucket, FastConfig, PodEntry},
    flow::Flow,
    guard::{DeviceKey, GuardWord, Suspect},
    kernel::KernelLayout,
    leg::{LegEntry, LegKey},
    mode::ModeWord,
    monitor::{Event, Missed, Monitor},
    node::NodeConfig,
    note::CpuState,
    peer::{PeerEntry, VtepEntry},
    stats::Counter,
};

macro_rules! pod {
    ($($name:ty),+ $(,)?) => {
        $(
            // SAFETY: `repr(C)` or `repr(transparent)` over integers and byte arrays, without padding (asserted
            // beside each type), so every bit pattern is a value and every value has all its bytes.
            unsafe impl Pod for $name {}
        )+
    };
}

pod!(
    Addr,
    Bucket,
    Counter,
    CpuState,
    DeviceKey,
    End<[u32; 1]>,
    End<[u32; 4]>,
    Event,
    FastConfig,
    Flow<[u32; 1]>,
    Flow<[u32; 4]>,
    GuardWord,
    KernelLayout,
    LegEntry,
    LegKey,
    Missed,
    ModeWord,
    Monitor,
    NodeConfig,
    PeerEntry,
    PodEntry,
    Suspect,
    VtepEntry,
);
