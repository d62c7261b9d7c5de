//! Peers on our own link, without a tunnel: `from_pod` sends to them, `from_underlay` takes from
//! them, `to_underlay` sees both ends of what closes.

use flannel_common::{
    abi::{
        entry_state::EntryState,
        fast::FastConfig,
        guard::{Checks, GuardMode},
        node::NodeConfig,
        peer::PeerEntry,
        program::Program::{FromPod, FromUnderlay, ToUnderlay},
        reason::Reason,
    },
    flow::{Egress, FlowAction},
    packet::inner::FrameAddresses,
};
use flannel_datapath::kernel::clock;

use super::{
    BRIDGE_MAC, POD_MAC, UNKNOWN, action, both, is_ended, key,
    packet::{Packet, kinds, service, tcp, udp},
    passes, read, teach, usable, write,
};
use crate::{
    bench::{Bench, TC_ACT_REDIRECT},
    packets::{LO, Net, OUR_MAC, PEER_MAC, V4, V6, first_fragment, later_fragment, with_options},
};

/// The peer of the fixtures, on our link.
fn beside(bench: &mut Bench, net: Net) {
    bench.peer(net, net.peer(), EntryState::DIRECT);
}

/// The node has no tunnel.
fn untunnelled(bench: &mut Bench) {
    let config = NodeConfig {
        v4: V4.without_tunnel(),
        v6: V6.without_tunnel(),
        ..NodeConfig::default()
    };
    bench
        .maps
        .config
        .write(config, clock::now_ns())
        .expect("CONFIG");
}

/// The packet on its way back, on our link.
fn from_peer(packet: Packet) -> Packet {
    Packet {
        to: flannel_common::packet::addr::Mac([0; 6]),
        from: PEER_MAC,
        ..packet.reversed()
    }
}

fn replayed(
    bench: &mut Bench,
    program: flannel_common::abi::program::Program,
    packet: &Packet,
) -> Vec<u8> {
    let outcome = bench.run(program, &packet.bytes());
    assert_eq!(
        (outcome.reasons.as_slice(), outcome.action),
        ([Reason::Replayed].as_slice(), TC_ACT_REDIRECT)
    );
    outcome.packet
}

