//! Mode `fast`: what is replayed, byte for byte, and every reason for which a packet is left to the
//! kernel, over either family.
//!
//! Flows are written by the test, as the programs write them. Noting and learning need one packet
//! at two hooks, which a test run does not have: the namespace suites show those.

mod direct;
mod from_pod;
mod from_tunnel;
mod from_underlay;
mod handshake;
mod l3_tunnel;
mod monitor;
mod outside;
pub(crate) mod packet;
mod to_pod;
mod traffic;

use std::net::IpAddr;

use aya::Pod;
use flannel_common::{
    abi::{
        fast::{FastConfig, PodEntry},
        maps::{FLOWS, FLOWS6},
        mode::Mode,
        program::Program,
        reason::Reason,
        tick::{Tick, tick, ticks},
    },
    flow::{Egress, Flow, FlowAction},
    flow::{
        expiry::Expiry,
        flow_key::{Address, FlowKey},
    },
    packet::{addr::Mac, inner::FrameAddresses},
};
use flannel_datapath::{
    Maps,
    kernel::clock,
    maps::{flow_hints::FlowHints, flows::FlowMap},
};
use packet::Packet;

use crate::{
    bench::{Bench, on_bench},
    packets::{LO, Net, V4, V6, usual_arrival},
};

/// The pod's own interface, and the bridge it sends to.
const POD_MAC: Mac = Mac([2, 0, 0, 0, 1, 5]);
const BRIDGE_MAC: Mac = Mac([2, 0, 0, 0, 1, 1]);
/// The veth of a pod that packets are put into.
const OTHER_VETH: u32 = 77;

/// The words of a family's addresses, and its flows.
pub(crate) trait Words: Address {
    const NET: Net;
    fn of(addr: IpAddr) -> Self;
    fn flows(maps: &mut Maps) -> &mut FlowMap<Self>
    where
        FlowKey<Self>: Pod,
        Flow<Self>: Pod;
}

impl Words for [u32; 1] {
    const NET: Net = V4;

    fn of(addr: IpAddr) -> Self {
        let IpAddr::V4(addr) = addr else {
            panic!("{addr} is not IPv4")
        };
        [u32::from_ne_bytes(addr.octets())]
    }

    fn flows(maps: &mut Maps) -> &mut FlowMap<Self> {
        &mut maps.flows
    }
}

impl Words for [u32; 4] {
    const NET: Net = V6;

    fn of(addr: IpAddr) -> Self {
        let IpAddr::V6(addr) = addr else {
            panic!("{addr} is not IPv6")
        };
        let mut words = addr
            .octets()
            .chunks(4)
            .map(|word| word.try_into().expect("four bytes"))
            .collect::<Vec<_>>();
        [0; 4].map(|_: u32| u32::from_ne_bytes(words.remove(0)))
    }

    fn flows(maps: &mut Maps) -> &mut FlowMap<Self> {
        &mut maps.flows6
    }
}

/// Tests of both families, from functions that are generic over their addresses.
macro_rules! both {
    ($($(#[$doc:meta])* fn $name:ident<$words:ident>($bench:ident) $action:block)+) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            fn test<$words>($bench: &mut crate::bench::Bench)
            where
                $words: super::Words,
                flannel_common::flow::flow_key::FlowKey<$words>: aya::Pod,
                flannel_common::flow::Flow<$words>: aya::Pod,
            $action
            super::on_fast_bench(test::<[u32; 1]>);
            super::on_fast_bench(test::<[u32; 4]>);
        }
    )+};
}
use both;

/// Runs a test on a node in mode `fast` that knows one pod, at `lo`, and whose path to the peer was
/// seen.
fn on_fast_bench(test: impl FnOnce(&mut Bench) + Send + 'static) {
    on_bench(|bench| {
        let learned = FastConfig::TCP | FastConfig::UDP | FastConfig::FROM_UNDERLAY;
        let flags = learned | FastConfig::TCP_LIBERAL;
        let interval = ticks(FastConfig::INTERVAL_NS);
        bench
            .maps
            .fast
            .set(FastConfig {
                flags,
                interval,
                tunnel_mtu: 1450,
                tunnel_mtu6: 1430,
            })
            .expect("FAST");
        bench.maps.mode.set(Mode::Fast, None).expect("MODE");
        bench
            .maps
            .config
            .confirm(tick(clock::now_ns()))
            .expect("CONFIG");
        let flags = PodEntry::SENDS | PodEntry::RECEIVES | PodEntry::MERGED;
        bench
            .maps
            .pods
            .write(
                LO,
                PodEntry {
                    mac: POD_MAC,
                    flags,
                    mtu: 1450,
                    ..PodEntry::default()
                },
            )
            .expect("PODS");
        let flags = flags | PodEntry::MERGED;
        bench
            .maps
            .pods
            .write(
                OTHER_VETH,
                PodEntry {
                    mac: POD_MAC,
                    flags,
                    mtu: 1450,
                    ..PodEntry::default()
                },
            )
            .expect("PODS");
        for net in [V4, V6] {
            bench.validate_path(net, 1000);
        }
        test(bench);
    });
}

