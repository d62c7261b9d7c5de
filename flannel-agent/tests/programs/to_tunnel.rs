//! `to_tunnel`: what it encapsulates, and every reason for which it does not.

use etherparse::Ipv4Header;
use flannel_common::{
    abi::{
        entry_state::EntryState,
        mode::Mode,
        node::{HEARTBEAT_LIMIT_NS, NodeConfig},
        peer::{PATH_PROBE_NS, PeerEntry},
        program::Program::ToTunnel,
        reason::Reason,
    },
    packet::{PROTO_FRAGMENT, PROTO_UDP, source_port},
};
use flannel_datapath::kernel::clock;

use crate::{
    bench::{Bench, TC_ACT_REDIRECT, on_bench, on_empty_bench},
    packets::{self, BOTH, Net, OUR_MAC, PEER_MAC, V4, V6},
};

fn passes(bench: &mut Bench, packet: &[u8], reason: Reason) {
    bench.run(ToTunnel, packet).passed(reason, packet);
}

/// The packet as it was encapsulated.
#[track_caller]
fn takes(bench: &mut Bench, packet: &[u8]) -> Vec<u8> {
    let outcome = bench.run(ToTunnel, packet);
    assert_eq!(outcome.reasons, [Reason::Encapsulated]);
    assert_eq!(outcome.action, TC_ACT_REDIRECT);
    outcome.packet
}

/// The outer IP header for an inner ECN of 1, of a whole packet of `total` bytes.
fn outer_ip(net: Net, total: usize, id: [u8; 2]) -> Vec<u8> {
    let header = net.at().udp - net.at().ip;
    let mut packet = packets::ip(
        1,
        PROTO_UDP,
        net.our_vtep,
        net.peer_vtep,
        &vec![0; total - header],
    );
    packet.truncate(header);
    if let Ok((mut ipv4, _)) = Ipv4Header::from_slice(&packet) {
        ipv4.identification = u16::from_be_bytes(id);
        ipv4.header_checksum = ipv4.calc_header_checksum();
        packet = ipv4.to_bytes().to_vec();
    }
    packet
}

/// Every byte of the outer headers, against what the documentation says of them.
#[test]
fn encapsulates_once_the_path_was_seen() {
    on_bench(|bench| {
        for net in BOTH {
            let frame = net.inner_to_peer(100);
            passes(bench, &frame, Reason::PathUnseen);
            bench.validate_path(net, 100);
            let packet = takes(bench, &frame);
            let (at, total) = (net.at(), net.udp_overhead() + 100);
            let port = [packet[at.udp], packet[at.udp + 1]];
            let udp_len = u16::try_from(total - (at.udp - at.ip))
                .expect("small")
                .to_be_bytes();
            let expected = [
                [0; 12].as_slice(),
                &net.ethertype.to_be_bytes(),
                &outer_ip(net, total, [packet[18], packet[19]]),
                &port,
                &[0x21, 0x18],
                &udp_len,
                &[0, 0],
                &[0x08, 0, 0, 0, 0, 0, 1, 0],
                &PEER_MAC.0,
                &OUR_MAC.0,
                &net.ethertype.to_be_bytes(),
                &frame[14..],
            ];
            assert_eq!(packet, expected.concat());
            assert!((source_port(0, 32768, 60999)..60999).contains(&u16::from_be_bytes(port)));
        }
    });
}

#[test]
fn one_flow_keeps_its_source_port_and_no_ipv4_packet_its_identification() {
    on_bench(|bench| {
        for net in BOTH {
            bench.validate_path(net, 100);
            let udp = net.at().udp;
            let runs: Vec<_> = (0..32)
                .map(|_| takes(bench, &net.inner_to_peer(100)))
                .collect();
            assert!(
                runs.iter()
                    .all(|packet| packet[udp..udp + 2] == runs[0][udp..udp + 2])
            );
            let ids: std::collections::BTreeSet<_> =
                runs.iter().map(|packet| packet[18..20].to_vec()).collect();
            assert!(
                net.our_vtep.is_ipv6() || ids.len() > 16,
                "identifications repeat: {ids:?}"
            );
        }
    });
}

/// The kernel counts on for each segment, so the next packet's identification is behind the last
/// segment's.
#[test]
fn every_segment_has_an_identification_of_its_own() {
    const SEGMENT: u32 = 100;
    on_bench(|bench| {
        bench.validate_path(V4, 1000);
        let id = |packet: &[u8]| u16::from_be_bytes([packet[18], packet[19]]);
        let mut other = V4.inner_to_peer(100);
        other[14 + 20 + 1] ^= 1;
        for next in [V4.inner_to_peer(100), other] {
            let large = V4.inner_to_peer(900);
            let first = id(&takes(bench, &V4.inner_to_peer(100)));
            // A test run makes no room for segments of no kind; their numbers are given all the
            // same.
            bench
                .run_with(ToTunnel, &large, SEGMENT)
                .passed(Reason::RoomRefused, &large);
            let segments = u16::try_from(900 / SEGMENT).expect("small");
            let after = id(&takes(bench, &next)).wrapping_sub(first);
            assert!(
                after > segments && after < 2 * segments,
                "{after} numbers for a packet and {segments} segments"
            );
        }
    });
}