both! {
    fn onto_the_link_with_the_addresses_seen<A>(bench) {
        beside(bench, A::NET);
        for packet in kinds(A::NET) {
            for sent in [packet, packet.to_service()] {
                let key = key::<A>(&sent);
                let exit = FrameAddresses::new(PEER_MAC, OUR_MAC);
                let action = FlowAction { exit, ..action(bench, &sent, &packet, Egress::DIRECT) };
                write(bench, key, usable(&key, action));
                let expected = Packet { to: PEER_MAC, from: OUR_MAC, ..packet.routed() };
                assert_eq!(replayed(bench, FromPod, &sent), expected.bytes(), "{sent:?}");
                assert_eq!(read::<A>(bench, &key).packets, 1);
            }
        }
    }

    fn a_peer_that_is_not_direct_any_more_is_the_kernels<A>(bench) {
        let packet = tcp(A::NET);
        teach::<A>(bench, &packet, &packet, Egress::DIRECT);
        passes(bench, FromPod, &packet.bytes(), &[Reason::NoPeer]);
        bench.peer(A::NET, PeerEntry { oif: LO + 1, ..A::NET.peer() }, EntryState::DIRECT);
        passes(bench, FromPod, &packet.bytes(), &[Reason::NoPeer]);
        beside(bench, A::NET);
        replayed(bench, FromPod, &packet);
    }

    fn into_the_pod<A>(bench) {
        beside(bench, A::NET);
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
                assert_eq!(
                    replayed(bench, FromUnderlay, &packet),
                    expected.bytes(),
                    "{packet:?}"
                );
            }
        }
    }

    fn only_direct_peers_are_followed<A>(bench) {
        let packet = from_peer(udp(A::NET));
        passes(bench, FromUnderlay, &packet.bytes(), &[Reason::NotTunnel]);
        passes(
            bench,
            ToUnderlay,
            &udp(A::NET).bytes(),
            &[Reason::NotTunnel],
        );
        beside(bench, A::NET);
        passes(bench, FromUnderlay, &packet.bytes(), &UNKNOWN);
        passes(
            bench,
            ToUnderlay,
            &udp(A::NET).bytes(),
            &[Reason::NotFollowed],
        );
        for source in A::NET.outside.into_iter().chain([A::NET.unleased]) {
            passes(
                bench,
                FromUnderlay,
                &Packet { source, ..packet }.bytes(),
                &[Reason::NotTunnel],
            );
            passes(
                bench,
                ToUnderlay,
                &Packet {
                    destination: source,
                    ..udp(A::NET)
                }
                .bytes(),
                &[Reason::NotTunnel],
            );
        }
        let for_others = Packet {
            to: POD_MAC,
            ..packet
        };
        passes(
            bench,
            FromUnderlay,
            &for_others.bytes(),
            &[Reason::NotPlain],
        );
    }

    fn without_leave_nothing_enters_a_pod_from_the_link<A>(bench) {
        beside(bench, A::NET);
        let packet = from_peer(tcp(A::NET));
        teach::<A>(bench, &packet, &packet, Egress::POD);
        let fast = bench.maps.fast.get().expect("FAST");
        let refused = FastConfig { flags: fast.flags & !FastConfig::FROM_UNDERLAY, ..fast };
        bench.maps.fast.set(refused).expect("FAST");
        passes(bench, FromUnderlay, &packet.bytes(), &[Reason::NotLearned]);
        bench.maps.fast.set(fast).expect("FAST");
        replayed(bench, FromUnderlay, &packet);
    }

    fn closing_ends_both_ways<A>(bench) {
        beside(bench, A::NET);
        let there = tcp(A::NET);
        let back = from_peer(there);
        let key = teach::<A>(bench, &back, &back, Egress::POD);
        passes(bench, FromUnderlay, &Packet { flags: 0x11, ..back }.bytes(), &[Reason::TcpControl]);
        assert!(is_ended(&read(bench, &key), &key));
        let key = teach::<A>(bench, &back, &back, Egress::POD);
        passes(bench, ToUnderlay, &Packet { flags: 0x14, ..there }.bytes(), &[Reason::TcpControl]);
        assert!(is_ended(&read(bench, &key), &key), "the way back of what left");
    }

    /// Whatever looks like a tunnel's packet is another's, in every mode of the guard: to the usual
    /// port, to none, in a fragment, behind options, too short to say.
    fn without_a_tunnel_no_packet_is_a_tunnels<A>(bench) {
        let net = A::NET;
        untunnelled(bench);
        let udp = net.at().udp;
        let usual = net.tunnel_from_peer(net.peer_pod);
        let mut to_none = usual.clone();
        to_none[udp + 2..udp + 4].fill(0);
        for guard in GuardMode::ALL {
            bench
                .maps
                .guard
                .set(
                    Checks {
                        outer: guard,
                        inner: guard,
                    },
                    Checks::default(),
                )
                .expect("GUARD");
            for packet in [&usual, &to_none] {
                let mut strange = packet.clone();
                strange[udp - 1] = 77;
                let cut = packet[..udp + 8].to_vec();
                let (first, later) = (first_fragment(net, packet), later_fragment(net, packet));
                for packet in [
                    packet.clone(),
                    strange,
                    cut,
                    first,
                    later,
                    with_options(net, packet),
                ] {
                    passes(bench, FromUnderlay, &packet, &[Reason::NotTunnel]);
                    passes(bench, ToUnderlay, &packet, &[Reason::NotTunnel]);
                }
            }
        }
        assert_eq!(
            bench.maps.suspects.entries().count(),
            0,
            "nobody is suspected"
        );
    }

    fn without_a_tunnel_peers_on_our_link_are_followed<A>(bench) {
        untunnelled(bench);
        beside(bench, A::NET);
        passes(bench, FromUnderlay, &from_peer(udp(A::NET)).bytes(), &UNKNOWN);
        for packet in kinds(A::NET).into_iter().map(from_peer) {
            teach::<A>(bench, &packet, &packet, Egress::POD);
            let expected = Packet { to: POD_MAC, from: BRIDGE_MAC, ..packet.routed() };
            assert_eq!(replayed(bench, FromUnderlay, &packet), expected.bytes(), "{packet:?}");
            passes(bench, ToUnderlay, &packet.reversed().bytes(), &[Reason::NotFollowed]);
        }
    }

    fn other_modes_leave_everything<A>(bench) {
        beside(bench, A::NET);
        let packet = from_peer(tcp(A::NET));
        teach::<A>(bench, &packet, &packet, Egress::POD);
        bench.maps.mode.set(flannel_common::abi::mode::Mode::Encap, None).expect("MODE");
        passes(bench, FromUnderlay, &packet.bytes(), &[Reason::NotTunnel]);
        passes(bench, ToUnderlay, &packet.reversed().bytes(), &[Reason::NotTunnel]);
    }
}
