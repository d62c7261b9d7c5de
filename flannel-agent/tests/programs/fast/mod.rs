//! Mode `fast`: what is replayed, byte for byte, and every reason for which a packet is left to the kernel.
//!
//! Flows are written by the test, as the programs write them. Noting and learning need one packet at two hooks, which
//! a test run does not have: the namespace suites show those.

mod from_pod;
mod from_tunnel;
mod from_underlay;
mod packet;
mod to_pod;

use flannel_agent::datapath::{
    clock,
    flows::{Flow4, Key4},
};
use flannel_common::{
    addr::Mac,
    end::End,
    fast::{FastConfig, PodEntry},
    flow::{Body, Exit, Flow},
    inner::FrameAddresses,
    mode::Mode,
    node::NodeConfig,
    program::Program,
    reason::Reason,
    stamp::Stamp,
    tick::{tick, ticks},
};

use crate::{
    bench::{Bench, on_bench},
    packets::{self, LO},
};
use packet::Packet;

/// The pod's own interface, and the bridge it sends to.
const POD_MAC: Mac = Mac([2, 0, 0, 0, 1, 5]);
const BRIDGE_MAC: Mac = Mac([2, 0, 0, 0, 1, 1]);
/// The veth of a pod that packets are put into.
const OTHER_VETH: u32 = 77;

/// Runs a test on a node in mode `fast` that knows one pod, at `lo`, and whose path to the peer was seen.
fn on_fast_bench(test: impl FnOnce(&mut Bench) + Send + 'static) {
    on_bench(|bench| {
        let fast = FastConfig {
            flags: FastConfig::TCP | FastConfig::UDP,
            interval: ticks(FastConfig::INTERVAL_NS),
            tunnel_mtu: 1450,
            ..FastConfig::default()
        };
        let config = NodeConfig { v4: packets::family(), fast, ..NodeConfig::default() };
        bench.maps.config.write(config, clock::now_ns()).expect("CONFIG");
        bench.maps.mode.set(Mode::Fast, None).expect("MODE");
        let flags = PodEntry::SENDS | PodEntry::RECEIVES;
        bench.maps.pods.write(LO, PodEntry { mac: POD_MAC, flags, mtu: 1450 }).expect("PODS");
        bench.vouch(1000);
        test(bench);
    });
}

/// The key under which packets like this one are known when they enter by `lo`.
fn key(packet: &Packet) -> Key4 {
    let [a, b] = packet.ports.map(u16::to_be_bytes);
    End {
        source: [u32::from_ne_bytes(packet.source.octets())],
        destination: [u32::from_ne_bytes(packet.destination.octets())],
        ports: u32::from_ne_bytes([a[0], a[1], b[0], b[1]]),
        protocol: packet.protocol.into(),
        device: LO,
    }
}

/// Where and as what a packet leaves.
fn out(packet: &Packet, device: u32) -> Key4 {
    End { device, ..key(packet) }
}

fn body(bench: &Bench, from: &Packet, to: &Packet, way: Exit) -> Body<[u32; 1]> {
    let device = if way == Exit::POD { OTHER_VETH } else { LO };
    let exit = if way == Exit::POD {
        FrameAddresses { destination: POD_MAC, source: BRIDGE_MAC }
    } else {
        FrameAddresses::default()
    };
    Body {
        out: out(to, device),
        generation: bench.maps.mode.get().expect("MODE").generation(),
        entry: FrameAddresses { destination: from.to, source: from.from },
        exit,
        mtu: 1450,
        way,
        ttl_step: 1,
        needs_mirror: 1,
        ..Body::default()
    }
}

/// A flow that is usable: just seen, like its way back.
fn usable(key: &Key4, body: Body<[u32; 1]>) -> Flow4 {
    let (check, until) = (body.check(key), tick(clock::now_ns()) + 2000);
    let mut flow = Flow { body, ..Flow::default() };
    flow.stamp(check, until, Some(until));
    flow
}

/// Writes the flow that makes `to` of packets like `from`.
fn teach(bench: &mut Bench, from: &Packet, to: &Packet, way: Exit) -> Key4 {
    let key = key(from);
    let body = body(bench, from, to, way);
    bench.maps.flows.write(key, usable(&key, body)).expect("FLOWS");
    key
}

fn read(bench: &Bench, key: &Key4) -> Flow4 {
    bench.maps.flows.get(key).expect("FLOWS").expect("the flow is there")
}

/// Runs a program on a packet that is left as it is, for one of these reasons.
#[track_caller]
fn passes(bench: &mut Bench, program: Program, packet: &[u8], reasons: &[Reason]) {
    let outcome = bench.run(program, packet);
    let [reason] = outcome.reasons[..] else { panic!("{:?}", outcome.reasons) };
    assert!(reasons.contains(&reason), "{reason:?}");
    outcome.passed(reason, packet);
}

/// The reasons of a packet that is noted or not, as chance has it.
const UNKNOWN: [Reason; 2] = [Reason::FlowUnknown, Reason::Noted];

/// The stamp of a flow says that it was ended.
fn is_ended(flow: &Flow4, key: &Key4) -> bool {
    !flow.seen.holds(flow.body.check(key), tick(clock::now_ns()))
}

fn stamp_of_another() -> Stamp {
    Stamp::until(0x1235, tick(clock::now_ns()) + 2000)
}