/// A rule can drop, change or route packets by their mark or priority, and leave other packets as
/// they are.
#[test]
fn the_path_is_validated_for_each_mark_and_priority() {
    on_bench(|bench| {
        for net in BOTH {
            bench.validate_path(net, 100);
            let frame = net.inner_to_peer(100);
            for (mark, priority) in [(7, 0), (0, 6), (7, 6)] {
                bench
                    .run_as(ToTunnel, &frame, mark, priority)
                    .passed(Reason::PathUnseen, &frame);
            }
            takes(bench, &frame);
        }
    });
}

/// The ECN field goes outwards, DSCP and flow label stay inside, and CE becomes ECT(0).
#[test]
fn the_outer_traffic_class_follows_rfc_6040() {
    on_bench(|bench| {
        bench.validate_path(V6, 100);
        for (inner, outer) in [(0x00, 0x00), (0xb9, 0x01), (0x02, 0x02), (0xbb, 0x02)] {
            let mut frame = V6.inner_to_peer(100);
            (frame[14], frame[15]) = (0x60 | inner >> 4, inner << 4 | 0x0a);
            let packet = takes(bench, &frame);
            assert_eq!(packet[14..18], [0x60, outer << 4, 0, 0], "inner {inner:#x}");
            let inner_at = V6.at().inner_ip;
            assert_eq!(packet[inner_at..inner_at + 2], frame[14..16]);
        }
    });
}

#[test]
fn mode_kernel_leaves_everything() {
    on_bench(|bench| {
        bench.validate_path(V4, 100);
        bench.validate_path(V6, 100);
        bench.maps.mode.set(Mode::Kernel, None).expect("MODE");
        for net in BOTH {
            passes(bench, &net.inner_to_peer(100), Reason::ModeKernel);
        }
    });
}

#[test]
fn a_minute_without_the_agent_leaves_everything() {
    on_bench(|bench| {
        bench.validate_path(V4, 100);
        bench.validate_path(V6, 100);
        for net in BOTH {
            bench
                .maps
                .config
                .write_heartbeat(clock::now_ns() - HEARTBEAT_LIMIT_NS - 1_000_000_000)
                .expect("CONFIG");
            passes(bench, &net.inner_to_peer(100), Reason::AgentGone);
            bench
                .maps
                .config
                .write_heartbeat(clock::now_ns())
                .expect("CONFIG");
            takes(bench, &net.inner_to_peer(100));
        }
    });
}

#[test]
fn a_node_that_is_not_configured_leaves_everything() {
    on_empty_bench(|bench| {
        passes(bench, &V4.inner_to_peer(100), Reason::ModeKernel);
        bench.maps.mode.set(Mode::Encap, None).expect("MODE");
        for net in BOTH {
            passes(bench, &net.inner_to_peer(100), Reason::NotConfigured);
        }
    });
}

#[test]
fn a_family_that_is_off_has_no_peers() {
    on_bench(|bench| {
        bench
            .maps
            .config
            .write(NodeConfig::default(), clock::now_ns())
            .expect("CONFIG");
        for net in BOTH {
            passes(bench, &net.inner_to_peer(100), Reason::NoPeer);
        }
    });
}

#[test]
fn other_protocols_and_cut_headers_are_the_kernels() {
    on_bench(|bench| {
        for ethertype in [0x8100, 0x0806] {
            let mut other = packets::ethernet(PEER_MAC, OUR_MAC, ethertype);
            other.extend([0; 60]);
            passes(bench, &other, Reason::OtherProtocol);
        }
        for net in BOTH {
            bench.validate_path(net, 100);
            // The kernel's test run refuses frames without a whole header; the shortest it takes
            // has no transport header.
            let bare =
                net.framed_to_peer(&packets::ip(0, PROTO_UDP, net.our_pod, net.peer_pod, &[]));
            takes(bench, &bare);
        }
    });
}

