//! `from_pod`: what it sends on, and every reason for which it does not.

use std::net::IpAddr;

use flannel_common::{
    abi::{
        entry_state::EntryState,
        fast::{FastConfig, PodEntry},
        mode::Mode,
        node::REPLAY_LIMIT_NS,
        peer::PeerEntry,
        program::Program::{FromPod, ToTunnel},
        reason::Reason,
        tick::tick,
    },
    flow::{Egress, Flow, FlowAction},
    flow::{expiry::Expiry, flow_key::FlowKey},
    packet::{PROTO_TCP, source_port},
    packet::{
        ip::{IpHeader, Ipv4Header, Ipv6Header, Varying},
        outer::OuterHeaders,
    },
};
use flannel_datapath::kernel::clock;

use super::{
    BRIDGE_MAC, HASH, OTHER_VETH, POD_MAC, UNKNOWN, action, both, hints, is_ended, key,
    packet::{ChecksumField, Packet, kinds, service, tcp, udp},
    passes, read, stamp_of_another, teach, usable, write,
};
use crate::{
    bench::{Bench, TC_ACT_REDIRECT},
    ecmp_paths,
    packets::{self, LO, Net, PEER_INDEX},
};

/// Runs `from_pod`, checks that the packet is replayed, and returns it as sent.
#[track_caller]
fn replayed(bench: &mut Bench, packet: &Packet) -> Vec<u8> {
    let outcome = bench.run(FromPod, &packet.bytes());
    assert_eq!(
        (outcome.reasons.as_slice(), outcome.action),
        ([Reason::Replayed].as_slice(), TC_ACT_REDIRECT)
    );
    outcome.packet
}

/// The tunnel packet around a packet whose Ethernet header the tunnel replaces; identification and
/// port are as found.
fn tunnelled(net: Net, inner: &Packet, found: &[u8]) -> Vec<u8> {
    let frame = inner.bytes();
    let at = net.at();
    let varying = Varying {
        frame_len: u32::try_from(frame.len()).expect("small"),
        inner_tos: inner.tos,
        id: u16::from_be_bytes([found[at.ip + 4], found[at.ip + 5]]),
        source_port: u16::from_be_bytes([found[at.udp], found[at.udp + 1]]),
    };
    let outer = match net.our_vtep {
        IpAddr::V4(_) => outer::<Ipv4Header>(net, &varying),
        IpAddr::V6(_) => outer::<Ipv6Header>(net, &varying),
    };
    [outer, frame[14..].to_vec()].concat()
}

fn outer<I: IpHeader>(net: Net, varying: &Varying) -> Vec<u8> {
    let mut bytes = vec![0xff; OuterHeaders::<I>::LEN];
    // SAFETY: the headers are plain bytes, and `bytes` is exactly as long as they are.
    let headers = unsafe { &mut *bytes.as_mut_ptr().cast::<OuterHeaders<I>>() };
    headers.write(&net.family(), &net.peer(), varying);
    bytes
}

/// The packet as the other pod gets it.
const fn delivered(packet: Packet) -> Packet {
    Packet {
        to: POD_MAC,
        from: BRIDGE_MAC,
        ..packet.routed()
    }
}

