//! `aya::Pod` for what crosses between the agent and the programs.

use aya::Pod;

use crate::{
    abi::{
        ecmp::{EcmpPath, EcmpPathKey},
        families::Families,
        fast::{Bucket, FastConfig, PodEntry},
        guard::{DeviceKey, GuardWord, Violation},
        kernel::KernelLayout,
        kernel_drop::DropLayout,
        mode::ModeWord,
        monitor::{Event, Missed, Monitor},
        node::NodeConfig,
        peer::{PeerEntry, VtepEntry},
        stats::Counter,
        traffic::PeerTraffic,
    },
    flow::Flow,
    flow::{
        connection::Connection,
        flow_hint::FlowHint,
        flow_key::{Address, FlowKey},
        pending::CpuState,
        probation::ProbationSlot,
    },
    packet::addr::Addr,
};

macro_rules! pod {
    ($($name:ty),+ $(,)?) => {
        $(
            // SAFETY: `repr(C)` or `repr(transparent)` over integers and byte arrays, without
            // padding (asserted next to each type), so every bit pattern is a value and every value
            // has all its bytes.
            unsafe impl Pod for $name {}
        )+
    };
}

pod!(
    Addr,
    Bucket,
    Connection,
    Counter,
    CpuState,
    DeviceKey,
    FlowKey<[u32; 1]>,
    FlowKey<[u32; 4]>,
    Event,
    Families,
    FastConfig,
    Flow<[u32; 1]>,
    Flow<[u32; 4]>,
    FlowHint,
    GuardWord,
    KernelLayout,
    DropLayout,
    EcmpPath,
    EcmpPathKey,
    Missed,
    ModeWord,
    Monitor,
    NodeConfig,
    PeerEntry,
    PeerTraffic,
    PodEntry,
    Violation,
    VtepEntry,
);

// SAFETY: `repr(C)` over a flow, its key and a word; without padding for both kinds of address
// (asserted next to the type).
unsafe impl<A: Address> Pod for ProbationSlot<A>
where
    Flow<A>: Pod,
    FlowKey<A>: Pod,
{
}
