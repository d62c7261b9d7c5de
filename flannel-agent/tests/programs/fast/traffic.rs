//! Counters of peers, pods and flows: each packet counts once, with the length of its frame,
//! whatever becomes of it.

use flannel_common::{
    abi::{
        entry_state::EntryState,
        mode::Mode,
        peer::PeerEntry,
        program::Program::{
            self, FromL3Tunnel, FromPod, FromUnderlay, ToL3Tunnel, ToTunnel, ToUnderlay,
        },
        reason::Reason,
        stats::Counter,
        tick::tick,
        traffic::{PeerTraffic, SHARED},
    },
    flow::{Egress, FlowAction},
    packet::{
        addr::{Addr, Mac},
        inner::FrameAddresses,
    },
};
use flannel_datapath::{kernel::clock, maps::traffic::TrafficMap};
use flannel_host::family::Family;

use super::{
    OTHER_VETH, action, both, key,
    packet::{Packet, kinds, tcp, udp},
    read, teach, usable, write,
};
use crate::{
    bench::Bench,
    ecmp_paths,
    packets::{LO, Net, OUR_MAC, PEER_INDEX, PEER_MAC},
};

const ETHERNET: usize = 14;
const NO_MAC: Mac = Mac([0; 6]);

/// The counters of the family's one peer.
fn of_peer(bench: &mut Bench, net: Net) -> PeerTraffic {
    let slot = bench.entry(net).traffic;
    assert_ne!(u32::from(slot), SHARED);
    peers(bench, net).get(slot.into()).expect("a slot")
}

fn peers(bench: &Bench, net: Net) -> TrafficMap<PeerTraffic> {
    let family = if net.our_vtep.is_ipv4() {
        Family::V4
    } else {
        Family::V6
    };
    TrafficMap::of_peers(bench.pins(), family).expect("PEER_TRAFFIC")
}

/// The counter of a pod.
fn of_pod(bench: &Bench, veth: u32) -> Counter {
    let pod = bench.maps.pods.get(veth).expect("PODS").expect("a pod");
    assert_ne!(pod.traffic, SHARED);
    TrafficMap::of_pods(bench.pins())
        .expect("POD_TRAFFIC")
        .get(pod.traffic)
        .expect("a slot")
}

const fn plus(counter: Counter, len: usize) -> Counter {
    Counter {
        packets: counter.packets + 1,
        bytes: counter.bytes + len as u64,
    }
}

/// Runs a program on a packet that is counted once as sent, with this length.
#[track_caller]
fn sends(bench: &mut Bench, net: Net, program: Program, packet: &[u8], len: usize) -> Reason {
    let before = of_peer(bench, net);
    let reasons = bench.run(program, packet).reasons;
    assert_eq!(
        of_peer(bench, net),
        PeerTraffic {
            sent: plus(before.sent, len),
            ..before
        },
        "{reasons:?}"
    );
    *reasons.last().expect("a reason")
}

/// The same, as received.
#[track_caller]
fn receives(bench: &mut Bench, net: Net, program: Program, packet: &[u8], len: usize) -> Reason {
    let before = of_peer(bench, net);
    let reasons = bench.run(program, packet).reasons;
    assert_eq!(
        of_peer(bench, net),
        PeerTraffic {
            received: plus(before.received, len),
            ..before
        },
        "{reasons:?}"
    );
    *reasons.last().expect("a reason")
}

/// The same, not counted.
#[track_caller]
fn counts_none(bench: &mut Bench, net: Net, program: Program, packet: &[u8]) -> Reason {
    let before = of_peer(bench, net);
    let reasons = bench.run(program, packet).reasons;
    assert_eq!(of_peer(bench, net), before, "{reasons:?}");
    *reasons.last().expect("a reason")
}

/// The packet on its way back, in the tunnel, without a UDP checksum.
fn tunnelled(net: Net, packet: Packet) -> (Packet, Vec<u8>) {
    let packet = Packet {
        to: OUR_MAC,
        from: PEER_MAC,
        ..packet.reversed()
    };
    let mut bytes = net.tunnel_frame_from_peer(packet.tos & 0b11, &packet.bytes());
    bytes[..6].fill(0);
    bytes[net.at().udp + 6..net.at().udp + 8].fill(0);
    (packet, bytes)
}

