//! `to_tunnel`: what it encapsulates, and every reason for which it does not.

use flannel_agent::datapath::clock;
use flannel_common::{
    mode::Mode,
    node::{HEARTBEAT_LIMIT_NS, NodeConfig},
    outer::{Varying, build_v4},
    packet::{PROTO_UDP, source_port},
    peer::{PATH_SEEN_NS, PeerEntry, Word},
    program::Program::ToTunnel,
    reason::Reason,
};

use crate::{
    bench::{Bench, TC_ACT_REDIRECT, on_bench, on_empty_bench},
    packets::{self, framed_to_peer, inner_tcp_to_peer, inner_to_peer, ipv4},
};

fn passes(bench: &mut Bench, packet: &[u8], reason: Reason) {
    bench.run(ToTunnel, packet).passed(reason, packet);
}

#[test]
fn encapsulates_once_the_path_was_seen() {
    on_bench(|bench| {
        let frame = inner_to_peer(100);
        passes(bench, &frame, Reason::PathUnseen);
        bench.vouch(100);
        let outcome = bench.run(ToTunnel, &frame);
        assert_eq!(outcome.reasons, [Reason::Encapsulated]);
        assert_eq!(outcome.action, TC_ACT_REDIRECT);
        let port = u16::from_be_bytes([outcome.packet[34], outcome.packet[35]]);
        let varying = Varying {
            frame_len: u32::try_from(frame.len()).expect("small"),
            inner_tos: 0xb9,
            id: u16::from_be_bytes([outcome.packet[18], outcome.packet[19]]),
            source_port: port,
        };
        let outer = build_v4(&packets::family(), &packets::peer(), &varying);
        assert_eq!(outcome.packet, [outer.as_slice(), &frame[14..]].concat());
        assert!((source_port(0, 32768, 60999)..60999).contains(&port));
    });
}

#[test]
fn one_flow_keeps_its_source_port_and_no_packet_its_identification() {
    on_bench(|bench| {
        bench.vouch(100);
        let runs: Vec<_> = (0..32).map(|_| bench.run(ToTunnel, &inner_to_peer(100)).packet).collect();
        assert!(runs.iter().all(|packet| packet[34..36] == runs[0][34..36]));
        let ids: std::collections::BTreeSet<_> = runs.iter().map(|packet| packet[18..20].to_vec()).collect();
        assert!(ids.len() > 16, "identifications repeat: {ids:?}");
    });
}

#[test]
fn mode_kernel_leaves_everything() {
    on_bench(|bench| {
        bench.vouch(100);
        bench.maps.mode.set(Mode::Kernel, None).expect("MODE");
        passes(bench, &inner_to_peer(100), Reason::ModeKernel);
    });
}

#[test]
fn a_minute_without_the_agent_leaves_everything() {
    on_bench(|bench| {
        bench.vouch(100);
        bench.maps.config.beat(clock::now_ns() - HEARTBEAT_LIMIT_NS - 1_000_000_000).expect("CONFIG");
        passes(bench, &inner_to_peer(100), Reason::AgentGone);
        bench.maps.config.beat(clock::now_ns()).expect("CONFIG");
        assert_eq!(bench.run(ToTunnel, &inner_to_peer(100)).reasons, [Reason::Encapsulated]);
    });
}

#[test]
fn a_node_that_is_not_configured_leaves_everything() {
    on_empty_bench(|bench| {
        passes(bench, &inner_to_peer(100), Reason::ModeKernel);
        bench.maps.mode.set(Mode::Encap, None).expect("MODE");
        passes(bench, &inner_to_peer(100), Reason::NotConfigured);
    });
}

#[test]
fn a_family_that_is_off_has_no_peers() {
    on_bench(|bench| {
        bench.maps.config.write(NodeConfig::default(), clock::now_ns()).expect("CONFIG");
        passes(bench, &inner_to_peer(100), Reason::NoPeer);
    });
}