/// The key under which packets like this one are known when they enter by `lo`.
fn key<A: Words>(packet: &Packet) -> FlowKey<A> {
    let [a, b] = packet.ports.map(u16::to_be_bytes);
    FlowKey {
        source: A::of(packet.source),
        destination: A::of(packet.destination),
        ports: u32::from_ne_bytes([a[0], a[1], b[0], b[1]]),
        protocol: packet.protocol.into(),
        device: LO,
    }
}

/// The kernel's flow hash of every flow here.
const HASH: u32 = 0x8765_4321;

fn action<A: Words>(bench: &Bench, from: &Packet, to: &Packet, egress: Egress) -> FlowAction<A> {
    let (device, exit, egress_data) = if egress == Egress::POD {
        let pod = bench
            .maps
            .pods
            .get(OTHER_VETH)
            .expect("PODS")
            .expect("a pod");
        (
            OTHER_VETH,
            FrameAddresses::new(POD_MAC, BRIDGE_MAC),
            pod.traffic,
        )
    } else {
        (LO, FrameAddresses::default(), HASH)
    };
    FlowAction {
        out: FlowKey { device, ..key(to) },
        generation: bench.maps.mode.get().expect("MODE").generation(),
        entry: FrameAddresses::new(from.to, from.from),
        exit,
        mtu: 1430,
        egress,
        ttl_step: 1,
        needs_mirror: 1,
        takes_merged: 1,
        tos: from.tos,
        ttl: from.ttl,
        egress_data,
        ..FlowAction::default()
    }
}

/// Ticks between the learning of a flow and now: the agent has confirmed it since.
const BEFORE_CONFIRMED: Tick = 10_000;

/// A flow that is usable: just seen, like its way back.
fn usable<A: Words>(key: &FlowKey<A>, action: FlowAction<A>) -> Flow<A> {
    let (check, now) = (action.check(key), tick(clock::now_ns()));
    let until = now + 2000;
    let mut flow = Flow {
        action,
        arrival: usual_arrival(),
        ..Flow::default()
    };
    flow.stamp(check, now - BEFORE_CONFIRMED, until, Some(until));
    flow
}

fn write<A: Words>(bench: &mut Bench, key: FlowKey<A>, flow: Flow<A>)
where
    FlowKey<A>: Pod,
    Flow<A>: Pod,
{
    A::flows(&mut bench.maps)
        .write(key, flow)
        .expect("a flow table");
}

/// The hints by which the programs find the flows of a family.
fn hints<A: Words>(bench: &Bench) -> FlowHints {
    let flows = if A::NET.our_pod.is_ipv4() {
        FLOWS
    } else {
        FLOWS6
    };
    FlowHints::open(bench.pins(), flows).expect("a map of hints")
}

/// Writes the flow that makes `to` of packets like `from`.
fn teach<A: Words>(bench: &mut Bench, from: &Packet, to: &Packet, egress: Egress) -> FlowKey<A>
where
    FlowKey<A>: Pod,
    Flow<A>: Pod,
{
    let key = key(from);
    let action = action(bench, from, to, egress);
    write(bench, key, usable(&key, action));
    key
}

fn read<A: Words>(bench: &mut Bench, key: &FlowKey<A>) -> Flow<A>
where
    FlowKey<A>: Pod,
    Flow<A>: Pod,
{
    A::flows(&mut bench.maps)
        .get(key)
        .expect("a flow table")
        .expect("the flow is there")
}

/// Runs a program on a packet that is left as it is, for one of these reasons.
#[track_caller]
fn passes(bench: &mut Bench, program: Program, packet: &[u8], reasons: &[Reason]) {
    let outcome = bench.run(program, packet);
    let [reason] = outcome.reasons[..] else {
        panic!("{:?}", outcome.reasons)
    };
    assert!(reasons.contains(&reason), "{reason:?}");
    outcome.passed(reason, packet);
}

/// The reasons of a packet that is noted or not, as chance has it.
const UNKNOWN: [Reason; 2] = [Reason::FlowUnknown, Reason::Sampled];

/// The stamp of a flow says that it was ended.
fn is_ended<A: Words>(flow: &Flow<A>, key: &FlowKey<A>) -> bool {
    !flow
        .seen
        .is_current(flow.action.check(key), tick(clock::now_ns()))
}

fn stamp_of_another() -> Expiry {
    Expiry::until(0x1235, tick(clock::now_ns()) + 2000)
}
