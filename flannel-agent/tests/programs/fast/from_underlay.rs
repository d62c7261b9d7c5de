//! `from_underlay` in mode `fast`: what it puts into a pod.

use std::net::Ipv4Addr;

use flannel_agent::datapath::flows::Key4;
use flannel_common::{
    flow::{Body, Exit},
    packet::decapsulated_tos,
    program::Program::FromUnderlay,
    reason::Reason,
};

use super::{
    BRIDGE_MAC, POD_MAC, UNKNOWN, body, is_ended, key, on_fast_bench,
    packet::{Packet, tcp, udp},
    passes, read, teach, usable,
};
use crate::{
    bench::{Bench, TC_ACT_REDIRECT},
    packets::{self, OUR_MAC, PEER_MAC, at},
};

/// A packet of the peer's pod, as it stands in the tunnel.
fn from_peer(packet: Packet) -> Packet {
    Packet { to: OUR_MAC, from: PEER_MAC, ..packet.reversed() }
}

/// In the outer headers of the peer, to this host's Ethernet address, without a UDP checksum.
fn tunnelled(packet: &Packet) -> Vec<u8> {
    let mut bytes = packets::tunnel_frame_from_peer(packet.tos & 0b11, &packet.bytes());
    bytes[..6].fill(0);
    bytes[at::UDP + 6..at::UDP + 8].fill(0);
    bytes
}

fn delivered(packet: Packet) -> Packet {
    Packet { to: POD_MAC, from: BRIDGE_MAC, ..packet.routed() }
}

#[track_caller]
fn replayed(bench: &mut Bench, packet: &[u8]) -> Vec<u8> {
    let outcome = bench.run(FromUnderlay, packet);
    assert_eq!((outcome.reasons.as_slice(), outcome.action), ([Reason::Replayed].as_slice(), TC_ACT_REDIRECT));
    outcome.packet
}

fn left(bench: &mut Bench, packet: &[u8], reason: Reason) {
    passes(bench, FromUnderlay, packet, &[reason]);
}

fn taught(bench: &mut Bench, packet: &Packet) -> Key4 {
    teach(bench, packet, packet, Exit::POD)
}

#[test]
fn into_the_pod_as_routed() {
    on_fast_bench(|bench| {
        for packet in [tcp(), udp(), Packet { payload: 0, ..udp() }, Packet { without_checksum: true, ..udp() }] {
            let packet = from_peer(packet);
            taught(bench, &packet);
            assert_eq!(replayed(bench, &tunnelled(&packet)), delivered(packet).bytes(), "{packet:?}");
        }
    });
}

#[test]
fn into_the_pod_translated_back() {
    on_fast_bench(|bench| {
        for packet in [tcp(), udp(), Packet { without_checksum: true, ..udp() }] {
            let packet = from_peer(packet);
            let [_, port] = packet.ports;
            let seen = Packet { source: Ipv4Addr::new(10, 96, 0, 1), ports: [80, port], ..packet };
            teach(bench, &packet, &seen, Exit::POD);
            assert_eq!(replayed(bench, &tunnelled(&packet)), delivered(seen).bytes(), "{packet:?}");
        }
    });
}

#[test]
fn congestion_on_the_way_reaches_the_pod() {
    on_fast_bench(|bench| {
        let packet = from_peer(Packet { tos: 0xba, ..tcp() });
        taught(bench, &packet);
        for outer in 0..4 {
            let mut bytes = tunnelled(&packet);
            bytes[at::IP + 1] = outer;
            let tos = decapsulated_tos(outer, packet.tos).expect("the inner packet can say so");
            assert_eq!(replayed(bench, &bytes), delivered(Packet { tos, ..packet }).bytes(), "outer {outer}");
        }
        let deaf = from_peer(Packet { tos: 0, ..tcp() });
        let mut bytes = tunnelled(&deaf);
        bytes[at::IP + 1] = 0b11;
        left(bench, &bytes, Reason::Congested);
    });
}

