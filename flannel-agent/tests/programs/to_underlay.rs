//! `to_underlay`: what it learns from the kernel's own tunnel packets, of either family.

use std::{thread::sleep, time::Duration};

use flannel_common::abi::{
    entry_state::EntryState,
    guard::{Checks, GuardMode},
    mode::Mode,
    node::HEARTBEAT_LIMIT_NS,
    peer::{PathProbe, PeerEntry},
    program::Program::{ToTunnel, ToUnderlay},
    reason::Reason,
};
use flannel_datapath::kernel::clock;

use crate::{
    bench::{Bench, TC_ACT_SHOT, on_bench},
    packets::{self, BOTH, Net, V4, V6, first_fragment, later_fragment, with_options},
};

fn says(bench: &mut Bench, packet: &[u8], reason: Reason) {
    bench.run(ToUnderlay, packet).passed(reason, packet);
}

fn with(net: Net, at: usize, value: u8) -> Vec<u8> {
    let mut packet = net.tunnel_to_peer(&net.inner_to_peer(100));
    packet[at] = value;
    packet
}

#[test]
fn a_plain_packet_validates_the_path_for_its_size() {
    on_bench(|bench| {
        for net in BOTH {
            says(
                bench,
                &net.tunnel_to_peer(&net.inner_to_peer(100)),
                Reason::PathSeen,
            );
            let len = |payload: usize| u32::try_from(net.udp_overhead() + payload).expect("small");
            let first = bench.entry(net);
            assert_eq!(
                (first.seen.word, first.seen.max_len),
                (first.word, len(100))
            );
            says(
                bench,
                &net.tunnel_to_peer(&net.inner_to_peer(300)),
                Reason::PathSeen,
            );
            says(
                bench,
                &net.tunnel_to_peer(&net.inner_to_peer(50)),
                Reason::PathSeen,
            );
            let later = bench.entry(net).seen;
            assert_eq!(
                later,
                PathProbe {
                    max_len: len(300),
                    ..first.seen
                },
                "size grows, the window does not"
            );
        }
    });
}

#[test]
fn a_path_of_one_family_says_nothing_of_the_other() {
    on_bench(|bench| {
        bench.validate_path(V6, 100);
        assert_eq!(bench.entry(V4).seen, PathProbe::default());
        bench.validate_path(V4, 100);
        says(bench, &with(V6, V6.at().ip + 7, 63), Reason::PathDiffers);
        let frame = V4.inner_to_peer(100);
        assert_eq!(bench.run(ToTunnel, &frame).reasons, [Reason::Encapsulated]);
    });
}

/// Bytes of the outer IP header that our recipe fixes, each with a value that is not it.
fn wrong_bytes(net: Net) -> Vec<(usize, u8)> {
    let ip = net.at().ip;
    if net.our_vtep.is_ipv4() {
        // TOS (DSCP set by a rule), DF, TTL.
        vec![(ip + 1, 0x21), (ip + 6, 0x40), (ip + 8, 63)]
    } else {
        // Traffic class in both its bytes, flow label in all of its, hop limit.
        vec![
            (ip, 0x62),
            (ip + 1, 0x50),
            (ip + 1, 0x11),
            (ip + 2, 1),
            (ip + 3, 1),
            (ip + 7, 63),
        ]
    }
}

#[test]
fn a_packet_that_differs_withdraws_trust_for_a_while() {
    on_bench(|bench| {
        for net in BOTH {
            let at = net.at();
            // Source (SNAT), destination, inner Ethernet addresses.
            let addresses = [
                (at.addresses + net.address_len() - 1, 7),
                (at.addresses, 7),
                (at.udp - 1, 9),
            ];
            let frame = [(at.inner + 5, 9), (at.inner + 11, 9)];
            for (byte, value) in [wrong_bytes(net).as_slice(), &addresses, &frame].concat() {
                bench.peer(net, net.peer(), EntryState::PLAIN);
                bench.validate_path(net, 100);
                says(bench, &with(net, byte, value), Reason::PathDiffers);
                let frame = net.inner_to_peer(100);
                bench
                    .run(ToTunnel, &frame)
                    .passed(Reason::PathUnseen, &frame);
                says(
                    bench,
                    &net.tunnel_to_peer(&net.inner_to_peer(100)),
                    Reason::PathHeld,
                );
                bench
                    .run(ToTunnel, &frame)
                    .passed(Reason::PathUnseen, &frame);
            }
        }
    });
}