#[test]
fn other_protocols_and_cut_headers_are_the_kernels() {
    on_bench(|bench| {
        bench.vouch(100);
        let mut ipv6 = packets::ethernet(packets::PEER_MAC, packets::OUR_MAC, 0x86dd);
        ipv6.extend([0x60; 60]);
        passes(bench, &ipv6, Reason::OtherProtocol);
        let mut vlan = packets::ethernet(packets::PEER_MAC, packets::OUR_MAC, 0x8100);
        vlan.extend([0; 60]);
        passes(bench, &vlan, Reason::OtherProtocol);
        // The kernel's test run refuses IPv4 frames without a whole header; the shortest it takes has no transport header.
        let bare = framed_to_peer(&ipv4(0, PROTO_UDP, packets::OUR_POD, packets::PEER_POD, &[]));
        assert_eq!(bench.run(ToTunnel, &bare).reasons, [Reason::Encapsulated]);
    });
}

#[test]
fn destinations_without_a_peer_are_the_kernels() {
    on_bench(|bench| {
        for destination in [[10, 244, 8, 9], [10, 245, 7, 9], [8, 8, 8, 8]] {
            let frame = framed_to_peer(&ipv4(0, PROTO_UDP, packets::OUR_POD, destination.into(), &[0; 8]));
            passes(bench, &frame, Reason::NoPeer);
        }
        bench.maps.peers.remove(packets::PEER_INDEX).expect("PEERS");
        passes(bench, &inner_to_peer(100), Reason::NoPeer);
    });
}

#[test]
fn peers_without_a_plain_path_are_the_kernels() {
    on_bench(|bench| {
        for flags in [0, Word::DIRECT] {
            bench.peer(packets::peer(), flags);
            passes(bench, &inner_to_peer(100), Reason::PeerNotPlain);
        }
    });
}

#[test]
fn frames_the_neighbour_entry_did_not_make_are_the_kernels() {
    on_bench(|bench| {
        bench.vouch(100);
        for byte in 0..12 {
            let mut frame = inner_to_peer(100);
            frame[byte] ^= 0x10;
            passes(bench, &frame, Reason::ForeignFrame);
        }
    });
}

#[test]
fn what_was_seen_expires_and_dies_with_the_entry() {
    on_bench(|bench| {
        bench.vouch(100);
        let seen = bench.entry().seen;
        assert!(seen.until_ns.abs_diff(clock::now_ns() + PATH_SEEN_NS) < PATH_SEEN_NS / 2, "{seen:?}");
        bench.peer(packets::peer(), Word::PLAIN);
        passes(bench, &inner_to_peer(100), Reason::PathUnseen);
    });
}

#[test]
fn packets_larger_than_seen_or_than_the_route_are_the_kernels() {
    on_bench(|bench| {
        bench.vouch(100);
        assert_eq!(bench.run(ToTunnel, &inner_to_peer(100)).reasons, [Reason::Encapsulated]);
        passes(bench, &inner_to_peer(101), Reason::TooBig);
        bench.vouch(101);
        assert_eq!(bench.run(ToTunnel, &inner_to_peer(101)).reasons, [Reason::Encapsulated]);
        // 28 bytes of inner headers and 50 of overhead: 100 bytes of payload make 178.
        bench.peer(PeerEntry { mtu: 177, ..packets::peer() }, Word::PLAIN);
        bench.vouch(100);
        passes(bench, &inner_to_peer(100), Reason::TooBig);
        assert_eq!(bench.run(ToTunnel, &inner_to_peer(99)).reasons, [Reason::Encapsulated]);
    });
}

#[test]
fn segments_count_by_their_own_size() {
    on_bench(|bench| {
        // 40 bytes of headers, 50 of overhead: segments of 100 make 190 bytes, of which 162 bytes of UDP payload are the
        // largest seen. A test run has no GSO type, so room is refused where the size is not.
        bench.vouch(190 - 78);
        let frame = inner_tcp_to_peer(1000);
        bench.run_with(ToTunnel, &frame, 101).passed(Reason::TooBig, &frame);
        bench.run_with(ToTunnel, &frame, 100).passed(Reason::RoomRefused, &frame);
        let icmp = framed_to_peer(&ipv4(0, 1, packets::OUR_POD, packets::PEER_POD, &[0; 500]));
        bench.run_with(ToTunnel, &icmp, 100).passed(Reason::GsoOther, &icmp);
    });
}