/// The data after an inner IP header matters only if the kernel has yet to segment the packet.
#[test]
fn inner_fragments_and_extension_headers_are_encapsulated_as_they_are() {
    on_bench(|bench| {
        bench.validate_path(V6, 200);
        // Hop-by-hop options, and a later fragment.
        for (next, header) in [
            (0, [PROTO_UDP, 0, 1, 4, 0, 0, 0, 0]),
            (PROTO_FRAGMENT, [PROTO_UDP, 0, 1, 1, 0, 0, 0, 7]),
        ] {
            let payload = [&header[..], &packets::udp(4000, 53, &[0xaa; 100])].concat();
            let frame = V6.framed_to_peer(&packets::ip(0, next, V6.our_pod, V6.peer_pod, &payload));
            let packet = takes(bench, &frame);
            assert_eq!(packet[V6.at().inner_ip..], frame[14..]);
        }
    });
}

#[test]
fn destinations_without_a_peer_are_the_kernels() {
    on_bench(|bench| {
        for net in BOTH {
            for destination in [net.unleased, net.outside[0], net.outside[1]] {
                let frame = net.framed_to_peer(&packets::ip(
                    0,
                    PROTO_UDP,
                    net.our_pod,
                    destination,
                    &[0; 8],
                ));
                passes(bench, &frame, Reason::NoPeer);
            }
            bench
                .peers(net)
                .remove(packets::PEER_INDEX)
                .expect("a peer map");
            passes(bench, &net.inner_to_peer(100), Reason::NoPeer);
        }
    });
}

#[test]
fn peers_without_a_plain_path_are_the_kernels() {
    on_bench(|bench| {
        for net in BOTH {
            for flags in [0, EntryState::DIRECT] {
                bench.peer(net, net.peer(), flags);
                passes(bench, &net.inner_to_peer(100), Reason::PeerNotPlain);
            }
        }
    });
}

#[test]
fn frames_the_neighbour_entry_did_not_make_are_the_kernels() {
    on_bench(|bench| {
        for net in BOTH {
            bench.validate_path(net, 100);
            for byte in 0..12 {
                let mut frame = net.inner_to_peer(100);
                frame[byte] ^= 0x10;
                passes(bench, &frame, Reason::UnexpectedMac);
            }
        }
    });
}

#[test]
fn what_was_seen_expires_and_dies_with_the_entry() {
    on_bench(|bench| {
        for net in BOTH {
            bench.validate_path(net, 100);
            let seen = bench.entry(net).seen;
            assert!(
                seen.until_ns.abs_diff(clock::now_ns() + PATH_PROBE_NS) < PATH_PROBE_NS / 2,
                "{seen:?}"
            );
            bench.peer(net, net.peer(), EntryState::PLAIN);
            passes(bench, &net.inner_to_peer(100), Reason::PathUnseen);
        }
    });
}

#[test]
fn packets_larger_than_seen_or_than_the_route_are_the_kernels() {
    on_bench(|bench| {
        for net in BOTH {
            bench.validate_path(net, 100);
            takes(bench, &net.inner_to_peer(100));
            passes(bench, &net.inner_to_peer(101), Reason::TooBig);
            bench.validate_path(net, 101);
            takes(bench, &net.inner_to_peer(101));
            let mtu = u32::try_from(net.udp_overhead() + 99).expect("small");
            bench.peer(net, PeerEntry { mtu, ..net.peer() }, EntryState::PLAIN);
            bench.validate_path(net, 100);
            passes(bench, &net.inner_to_peer(100), Reason::TooBig);
            takes(bench, &net.inner_to_peer(99));
        }
    });
}

#[test]
fn segments_count_by_their_own_size() {
    on_bench(|bench| {
        for net in BOTH {
            // A TCP header is twelve bytes longer than UDP's: segments of 100 are as long as
            // datagrams of 112. A test run has no GSO type, so room is refused where the size is
            // not.
            bench.validate_path(net, 112);
            let frame = net.inner_tcp_to_peer(1000);
            bench
                .run_with(ToTunnel, &frame, 101)
                .passed(Reason::TooBig, &frame);
            bench
                .run_with(ToTunnel, &frame, 100)
                .passed(Reason::RoomRefused, &frame);
            let frame = net.inner_to_peer(1000);
            bench
                .run_with(ToTunnel, &frame, 113)
                .passed(Reason::TooBig, &frame);
            bench
                .run_with(ToTunnel, &frame, 112)
                .passed(Reason::RoomRefused, &frame);
            let other =
                net.framed_to_peer(&packets::ip(0, 1, net.our_pod, net.peer_pod, &[0; 500]));
            bench
                .run_with(ToTunnel, &other, 100)
                .passed(Reason::GsoOther, &other);
        }
        // TCP behind an extension header.
        let payload = [&[6, 0, 1, 4, 0, 0, 0, 0][..], &packets::tcp(&[0xaa; 500])].concat();
        let frame = V6.framed_to_peer(&packets::ip(0, 0, V6.our_pod, V6.peer_pod, &payload));
        bench
            .run_with(ToTunnel, &frame, 50)
            .passed(Reason::GsoOther, &frame);
    });
}
