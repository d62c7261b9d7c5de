//! A tunnel device without Ethernet: `from_l3_tunnel` puts packets into pods, `from_pod` sends to
//! its peers, `to_l3_tunnel` sees both ends of what closes.

use flannel_common::{
    abi::{
        entry_state::EntryState,
        fast::FastConfig,
        mode::Mode,
        peer::PeerEntry,
        program::Program::{FromL3Tunnel, FromPod, ToL3Tunnel},
        reason::Reason,
    },
    flow::{Egress, FlowAction},
    packet::addr::Mac,
};

use super::{
    BRIDGE_MAC, POD_MAC, UNKNOWN, action, both, is_ended, key,
    packet::{Packet, kinds, service, tcp, udp},
    passes, read, teach, usable, write,
};
use crate::{
    bench::{Bench, TC_ACT_REDIRECT},
    packets::{LO, Net},
};

const ETHERNET: usize = 14;
const NO_MAC: Mac = Mac([0; 6]);

/// The peer of the fixtures, behind the tunnel device.
fn behind_device(bench: &mut Bench, net: Net) {
    bench.peer(net, net.peer(), EntryState::DIRECT);
}

/// The packet without an Ethernet header.
fn bare(packet: &Packet) -> Vec<u8> {
    packet.bytes()[ETHERNET..].to_vec()
}

/// The packet on its way back, as it comes out of the device.
fn from_peer(packet: Packet) -> Packet {
    Packet {
        to: NO_MAC,
        from: NO_MAC,
        ..packet.reversed()
    }
}

fn replayed(bench: &mut Bench, packet: &Packet) -> Vec<u8> {
    let outcome = bench.run(FromL3Tunnel, &bare(packet));
    assert_eq!(
        (outcome.reasons.as_slice(), outcome.action),
        ([Reason::Replayed].as_slice(), TC_ACT_REDIRECT)
    );
    outcome.packet
}

both! {
    fn into_the_pod_behind_an_ethernet_header<A>(bench) {
        behind_device(bench, A::NET);
        for packet in kinds(A::NET).into_iter().map(from_peer) {
            for seen in [
                packet,
                Packet {
                    source: service(A::NET),
                    ports: [80, packet.ports[1]],
                    ..packet
                },
            ] {
                teach::<A>(bench, &packet, &seen, Egress::POD);
                let expected = Packet {
                    to: POD_MAC,
                    from: BRIDGE_MAC,
                    ..seen.routed()
                };
                assert_eq!(replayed(bench, &packet), expected.bytes(), "{packet:?}");
            }
        }
    }

    fn out_of_the_pod_without_addresses<A>(bench) {
        behind_device(bench, A::NET);
        for packet in kinds(A::NET) {
            for sent in [packet, packet.to_service()] {
                let key = key::<A>(&sent);
                let action = FlowAction { ..action(bench, &sent, &packet, Egress::DIRECT) };
                write(bench, key, usable(&key, action));
                let outcome = bench.run(FromPod, &sent.bytes());
                assert_eq!(outcome.reasons, [Reason::Replayed]);
                // The redirect to a device without Ethernet removes the header.
                let expected = Packet { to: NO_MAC, from: NO_MAC, ..packet.routed() };
                assert_eq!(outcome.packet, expected.bytes(), "{sent:?}");
            }
        }
    }

    fn only_peers_behind_the_device_are_followed<A>(bench) {
        let packet = from_peer(udp(A::NET));
        passes(bench, FromL3Tunnel, &bare(&packet), &[Reason::NoPeer]);
        passes(bench, ToL3Tunnel, &bare(&udp(A::NET)), &[Reason::NoPeer]);
        behind_device(bench, A::NET);
        passes(bench, FromL3Tunnel, &bare(&packet), &UNKNOWN);
        passes(
            bench,
            ToL3Tunnel,
            &bare(&udp(A::NET)),
            &[Reason::NotFollowed],
        );
        for far in A::NET.outside.into_iter().chain([A::NET.unleased]) {
            passes(
                bench,
                FromL3Tunnel,
                &bare(&Packet {
                    source: far,
                    ..packet
                }),
                &[Reason::NoPeer],
            );
            passes(
                bench,
                ToL3Tunnel,
                &bare(&Packet {
                    destination: far,
                    ..udp(A::NET)
                }),
                &[Reason::NoPeer],
            );
        }
        bench.peer(
            A::NET,
            PeerEntry {
                oif: LO + 1,
                ..A::NET.peer()
            },
            EntryState::DIRECT,
        );
        passes(bench, FromL3Tunnel, &bare(&packet), &[Reason::NoPeer]);
    }

    fn what_is_no_ip_packet_is_left<A>(bench) {
        behind_device(bench, A::NET);
        let mut packet = bare(&from_peer(tcp(A::NET)));
        packet[0] = 0x55;
        passes(bench, FromL3Tunnel, &packet, &[Reason::OtherProtocol]);
        passes(bench, ToL3Tunnel, &packet, &[Reason::OtherProtocol]);
    }

    fn a_frame_that_was_learned_elsewhere_is_another<A>(bench) {
        behind_device(bench, A::NET);
        let packet = from_peer(tcp(A::NET));
        teach::<A>(bench, &Packet { to: POD_MAC, ..packet }, &packet, Egress::POD);
        passes(bench, FromL3Tunnel, &bare(&packet), &[Reason::FrameDiffers]);
    }

    fn without_leave_nothing_enters_a_pod<A>(bench) {
        behind_device(bench, A::NET);
        let packet = from_peer(tcp(A::NET));
        teach::<A>(bench, &packet, &packet, Egress::POD);
        let fast = bench.maps.fast.get().expect("FAST");
        bench
            .maps
            .fast
            .set(FastConfig {
                flags: fast.flags & !FastConfig::FROM_UNDERLAY,
                ..fast
            })
            .expect("FAST");
        passes(bench, FromL3Tunnel, &bare(&packet), &[Reason::NotLearned]);
        bench.maps.fast.set(fast).expect("FAST");
        replayed(bench, &packet);
    }

    fn closing_ends_both_ways<A>(bench) {
        behind_device(bench, A::NET);
        let there = tcp(A::NET);
        let back = from_peer(there);
        let key = teach::<A>(bench, &back, &back, Egress::POD);
        passes(bench, FromL3Tunnel, &bare(&Packet { flags: 0x11, ..back }), &[Reason::TcpControl]);
        assert!(is_ended(&read(bench, &key), &key));
        let key = teach::<A>(bench, &back, &back, Egress::POD);
        passes(bench, ToL3Tunnel, &bare(&Packet { flags: 0x14, ..there }), &[Reason::TcpControl]);
        assert!(is_ended(&read(bench, &key), &key), "the way back of what left");
    }

    fn other_modes_leave_everything<A>(bench) {
        behind_device(bench, A::NET);
        let packet = from_peer(tcp(A::NET));
        teach::<A>(bench, &packet, &packet, Egress::POD);
        bench.maps.mode.set(Mode::Encap, None).expect("MODE");
        passes(bench, FromL3Tunnel, &bare(&packet), &[Reason::ModeKernel]);
        passes(bench, ToL3Tunnel, &bare(&packet.reversed()), &[Reason::ModeKernel]);
    }
}