both! {
    fn into_the_tunnel_as_routed<A>(bench) {
        for packet in kinds(A::NET) {
            let key = teach::<A>(bench, &packet, &packet, Egress::TUNNEL);
            let found = replayed(bench, &packet);
            assert_eq!(found, tunnelled(A::NET, &packet.routed(), &found), "{packet:?}");
            assert_eq!(read::<A>(bench, &key).used(), 1);
        }
    }

    fn into_the_tunnel_translated<A>(bench) {
        for packet in kinds(A::NET) {
            let sent = packet.to_service();
            for to in [packet, Packet { source: service(A::NET), ports: [1, 2], ..packet }] {
                teach::<A>(bench, &sent, &to, Egress::TUNNEL);
                let found = replayed(bench, &sent);
                assert_eq!(found, tunnelled(A::NET, &to.routed(), &found), "{sent:?} as {to:?}");
            }
        }
    }

    fn into_another_pod_of_the_node<A>(bench) {
        for packet in kinds(A::NET) {
            for sent in [packet, packet.to_service()] {
                teach::<A>(bench, &sent, &packet, Egress::POD);
                assert_eq!(replayed(bench, &sent), delivered(packet).bytes(), "{sent:?}");
            }
        }
    }

    fn the_source_port_is_that_of_the_flow_as_the_kernel_hashed_it<A>(bench) {
        let packet = tcp(A::NET);
        let key = teach::<A>(bench, &packet, &packet, Egress::TUNNEL);
        let known = read::<A>(bench, &key).action;
        let port = |packet: &[u8]| {
            u16::from_be_bytes([packet[A::NET.at().udp], packet[A::NET.at().udp + 1]])
        };
        assert_eq!(
            port(&replayed(bench, &packet)),
            source_port(HASH, 32768, 60999)
        );
        let other = FlowAction {
            egress_data: !HASH,
            ..known
        };
        write(bench, key, usable(&key, other));
        assert_eq!(
            port(&replayed(bench, &packet)),
            source_port(!HASH, 32768, 60999)
        );
    }

    /// A rule can match on them, and only packets like the one observed are known to meet the same
    /// rules.
    fn packets_with_another_dscp_ttl_or_flow_label_are_the_kernels<A>(bench) {
        for way in [Egress::TUNNEL, Egress::POD] {
            for packet in [tcp(A::NET), udp(A::NET).to_service()] {
                let out = Packet {
                    source: packet.source,
                    ..tcp(A::NET)
                };
                let out = Packet {
                    protocol: packet.protocol,
                    ..out
                };
                let key = teach::<A>(bench, &packet, &out, way);
                for other in [
                    Packet {
                        tos: packet.tos ^ 0x04,
                        ..packet
                    },
                    Packet {
                        tos: packet.tos ^ 0x80,
                        ..packet
                    },
                ] {
                    passes(bench, FromPod, &other.bytes(), &[Reason::FieldsDiffer]);
                }
                for ttl in [2, 63, 65, 255] {
                    passes(
                        bench,
                        FromPod,
                        &Packet { ttl, ..packet }.bytes(),
                        &[Reason::FieldsDiffer],
                    );
                }
                for ecn in 0..4 {
                    replayed(
                        bench,
                        &Packet {
                            tos: packet.tos & 0xfc | ecn,
                            ..packet
                        },
                    );
                }
                let labelled = FlowAction {
                    flow_label: 0x0100,
                    ..read::<A>(bench, &key).action
                };
                write(bench, key, usable(&key, labelled));
                passes(bench, FromPod, &packet.bytes(), &[Reason::FieldsDiffer]);
            }
        }
    }

    /// From a packet that userspace had held the flow may have been learned; the agent sees a
    /// moment later.
    fn a_new_flow_is_used_once_the_agent_has_confirmed_it<A>(bench) {
        let packet = tcp(A::NET);
        let key = teach::<A>(bench, &packet, &packet, Egress::TUNNEL);
        let now = tick(clock::now_ns());
        let mut flow = read::<A>(bench, &key);
        flow.stamp(flow.action.check(&key), now, now + 2000, Some(now + 2000));
        write(bench, key, flow);
        bench.maps.config.confirm(now).expect("CONFIG");
        passes(bench, FromPod, &packet.bytes(), &[Reason::Unconfirmed]);
        bench.maps.config.confirm(now + 1).expect("CONFIG");
        replayed(bench, &packet);
        bench.maps.config.confirm(now).expect("CONFIG");
        replayed(bench, &packet);
        assert_eq!(read::<A>(bench, &key).used(), 2);
    }

    /// Qdiscs, filters, listeners and sysctls are the agent's to see; the tunnel itself needs no
    /// agent for a minute.
    fn without_an_agent_flows_are_replayed_for_seconds_only<A>(bench) {
        let packet = tcp(A::NET);
        teach::<A>(bench, &packet, &packet, Egress::TUNNEL);
        bench
            .maps
            .config
            .write_heartbeat(clock::now_ns() - REPLAY_LIMIT_NS + 1_000_000_000)
            .expect("CONFIG");
        replayed(bench, &packet);
        bench
            .maps
            .config
            .write_heartbeat(clock::now_ns() - REPLAY_LIMIT_NS - 1_000_000_000)
            .expect("CONFIG");
        passes(bench, FromPod, &packet.bytes(), &[Reason::AgentLate]);
        let frame = A::NET.inner_to_peer(100);
        assert_eq!(bench.run(ToTunnel, &frame).reasons, [Reason::Encapsulated]);
    }

    /// A rule on the way out can match on them. That they are replayed where the path was seen is
    /// shown between nodes.
    fn the_path_is_validated_for_the_mark_and_priority_seen_at_the_exit<A>(bench) {
        let packet = udp(A::NET);
        let key = key::<A>(&packet);
        let plain = action(bench, &packet, &packet, Egress::TUNNEL);
        for (mark, priority) in [(0x42, 0), (0, 6), (0x42, 0x1_0007)] {
            write(bench, key, usable(&key, FlowAction { mark, priority, ..plain }));
            passes(bench, FromPod, &packet.bytes(), &[Reason::PathUnseen]);
        }
        write(bench, key, usable(&key, plain));
        assert_eq!(bench.class_behind(FromPod, &packet.bytes()), [0, 0], "into the tunnel");
        teach::<A>(bench, &packet, &packet, Egress::POD);
        assert_eq!(bench.class_behind(FromPod, &packet.bytes()), [0, 0], "into another pod");
    }

    fn bridged_packets_keep_their_ttl<A>(bench) {
        let packet = tcp(A::NET);
        let key = key::<A>(&packet);
        let action = FlowAction {
            ttl_step: 0,
            ..action(bench, &packet, &packet, Egress::POD)
        };
        write(bench, key, usable(&key, action));
        assert_eq!(
            replayed(bench, &packet),
            Packet {
                ttl: packet.ttl,
                ..delivered(packet)
            }
            .bytes()
        );
    }

    fn unknown_flows_are_noted_now_and_then<A>(bench) {
        let packet = tcp(A::NET).bytes();
        let reasons: Vec<_> = (0..256).map(|_| bench.run(FromPod, &packet).reasons[0]).collect();
        assert!(reasons.iter().all(|reason| UNKNOWN.contains(reason)), "{reasons:?}");
        let noted = reasons.iter().filter(|reason| **reason == Reason::Sampled).count();
        assert!((4..96).contains(&noted), "{noted} of 256; one in eight is meant");
    }

    fn another_pods_packets_are_another_flow<A>(bench) {
        let packet = tcp(A::NET);
        let other = FlowKey { device: OTHER_VETH, ..key::<A>(&packet) };
        let action = action(bench, &packet, &packet, Egress::TUNNEL);
        write(bench, other, usable(&other, action));
        passes(bench, FromPod, &packet.bytes(), &UNKNOWN);
    }

    fn frames_that_are_not_as_seen_are_the_kernels<A>(bench) {
        let packet = tcp(A::NET);
        teach::<A>(bench, &packet, &packet, Egress::TUNNEL);
        for byte in 0..12 {
            let mut frame = packet.bytes();
            frame[byte] ^= 0x10;
            passes(bench, FromPod, &frame, &[Reason::FrameDiffers]);
        }
    }

    fn packets_that_are_not_plain_are_the_kernels<A>(bench) {
        let packet = tcp(A::NET);
        teach::<A>(bench, &packet, &packet, Egress::TUNNEL);
        passes(
            bench,
            FromPod,
            &Packet { ttl: 1, ..packet }.bytes(),
            &[Reason::NotPlain],
        );
        passes(
            bench,
            FromPod,
            &Packet {
                protocol: 1,
                ..packet
            }
            .bytes(),
            &[Reason::OtherTransport],
        );
        let mut padded = packet.bytes();
        padded.push(0);
        passes(bench, FromPod, &padded, &[Reason::NotPlain]);
        // IPv4: options, more fragments. IPv6: hop-by-hop options, a fragment header.
        let changes = if A::NET.our_pod.is_ipv4() {
            [(14, 0x46, Reason::NotPlain), (20, 0x20, Reason::Fragment)]
        } else {
            [(20, 0, Reason::OtherTransport), (20, 44, Reason::Fragment)]
        };
        for (byte, value, reason) in changes {
            let mut frame = packet.bytes();
            frame[byte] = value;
            passes(bench, FromPod, &frame, &[reason]);
        }
        let mut arp = packets::ethernet(BRIDGE_MAC, POD_MAC, 0x0806);
        arp.extend([0; 28]);
        passes(bench, FromPod, &arp, &[Reason::OtherProtocol]);
    }

    fn a_flow_is_used_while_it_and_its_way_back_were_seen_of_late<A>(bench) {
        let packet = tcp(A::NET);
        let key = teach::<A>(bench, &packet, &packet, Egress::TUNNEL);
        let good = read(bench, &key);
        let (now, check) = (tick(clock::now_ns()), good.action.check(&key));
        let (late, closed) = (Expiry::until(check, now), Expiry::closed(check, now + 2000));
        for (flow, reason) in [
            (Flow { seen: late, ..good }, Reason::Refreshing),
            (Flow { seen: stamp_of_another(), ..good }, Reason::Refreshing),
            (Flow { mirror: late, ..good }, Reason::ReverseMissing),
            (Flow { mirror: stamp_of_another(), ..good }, Reason::ReverseMissing),
            (Flow { seen: closed, ..good }, Reason::FlowClosed),
        ] {
            write(bench, key, flow);
            passes(bench, FromPod, &packet.bytes(), &[reason]);
        }
        write(bench, key, good);
        replayed(bench, &packet);
        bench.maps.mode.bump().expect("MODE");
        passes(bench, FromPod, &packet.bytes(), &[Reason::Refreshing]);
    }

    fn a_flow_that_its_hint_does_not_name_is_unknown_and_nothing_ends_it<A>(bench) {
        let packet = tcp(A::NET);
        let key = teach::<A>(bench, &packet, &packet, Egress::TUNNEL);
        hints::<A>(bench).forget(&key).expect("a hint");
        passes(bench, FromPod, &packet.bytes(), &UNKNOWN);
        passes(bench, FromPod, &Packet { flags: 0x11, ..packet }.bytes(), &[Reason::TcpControl]);
        assert!(!is_ended(&read(bench, &key), &key));
        hints::<A>(bench).note_in_table(&key).expect("a hint");
        replayed(bench, &packet);
    }

    fn a_value_that_is_not_this_keys_is_not_believed<A>(bench) {
        let packet = tcp(A::NET);
        let key = teach::<A>(bench, &packet, &packet, Egress::TUNNEL);
        let mut torn = read(bench, &key);
        torn.action.out.ports ^= 0x100;
        write(bench, key, torn);
        passes(bench, FromPod, &packet.bytes(), &[Reason::Refreshing]);
    }

    fn udp_that_conntrack_knows_goes_one_way<A>(bench) {
        let packet = udp(A::NET);
        let key = key::<A>(&packet);
        let action = FlowAction {
            needs_mirror: 0,
            ..action(bench, &packet, &packet, Egress::TUNNEL)
        };
        write(
            bench,
            key,
            Flow {
                mirror: Expiry::NONE,
                ..usable(&key, action)
            },
        );
        replayed(bench, &packet);
    }

    fn opening_and_closing_ends_both_directions<A>(bench) {
        let packet = tcp(A::NET);
        let opening = Packet { flags: 0x02, ..packet };
        for flags in [0x02, 0x11, 0x04] {
            let there = teach::<A>(bench, &packet, &packet, Egress::TUNNEL);
            let back = teach::<A>(bench, &packet.reversed(), &packet.reversed(), Egress::TUNNEL);
            passes(bench, FromPod, &Packet { flags, ..packet }.bytes(), &[Reason::TcpControl]);
            for key in [there, back] {
                assert!(is_ended(&read(bench, &key), &key), "flags {flags:#x}");
            }
            let after = if flags == 0x02 { Reason::Refreshing } else { Reason::FlowClosed };
            passes(bench, FromPod, &packet.bytes(), &[after]);
        }
        // A tombstone goes with the next connection.
        passes(bench, FromPod, &opening.bytes(), &[Reason::TcpControl]);
        passes(bench, FromPod, &packet.bytes(), &[Reason::Refreshing]);
    }

    fn a_packet_goes_out_only_as_to_tunnel_would_send_it<A>(bench) {
        let (net, packet) = (A::NET, tcp(A::NET));
        teach::<A>(bench, &packet, &packet, Egress::TUNNEL);
        bench.peer(net, net.peer(), EntryState::PLAIN);
        passes(bench, FromPod, &packet.bytes(), &[Reason::PathUnseen]);
        bench.validate_path(net, 50);
        passes(bench, FromPod, &packet.bytes(), &[Reason::TooBig]);
        bench.validate_path(net, 1000);
        replayed(bench, &packet);
        let whole = replayed(bench, &packet).len() - 14;
        for (mtu, fits) in [(whole, true), (whole - 1, false)] {
            bench.peer(
                net,
                PeerEntry {
                    mtu: u32::try_from(mtu).expect("small"),
                    ..net.peer()
                },
                EntryState::PLAIN,
            );
            bench.validate_path(net, 1000);
            if fits {
                replayed(bench, &packet);
            } else {
                passes(bench, FromPod, &packet.bytes(), &[Reason::TooBig]);
            }
        }
        bench.peer(net, net.peer(), 0);
        passes(bench, FromPod, &packet.bytes(), &[Reason::PeerNotPlain]);
        bench.peers(net).remove(PEER_INDEX).expect("a peer map");
        passes(bench, FromPod, &packet.bytes(), &[Reason::NoPeer]);
    }

    fn packets_larger_than_the_way_out_takes_are_the_kernels<A>(bench) {
        let packet = tcp(A::NET);
        let key = key::<A>(&packet);
        let whole = u16::try_from(packet.bytes().len() - 14).expect("small");
        let allow = |bench: &mut Bench, mtu| {
            let action = FlowAction { mtu, ..action(bench, &packet, &packet, Egress::POD) };
            write(bench, key, usable(&key, action));
        };
        allow(bench, whole);
        replayed(bench, &packet);
        allow(bench, whole - 1);
        passes(bench, FromPod, &packet.bytes(), &[Reason::TooBig]);
        // Segments count by their own size.
        allow(bench, whole + 900);
        let large = Packet { payload: 1200, ..packet }.bytes();
        bench.run_with(FromPod, &large, 1001).passed(Reason::TooBig, &large);
        assert_eq!(bench.run_with(FromPod, &large, 1000).reasons, [Reason::Replayed]);
    }

    fn checksums_are_verified_as_far_as_conntrack_would<A>(bench) {
        for packet in [tcp(A::NET), udp(A::NET)] {
            teach::<A>(bench, &packet, &packet, Egress::POD);
            // In chunks of 512 bytes, of odd lengths too.
            let header = if packet.protocol == PROTO_TCP { 20 } else { 8 };
            for payload in [
                0,
                1,
                2,
                3,
                101,
                511 - header,
                512 - header,
                513 - header,
                1024 - header,
                1333,
            ] {
                let packet = Packet { payload, ..packet };
                replayed(bench, &packet);
                let wrong = Packet {
                    checksum: ChecksumField::Wrong,
                    ..packet
                }
                .bytes();
                passes(bench, FromPod, &wrong, &[Reason::ChecksumUnverified]);
            }
            let partial = Packet {
                checksum: ChecksumField::Partial,
                payload: 1333,
                ..packet
            };
            assert_eq!(
                bench.run(FromPod, &partial.bytes()).reasons,
                [Reason::Replayed]
            );
            // A packet that is longer than usual is not verified.
            let [verified, long] = [2048, 2049].map(|len| {
                Packet {
                    payload: len - header,
                    ..packet
                }
                .bytes()
            });
            passes(bench, FromPod, &verified, &[Reason::TooBig]);
            passes(bench, FromPod, &long, &[Reason::ChecksumUnverified]);
            // Segments are completed by the device.
            let wrong = Packet {
                checksum: ChecksumField::Wrong,
                ..packet
            };
            assert_eq!(
                bench.run_with(FromPod, &wrong.bytes(), 50).reasons,
                [Reason::Replayed]
            );
        }
    }

    fn what_the_kernel_refuses_is_put_back_as_it_was<A>(bench) {
        // A test run has no GSO type, so room is refused after the packet was translated.
        let packet = tcp(A::NET);
        teach::<A>(bench, &packet.to_service(), &packet, Egress::TUNNEL);
        let frame = packet.to_service().bytes();
        bench.run_with(FromPod, &frame, 50).passed(Reason::RoomRefused, &frame);
    }

    fn by_a_path_as_by_one_next_hop_and_put_back_where_none_is_to_be_had<A>(bench) {
        let packet = tcp(A::NET);
        teach::<A>(bench, &packet.to_service(), &packet, Egress::TUNNEL);
        let frame = packet.to_service().bytes();
        let one = replayed(bench, &packet.to_service());
        ecmp_paths::lay(bench);
        // That takes longer than a flow is good for on a slow machine.
        teach::<A>(bench, &packet.to_service(), &packet, Egress::TUNNEL);
        bench.run(FromPod, &frame).passed(Reason::PathUnseen, &frame);
        ecmp_paths::see_all(bench, A::NET, 1000);
        let mut by_path = replayed(bench, &packet.to_service());
        if A::NET.our_vtep.is_ipv4() {
            // Identification, and the checksum over it.
            by_path[18..20].copy_from_slice(&one[18..20]);
            by_path[24..26].copy_from_slice(&one[24..26]);
        }
        assert_eq!(by_path, one);
        bench.run_with(FromPod, &frame, 50).passed(Reason::RoomRefused, &frame);
        ecmp_paths::cut(A::NET);
        bench.run(FromPod, &frame).passed(Reason::NoEcmpPath, &frame);
    }

    fn what_is_not_to_be_learned_is_not_noted<A>(bench) {
        let reasons =
            |bench: &mut Bench, packet: &Packet| bench.repeat(FromPod, &packet.bytes(), 512);
        let [tcp, udp] = [tcp(A::NET), udp(A::NET)];
        let fast = bench.maps.fast.get().expect("FAST");
        bench
            .maps
            .fast
            .set(FastConfig {
                flags: FastConfig::UDP,
                ..fast
            })
            .expect("FAST");
        assert_eq!(
            reasons(bench, &tcp),
            [Reason::FlowUnknown, Reason::NotLearned]
        );
        assert_eq!(reasons(bench, &udp), [Reason::Sampled, Reason::FlowUnknown]);
        bench.helper_ports(&[21, 8080]);
        assert_eq!(
            reasons(bench, &udp),
            [Reason::FlowUnknown, Reason::NotLearned]
        );
        assert_eq!(
            reasons(bench, &udp.reversed()),
            [Reason::FlowUnknown, Reason::NotLearned]
        );
        bench.helper_ports(&[]);
        assert_eq!(reasons(bench, &udp), [Reason::Sampled, Reason::FlowUnknown]);
        bench
            .maps
            .pods
            .write(
                LO,
                PodEntry {
                    mac: POD_MAC,
                    flags: PodEntry::RECEIVES,
                    mtu: 1450,
                    ..PodEntry::default()
                },
            )
            .expect("PODS");
        assert_eq!(
            reasons(bench, &udp),
            [Reason::FlowUnknown, Reason::NotLearned]
        );
        bench.maps.pods.remove(LO).expect("PODS");
        assert_eq!(
            reasons(bench, &udp),
            [Reason::FlowUnknown, Reason::NotLearned]
        );
    }

    fn who_makes_flows_too_fast_is_not_followed<A>(bench) {
        let reasons = bench.repeat(FromPod, &udp(A::NET).bytes(), 100_000);
        assert_eq!(reasons, [Reason::Sampled, Reason::FlowUnknown, Reason::TooManyFlows]);
    }

    fn other_modes_leave_everything<A>(bench) {
        let packet = tcp(A::NET);
        teach::<A>(bench, &packet, &packet, Egress::TUNNEL);
        for mode in [Mode::Kernel, Mode::Encap] {
            bench.maps.mode.set(mode, None).expect("MODE");
            passes(bench, FromPod, &packet.bytes(), &[Reason::ModeKernel]);
        }
        bench.maps.mode.set(Mode::Fast, None).expect("MODE");
        bench.maps.config.invalidate().expect("CONFIG");
        passes(bench, FromPod, &packet.bytes(), &[Reason::NotConfigured]);
    }
}