/// A rule between the tunnel device and the external interface changed the mark. The packet says
/// nothing about packets that the rule does not match.
#[test]
fn a_packet_that_changed_its_mark_on_the_way_says_nothing() {
    on_bench(|bench| {
        for net in BOTH {
            let packet = net.tunnel_to_peer(&net.inner_to_peer(100));
            for (mark, priority) in [(7, 0), (0, 6)] {
                bench
                    .run_as(ToUnderlay, &packet, mark, priority)
                    .passed(Reason::ClassChanged, &packet);
                assert_eq!(bench.entry(net).seen, PathProbe::default());
            }
        }
    });
}

/// In mode `kernel` packets carry no tag of what they were at the tunnel device.
#[test]
fn mode_kernel_says_nothing_of_the_path() {
    on_bench(|bench| {
        bench.maps.mode.set(Mode::Kernel, None).expect("MODE");
        for net in BOTH {
            says(
                bench,
                &net.tunnel_to_peer(&net.inner_to_peer(100)),
                Reason::ModeKernel,
            );
            assert_eq!(bench.entry(net).seen, PathProbe::default());
        }
    });
}

/// Masquerade gives such a packet the node's address, and the peer's guard takes it for the node's.
#[test]
fn a_pod_does_not_speak_vxlan_for_its_node() {
    on_bench(|bench| {
        for net in BOTH {
            let at = net.at();
            let forged = net.tunnel_to_peer(&net.inner_to_peer(100));
            let with = |at: usize, value: u8| {
                let mut packet = forged.clone();
                packet[at] = value;
                packet
            };
            let forms = [
                forged.clone(),
                with_options(net, &forged),
                first_fragment(net, &forged),
            ];
            for mode in GuardMode::ALL {
                bench
                    .maps
                    .guard
                    .set(
                        Checks {
                            outer: mode,
                            inner: mode,
                        },
                        Checks::default(),
                    )
                    .expect("GUARD");
                for packet in &forms {
                    let outcome = bench.run_forwarded(ToUnderlay, packet);
                    match mode {
                        GuardMode::Off => outcome.passed(Reason::NotTunnel, packet),
                        GuardMode::Audit => outcome.passed(Reason::PodTunnel, packet),
                        GuardMode::Enforce => {
                            assert_eq!(
                                (outcome.action, outcome.reasons),
                                (TC_ACT_SHOT, vec![Reason::RefusedPodTunnel])
                            );
                        }
                    }
                }
                // To another host, another port, of another VNI; an answer too short for VXLAN;
                // from the host itself.
                let elsewhere = with(at.addresses + 2 * net.address_len() - 1, 99);
                let short = forged[..at.vxlan + 4].to_vec();
                for packet in [
                    elsewhere,
                    with(at.udp + 3, 53),
                    with(at.vxlan + 6, 2),
                    short,
                ] {
                    bench
                        .run_forwarded(ToUnderlay, &packet)
                        .passed(Reason::NotTunnel, &packet);
                }
                says(bench, &forged, Reason::PathSeen);
            }
        }
    });
}

/// The kernel gives the memory of a packet that was redirected and dropped on its way to a pod's
/// packet.
#[test]
fn a_pods_packet_is_not_taken_for_a_redirected_one_that_never_came() {
    on_bench(|bench| {
        let enforced = Checks {
            outer: GuardMode::Enforce,
            inner: GuardMode::Off,
        };
        bench
            .maps
            .guard
            .set(enforced, Checks::default())
            .expect("GUARD");
        for net in BOTH {
            let (inner, forged) = (
                net.inner_to_peer(100),
                net.tunnel_to_peer(&net.inner_to_peer(100)),
            );
            for _ in 0..20 {
                bench.validate_path(net, 100);
                assert_eq!(bench.run(ToTunnel, &inner).reasons, [Reason::Encapsulated]);
                // The time after which it is not expected any more.
                sleep(Duration::from_millis(30));
                let outcome = bench.run_forwarded(ToUnderlay, &forged);
                assert_eq!(outcome.reasons, [Reason::RefusedPodTunnel]);
            }
        }
    });
}

