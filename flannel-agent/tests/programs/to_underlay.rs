//! `to_underlay`: what it learns from the kernel's own tunnel packets.

use flannel_agent::datapath::clock;
use flannel_common::{
    node::HEARTBEAT_LIMIT_NS,
    peer::{PathSeen, PeerEntry, Word},
    program::Program::{ToTunnel, ToUnderlay},
    reason::Reason,
};

use crate::{
    bench::{Bench, on_bench},
    packets::{self, at, inner_to_peer, tunnel_to_peer},
};

fn says(bench: &mut Bench, packet: &[u8], reason: Reason) {
    bench.run(ToUnderlay, packet).passed(reason, packet);
}

fn with(at: usize, value: u8) -> Vec<u8> {
    let mut packet = tunnel_to_peer(&inner_to_peer(100));
    packet[at] = value;
    packet
}

#[test]
fn a_plain_packet_vouches_for_its_size() {
    on_bench(|bench| {
        says(bench, &tunnel_to_peer(&inner_to_peer(100)), Reason::PathSeen);
        let first = bench.entry();
        assert_eq!((first.seen.word, first.seen.max_len), (first.word, 178));
        says(bench, &tunnel_to_peer(&inner_to_peer(300)), Reason::PathSeen);
        says(bench, &tunnel_to_peer(&inner_to_peer(50)), Reason::PathSeen);
        let later = bench.entry().seen;
        assert_eq!(later, PathSeen { max_len: 378, ..first.seen }, "size grows, the window does not");
    });
}

#[test]
fn a_packet_that_differs_withdraws_trust_for_a_while() {
    on_bench(|bench| {
        // TOS (DSCP set by a rule), DF, TTL, source (SNAT), destination, inner Ethernet addresses.
        for (byte, value) in [
            (at::IP + 1, 0x21),
            (at::IP + 6, 0x40),
            (at::IP + 8, 63),
            (at::IP + 15, 7),
            (at::IP + 19, 9),
            (at::INNER + 5, 9),
            (at::INNER + 11, 9),
        ] {
            bench.peer(packets::peer(), Word::PLAIN);
            bench.vouch(100);
            says(bench, &with(byte, value), Reason::PathDiffers);
            let frame = inner_to_peer(100);
            bench.run(ToTunnel, &frame).passed(Reason::PathUnseen, &frame);
            says(bench, &tunnel_to_peer(&inner_to_peer(100)), Reason::PathHeld);
            bench.run(ToTunnel, &frame).passed(Reason::PathUnseen, &frame);
        }
    });
}

#[test]
fn another_device_is_another_path() {
    on_bench(|bench| {
        bench.peer(PeerEntry { oif: packets::LO + 1, ..packets::peer() }, Word::PLAIN);
        says(bench, &tunnel_to_peer(&inner_to_peer(100)), Reason::PathDiffers);
    });
}

#[test]
fn a_fragmented_packet_withdraws_trust() {
    on_bench(|bench| {
        bench.vouch(100);
        says(bench, &with(at::IP + 6, 0x20), Reason::PathFragmented);
        let frame = inner_to_peer(100);
        bench.run(ToTunnel, &frame).passed(Reason::PathUnseen, &frame);
        says(bench, &with(at::IP + 7, 0x10), Reason::OuterFragment);
    });
}

#[test]
fn other_packets_teach_nothing() {
    on_bench(|bench| {
        says(bench, &with(at::UDP + 3, 53), Reason::NotTunnel);
        says(bench, &with(at::VXLAN + 6, 2), Reason::OtherVni);
        says(bench, &with(at::VXLAN, 0x88), Reason::BadVxlanHeader);
        says(bench, &with(at::INNER + 12, 0x86), Reason::OtherProtocol);
        // Inner destination in a subnet without a peer.
        says(bench, &with(at::INNER + 14 + 18, 9), Reason::NoPeer);
        bench.maps.config.beat(clock::now_ns() - HEARTBEAT_LIMIT_NS - 1_000_000_000).expect("CONFIG");
        says(bench, &tunnel_to_peer(&inner_to_peer(100)), Reason::AgentGone);
        assert_eq!(bench.entry().seen, PathSeen::default());
    });
}