#[test]
fn everything_on_the_accept_list_is_asked_for() {
    on_fast_bench(|bench| {
        let packet = from_peer(tcp());
        taught(bench, &packet);
        let good = tunnelled(&packet);
        replayed(bench, &good);
        let with = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            bytes
        };
        left(bench, &with(0, 2), Reason::NotPlain);
        left(bench, &with(at::IP, 0x46), Reason::NotTunnel);
        left(bench, &with(at::IP + 6, 0x20), Reason::OuterFragment);
        left(bench, &with(at::IP + 15, 77), Reason::UnknownVtep);
        left(bench, &with(at::IP + 19, 77), Reason::NotForUs);
        left(bench, &with(at::IP + 3, 0), Reason::NotPlain);
        left(bench, &with(at::UDP + 5, 0), Reason::NotPlain);
        left(bench, &with(at::UDP + 6, 1), Reason::OuterChecksum);
        left(bench, &with(at::VXLAN, 0x88), Reason::BadVxlanHeader);
        for reserved in [1, 2, 3, 7] {
            left(bench, &with(at::VXLAN + reserved, 1), Reason::BadVxlanHeader);
        }
        left(bench, &with(at::VXLAN + 6, 2), Reason::OtherVni);
        left(bench, &with(at::INNER + 5, 9), Reason::InnerOtherMac);
        left(bench, &with(at::INNER + 11, 9), Reason::FrameDiffers);
        let inner = at::INNER + 14;
        left(bench, &with(inner, 0x46), Reason::NotPlain);
        left(bench, &with(inner + 6, 0x20), Reason::NotPlain);
        left(bench, &with(inner + 8, 1), Reason::NotPlain);
        left(bench, &with(inner + 3, 0), Reason::NotPlain);
        left(bench, &with(inner + 14, 8), Reason::InnerOtherSource);
        left(bench, &with(inner + 32, 0x40), Reason::NotPlain);
        passes(bench, FromUnderlay, &with(inner + 21, 1), &UNKNOWN[..1]);
        for len in 64..good.len() {
            let outcome = bench.run(FromUnderlay, &good[..len]);
            assert_eq!(outcome.action, crate::bench::TC_ACT_UNSPEC, "{len} bytes: {:?}", outcome.reasons);
        }
    });
}

#[test]
fn merged_datagrams_are_the_tunnel_devices() {
    on_fast_bench(|bench| {
        let packet = from_peer(Packet { payload: 400, ..udp() });
        taught(bench, &packet);
        let bytes = tunnelled(&packet);
        bench.run_with(FromUnderlay, &bytes, 100).passed(Reason::Merged, &bytes);
    });
}

#[test]
fn packets_larger_than_the_pod_takes_are_the_kernels() {
    on_fast_bench(|bench| {
        let packet = from_peer(tcp());
        let key = key(&packet);
        let body = Body { mtu: 139, ..body(bench, &packet, &packet, Exit::POD) };
        bench.maps.flows.write(key, usable(&key, body)).expect("FLOWS");
        left(bench, &tunnelled(&packet), Reason::TooBig);
    });
}

#[test]
fn a_flow_that_does_not_lead_into_a_pod_is_the_kernels() {
    on_fast_bench(|bench| {
        let packet = from_peer(tcp());
        teach(bench, &packet, &packet, Exit::TUNNEL);
        left(bench, &tunnelled(&packet), Reason::FlowUnknown);
    });
}

#[test]
fn closing_ends_the_flow() {
    on_fast_bench(|bench| {
        let packet = from_peer(tcp());
        let key = taught(bench, &packet);
        left(bench, &tunnelled(&Packet { flags: 0x11, ..packet }), Reason::TcpControl);
        assert!(is_ended(&read(bench, &key), &key));
        left(bench, &tunnelled(&packet), Reason::FlowClosed);
    });
}

#[test]
fn a_peer_that_left_or_changed_is_not_believed() {
    on_fast_bench(|bench| {
        let packet = from_peer(tcp());
        taught(bench, &packet);
        bench.maps.peers.remove(packets::PEER_INDEX).expect("PEERS");
        left(bench, &tunnelled(&packet), Reason::InnerOtherSource);
    });
}