both! {
    fn into_the_tunnel_in_every_mode<A>(bench) {
        let net = A::NET;
        let (packet, larger) = (net.inner_to_peer(200), net.inner_to_peer(1200));
        let reasons = [
            (Mode::Fast, Reason::Encapsulated),
            (Mode::Encap, Reason::Encapsulated),
            (Mode::Kernel, Reason::ModeKernel),
        ];
        for (mode, reason) in reasons {
            bench.maps.mode.set(mode, None).expect("MODE");
            assert_eq!(sends(bench, net, ToTunnel, &packet, packet.len()), reason);
            let reason = if mode == Mode::Kernel {
                Reason::ModeKernel
            } else {
                Reason::TooBig
            };
            assert_eq!(sends(bench, net, ToTunnel, &larger, larger.len()), reason);
        }
        bench.maps.mode.set(Mode::Encap, None).expect("MODE");
        bench.peer(net, net.peer(), 0);
        assert_eq!(
            sends(bench, net, ToTunnel, &packet, packet.len()),
            Reason::PeerNotPlain
        );
    }

    /// The kernel cuts it behind the device, whose counters have it as one packet too.
    fn a_packet_to_be_cut_counts_once_with_its_whole_length<A>(bench) {
        let net = A::NET;
        let packet = net.inner_tcp_to_peer(3000);
        for mode in [Mode::Encap, Mode::Kernel] {
            bench.maps.mode.set(mode, None).expect("MODE");
            let before = of_peer(bench, net).sent;
            bench.run_with(ToTunnel, &packet, 900);
            assert_eq!(of_peer(bench, net).sent, plus(before, packet.len()));
        }
    }

    /// Segments of a connection that were merged on receipt; a flow and a pod count them too.
    fn a_merged_packet_counts_once_with_its_whole_length<A>(bench) {
        let net = A::NET;
        bench.peer(net, net.peer(), EntryState::DIRECT);
        let packet = Packet { to: NO_MAC, from: PEER_MAC, ..tcp(net).reversed() };
        let key = teach::<A>(bench, &packet, &packet, Egress::POD);
        let (peer, pod) = (of_peer(bench, net).received, of_pod(bench, OTHER_VETH));
        assert_eq!(bench.run_with(FromUnderlay, &packet.bytes(), 100).reasons, [Reason::Replayed]);
        let len = packet.bytes().len();
        assert_eq!(of_peer(bench, net).received, plus(peer, len));
        assert_eq!(of_pod(bench, OTHER_VETH), plus(pod, len));
        assert_eq!((read::<A>(bench, &key).used(), read::<A>(bench, &key).bytes), (1, len as u64));
    }

    /// The kernel of a test run removes no headers of a merged packet, because it lacks its kind.
    fn a_merged_packet_that_is_left_to_the_kernel_is_none_of_the_pod<A>(bench) {
        let net = A::NET;
        let (packet, bytes) = tunnelled(net, tcp(net));
        teach::<A>(bench, &packet, &packet, Egress::POD);
        let (peer, pod) = (of_peer(bench, net).received, of_pod(bench, OTHER_VETH));
        assert_eq!(bench.run_with(FromUnderlay, &bytes, 100).reasons, [Reason::RoomRefused]);
        assert_eq!(of_peer(bench, net).received, plus(peer, packet.bytes().len()));
        assert_eq!(of_pod(bench, OTHER_VETH), pod);
    }

    fn out_of_the_tunnel_in_every_mode<A>(bench) {
        let net = A::NET;
        let (packet, bytes) = tunnelled(net, udp(net));
        let len = packet.bytes().len();
        for mode in [Mode::Kernel, Mode::Encap] {
            bench.maps.mode.set(mode, None).expect("MODE");
            assert_eq!(receives(bench, net, FromUnderlay, &bytes, len), Reason::TunnelGood);
        }
        bench.maps.mode.set(Mode::Fast, None).expect("MODE");
        assert_eq!(receives(bench, net, FromUnderlay, &bytes, len), Reason::FlowUnknown);
        teach::<A>(bench, &packet, &packet, Egress::POD);
        let pod = of_pod(bench, OTHER_VETH);
        assert_eq!(receives(bench, net, FromUnderlay, &bytes, len), Reason::Replayed);
        assert_eq!(of_pod(bench, OTHER_VETH), plus(pod, len), "past the counters of its veth");
    }

    fn what_is_not_a_peers_is_not_counted<A>(bench) {
        let net = A::NET;
        let to_none = net.framed_to_peer(&crate::packets::ip(
            0,
            17,
            net.our_pod,
            net.unleased,
            &crate::packets::udp(1, 2, b""),
        ));
        for mode in [Mode::Kernel, Mode::Encap, Mode::Fast] {
            bench.maps.mode.set(mode, None).expect("MODE");
            counts_none(bench, net, ToTunnel, &to_none);
            counts_none(
                bench,
                net,
                FromUnderlay,
                &net.tunnel_from_peer(net.outside[0]),
            );
            let strange = net.tunnel_of(net.outside[1], net.our_vtep, 0, &net.inner_to_peer(10));
            counts_none(bench, net, FromUnderlay, &strange);
        }
    }

    /// `to_underlay` sees replayed packets with the mark of this node's own, and counts none.
    fn a_replayed_packet_of_a_pod_counts_by_peer_and_flow<A>(bench) {
        let net = A::NET;
        for packet in kinds(net) {
            for sent in [packet, packet.to_service()] {
                let key = teach::<A>(bench, &sent, &packet, Egress::TUNNEL);
                let len = sent.bytes().len();
                assert_eq!(sends(bench, net, FromPod, &sent.bytes(), len), Reason::Replayed);
                assert_eq!(sends(bench, net, FromPod, &sent.bytes(), len), Reason::Replayed);
                let flow = read::<A>(bench, &key);
                assert_eq!((flow.used(), flow.bytes), (2, 2 * len as u64));
                assert!(tick(clock::now_ns()).wrapping_sub(flow.last) < 1000, "seen a moment ago");
            }
        }
        counts_none(bench, net, ToUnderlay, &net.tunnel_to_peer(&net.inner_to_peer(100)));
    }

    /// The packet is counted where it leaves by the tunnel device.
    fn a_packet_that_is_not_replayed_is_not_counted_at_the_pod<A>(bench) {
        let net = A::NET;
        let packet = tcp(net);
        counts_none(bench, net, FromPod, &packet.bytes());
        teach::<A>(bench, &packet, &packet, Egress::TUNNEL);
        bench.peer(net, net.peer(), EntryState::PLAIN);
        assert_eq!(counts_none(bench, net, FromPod, &packet.bytes()), Reason::PathUnseen);
    }

    fn between_two_pods_of_the_node<A>(bench) {
        let packet = tcp(A::NET);
        let key = teach::<A>(bench, &packet, &packet, Egress::POD);
        let pod = of_pod(bench, OTHER_VETH);
        assert_eq!(counts_none(bench, A::NET, FromPod, &packet.bytes()), Reason::Replayed);
        assert_eq!(of_pod(bench, OTHER_VETH), plus(pod, packet.bytes().len()));
        assert_eq!(read::<A>(bench, &key).bytes, packet.bytes().len() as u64);
        assert_eq!(of_pod(bench, LO), Counter::default(), "the sender's veth counts what it sends");
    }

    fn by_one_of_several_next_hops<A>(bench) {
        let (net, packet) = (A::NET, tcp(A::NET));
        ecmp_paths::lay(bench);
        ecmp_paths::see_all(bench, net, 1000);
        teach::<A>(bench, &packet, &packet, Egress::TUNNEL);
        assert_eq!(
            sends(bench, net, FromPod, &packet.bytes(), packet.bytes().len()),
            Reason::Replayed
        );
        let inner = net.inner_to_peer(100);
        assert_eq!(
            sends(bench, net, ToTunnel, &inner, inner.len()),
            Reason::Encapsulated
        );
        ecmp_paths::cut(net);
        assert_eq!(
            counts_none(bench, net, FromPod, &packet.bytes()),
            Reason::NoEcmpPath
        );
    }

    fn to_and_from_a_direct_peer<A>(bench) {
        let net = A::NET;
        bench.peer(net, net.peer(), EntryState::DIRECT);
        let packet = udp(net);
        let len = packet.bytes().len();
        sends(bench, net, ToUnderlay, &packet.bytes(), len);
        let back = Packet { to: NO_MAC, from: PEER_MAC, ..packet.reversed() };
        receives(bench, net, FromUnderlay, &back.bytes(), len);
        let exit = FrameAddresses::new(PEER_MAC, OUR_MAC);
        let key = key::<A>(&packet);
        let action = FlowAction { exit, ..action(bench, &packet, &packet, Egress::DIRECT) };
        write(bench, key, usable(&key, action));
        assert_eq!(sends(bench, net, FromPod, &packet.bytes(), len), Reason::Replayed);
        teach::<A>(bench, &back, &back, Egress::POD);
        assert_eq!(receives(bench, net, FromUnderlay, &back.bytes(), len), Reason::Replayed);
    }

    /// Bytes are those of the frame in the pod, so that all backends count alike.
    fn a_packet_without_ethernet_counts_as_a_frame<A>(bench) {
        let net = A::NET;
        bench.peer(net, net.peer(), EntryState::DIRECT);
        let packet = udp(net);
        let len = packet.bytes().len();
        sends(bench, net, ToL3Tunnel, &packet.bytes()[ETHERNET..], len);
        let back = Packet {
            to: NO_MAC,
            from: NO_MAC,
            ..packet.reversed()
        };
        receives(bench, net, FromL3Tunnel, &back.bytes()[ETHERNET..], len);
        let key = teach::<A>(bench, &back, &back, Egress::POD);
        assert_eq!(
            receives(bench, net, FromL3Tunnel, &back.bytes()[ETHERNET..], len),
            Reason::Replayed
        );
        assert_eq!(read::<A>(bench, &key).bytes, len as u64);
    }

    fn an_entry_keeps_its_counters_until_it_is_removed<A>(bench) {
        let net = A::NET;
        let packet = net.inner_to_peer(100);
        sends(bench, net, ToTunnel, &packet, packet.len());
        let (slot, counted) = (bench.entry(net).traffic, of_peer(bench, net));
        bench.peer(net, PeerEntry { mtu: 1400, ..net.peer() }, EntryState::PLAIN);
        assert_eq!((bench.entry(net).traffic, of_peer(bench, net)), (slot, counted));
        bench.peers(net).remove(PEER_INDEX).expect("a peer map");
        let other = PEER_INDEX + 1;
        bench.peers(net).write(other, net.peer(), EntryState::PLAIN).expect("a peer map");
        let given = bench.peers(net).get(other).expect("a peer map").traffic;
        assert_eq!(given, slot, "the first that is free");
        assert_eq!(peers(bench, net).get(slot.into()).expect("a slot"), PeerTraffic::default());
        bench.peer(net, net.peer(), EntryState::PLAIN);
        assert_ne!(bench.entry(net).traffic, slot);
    }
}

/// A fresh agent over the same pins finds the slots that are taken.
#[test]
fn another_agent_gives_no_slot_twice() {
    super::on_fast_bench(|bench| {
        let former = bench.entry(super::V4).traffic;
        bench.maps = flannel_datapath::Maps::open(bench.pins()).expect("the maps open");
        let entry = PeerEntry {
            vtep: Addr::NONE,
            ..super::V4.peer()
        };
        bench.maps.peers.write(9, entry, 0).expect("a peer map");
        assert_ne!(bench.maps.peers.get(9).expect("a peer map").traffic, former);
        let pod = bench.maps.pods.get(LO).expect("PODS").expect("a pod");
        bench.maps.pods.write(99, pod).expect("PODS");
        let taken = [LO, OTHER_VETH, 99].map(|veth| {
            bench
                .maps
                .pods
                .get(veth)
                .expect("PODS")
                .expect("a pod")
                .traffic
        });
        assert!(taken[2] != taken[0] && taken[2] != taken[1], "{taken:?}");
    });
}