/// The vxlan device computes a checksum over either family, we compute none.
#[test]
fn the_udp_checksum_may_differ() {
    on_bench(|bench| {
        for net in BOTH {
            for value in [0, 0xff] {
                let at = net.at().udp + 6;
                let mut packet = with(net, at, value);
                packet[at + 1] = value;
                says(bench, &packet, Reason::PathSeen);
            }
        }
    });
}

#[test]
fn another_device_is_another_path() {
    on_bench(|bench| {
        for net in BOTH {
            bench.peer(
                net,
                PeerEntry {
                    oif: packets::LO + 1,
                    ..net.peer()
                },
                EntryState::PLAIN,
            );
            says(
                bench,
                &net.tunnel_to_peer(&net.inner_to_peer(100)),
                Reason::PathDiffers,
            );
        }
    });
}

#[test]
fn a_fragmented_packet_withdraws_trust() {
    on_bench(|bench| {
        for net in BOTH {
            bench.validate_path(net, 100);
            let packet = net.tunnel_to_peer(&net.inner_to_peer(100));
            says(bench, &first_fragment(net, &packet), Reason::PathFragmented);
            let frame = net.inner_to_peer(100);
            bench
                .run(ToTunnel, &frame)
                .passed(Reason::PathUnseen, &frame);
            says(bench, &packet, Reason::PathHeld);
        }
    });
}

/// A later fragment of IPv4 is known where its payload happens to show the port; one of IPv6 never
/// is.
#[test]
fn later_fragments_say_nothing() {
    on_bench(|bench| {
        for (net, reason) in [(V4, Reason::OuterFragment), (V6, Reason::NotTunnel)] {
            bench.validate_path(net, 100);
            let seen = bench.entry(net).seen;
            says(
                bench,
                &later_fragment(net, &net.tunnel_to_peer(&net.inner_to_peer(100))),
                reason,
            );
            assert_eq!(bench.entry(net).seen, seen);
        }
    });
}

#[test]
fn other_packets_teach_nothing() {
    on_bench(|bench| {
        for net in BOTH {
            let at = net.at();
            says(bench, &with(net, at.udp + 3, 53), Reason::NotTunnel);
            says(bench, &with(net, at.vxlan + 6, 2), Reason::OtherVni);
            says(bench, &with(net, at.vxlan, 0x88), Reason::BadVxlanHeader);
            says(
                bench,
                &with(net, at.inner + 13, 0x06),
                Reason::OtherProtocol,
            );
            let fragment = |packet: Vec<u8>| first_fragment(net, &packet);
            says(
                bench,
                &fragment(with(net, at.udp + 3, 53)),
                Reason::NotTunnel,
            );
            says(
                bench,
                &fragment(with(net, at.vxlan + 6, 2)),
                Reason::OtherVni,
            );
            let unleased = packets::ip(0, 17, net.our_pod, net.unleased, &[0; 8]);
            says(
                bench,
                &net.tunnel_to_peer(&net.framed_to_peer(&unleased)),
                Reason::NoPeer,
            );
            let cut = with(net, at.ip, if net.our_vtep.is_ipv4() { 0x45 } else { 0x60 })
                [..at.inner_ip + 6]
                .to_vec();
            says(bench, &cut, Reason::Malformed);
        }
        bench
            .maps
            .config
            .write_heartbeat(clock::now_ns() - HEARTBEAT_LIMIT_NS - 1_000_000_000)
            .expect("CONFIG");
        for net in BOTH {
            says(
                bench,
                &net.tunnel_to_peer(&net.inner_to_peer(100)),
                Reason::AgentGone,
            );
            assert_eq!(bench.entry(net).seen, PathProbe::default());
        }
    });
}
