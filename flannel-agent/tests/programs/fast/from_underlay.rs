//! `from_underlay` in mode `fast`: what it puts into a pod.

use flannel_common::{
    abi::{node::REPLAY_LIMIT_NS, program::Program::FromUnderlay, reason::Reason},
    flow::{Egress, FlowAction},
    packet::{decapsulated_tos, ipv4_checksum},
};
use flannel_datapath::kernel::clock;

use super::{
    BRIDGE_MAC, POD_MAC, action, both, is_ended, key,
    packet::{Packet, kinds, service, tcp, udp},
    passes, read, teach, usable, write,
};
use crate::{
    bench::{Bench, TC_ACT_REDIRECT, TC_ACT_UNSPEC},
    packets::{Net, OUR_MAC, PEER_INDEX, PEER_MAC},
};

/// The packet on its way back, as it stands in the tunnel.
const fn from_peer(packet: Packet) -> Packet {
    Packet {
        to: OUR_MAC,
        from: PEER_MAC,
        ..packet.reversed()
    }
}

/// In the outer headers of the peer, to this host's Ethernet address, without a UDP checksum.
fn tunnelled(net: Net, packet: &Packet) -> Vec<u8> {
    let mut bytes = net.tunnel_frame_from_peer(packet.tos & 0b11, &packet.bytes());
    bytes[..6].fill(0);
    bytes[net.at().udp + 6..net.at().udp + 8].fill(0);
    bytes
}

/// The packet as the pod gets it.
const fn delivered(packet: Packet) -> Packet {
    Packet {
        to: POD_MAC,
        from: BRIDGE_MAC,
        ..packet.routed()
    }
}

#[track_caller]
fn replayed(bench: &mut Bench, packet: &[u8]) -> Vec<u8> {
    let outcome = bench.run(FromUnderlay, packet);
    assert_eq!(
        (outcome.reasons.as_slice(), outcome.action),
        ([Reason::Replayed].as_slice(), TC_ACT_REDIRECT)
    );
    outcome.packet
}

#[track_caller]
fn left(bench: &mut Bench, packet: &[u8], reason: Reason) {
    passes(bench, FromUnderlay, packet, &[reason]);
}

both! {
    fn into_the_pod_as_routed<A>(bench) {
        for packet in kinds(A::NET).into_iter().map(from_peer) {
            teach::<A>(bench, &packet, &packet, Egress::POD);
            assert_eq!(
                replayed(bench, &tunnelled(A::NET, &packet)),
                delivered(packet).bytes(),
                "{packet:?}"
            );
        }
    }

    fn into_the_pod_translated_back<A>(bench) {
        for packet in kinds(A::NET).into_iter().map(from_peer) {
            let seen = Packet {
                source: service(A::NET),
                ports: [80, packet.ports[1]],
                ..packet
            };
            teach::<A>(bench, &packet, &seen, Egress::POD);
            assert_eq!(
                replayed(bench, &tunnelled(A::NET, &packet)),
                delivered(seen).bytes(),
                "{packet:?}"
            );
        }
    }

    fn what_the_node_says_of_a_packet_stays_on_the_node<A>(bench) {
        let packet = from_peer(udp(A::NET));
        let bytes = tunnelled(A::NET, &packet);
        assert_eq!(bench.class_behind(FromUnderlay, &bytes), [0x77, 7], "an unknown flow's");
        teach::<A>(bench, &packet, &packet, Egress::POD);
        assert_eq!(bench.class_behind(FromUnderlay, &bytes), [0, 0]);
    }

    fn congestion_on_the_way_reaches_the_pod<A>(bench) {
        let set_outer = |bytes: &mut [u8], ecn: u8| {
            let ip = A::NET.at().ip;
            if A::NET.our_pod.is_ipv4() {
                let header: &mut [u8; 20] = (&mut bytes[ip..ip + 20]).try_into().expect("a header");
                (header[1], header[10], header[11]) = (ecn, 0, 0);
                let checksum = ipv4_checksum(header);
                header[10..12].copy_from_slice(&checksum);
            } else {
                bytes[ip + 1] = ecn << 4;
            }
        };
        let packet = from_peer(Packet {
            tos: 0xba,
            ..tcp(A::NET)
        });
        teach::<A>(bench, &packet, &packet, Egress::POD);
        for outer in 0..4 {
            let mut bytes = tunnelled(A::NET, &packet);
            set_outer(&mut bytes, outer);
            let tos = decapsulated_tos(outer, packet.tos).expect("the inner packet can say so");
            assert_eq!(
                replayed(bench, &bytes),
                delivered(Packet { tos, ..packet }).bytes(),
                "outer {outer}"
            );
        }
        let unable = from_peer(Packet {
            tos: 0,
            ..tcp(A::NET)
        });
        teach::<A>(bench, &unable, &unable, Egress::POD);
        let mut deaf = tunnelled(A::NET, &unable);
        set_outer(&mut deaf, 0b11);
        left(bench, &deaf, Reason::Congested);
    }

    fn everything_on_the_accept_list_is_asked_for<A>(bench) {
        let (net, at) = (A::NET, A::NET.at());
        let packet = from_peer(tcp(net));
        teach::<A>(bench, &packet, &packet, Egress::POD);
        let good = tunnelled(net, &packet);
        replayed(bench, &good);
        let mut with = |at: usize, value: u8, reason: Reason| {
            let mut bytes = good.clone();
            assert_ne!(bytes[at], value, "byte {at}");
            bytes[at] = value;
            left(bench, &bytes, reason);
        };
        let (len, transport) = (net.address_len(), at.inner_ip + (at.udp - at.ip));
        with(0, 2, Reason::NotPlain);
        with(at.addresses + len - 1, 77, Reason::UnknownVtep);
        with(at.addresses + 2 * len - 1, 77, Reason::NotForUs);
        with(at.udp + 5, 0, Reason::NotPlain);
        with(at.udp + 6, 1, Reason::OuterChecksum);
        with(at.vxlan, 0x88, Reason::BadVxlanHeader);
        for reserved in [1, 2, 3, 7] {
            with(at.vxlan + reserved, 1, Reason::BadVxlanHeader);
        }
        with(at.vxlan + 6, 2, Reason::OtherVni);
        with(at.inner + 5, 9, Reason::InnerOtherMac);
        with(at.inner + 11, 9, Reason::FrameDiffers);
        with(transport + 1, 1, Reason::FlowUnknown);
        with(transport + 12, 0x40, Reason::NotPlain);
        let differing = if net.our_pod.is_ipv4() {
            // Options, a fragment, lengths; inside: options, a fragment, TTL, lengths, source.
            [
                (at.ip, 0x46, Reason::NotTunnel),
                (at.ip + 6, 0x20, Reason::OuterFragment),
                (at.ip + 3, 0, Reason::NotPlain),
                (at.inner_ip, 0x46, Reason::NotPlain),
                (at.inner_ip + 6, 0x20, Reason::Fragment),
                (at.inner_ip + 8, 1, Reason::NotPlain),
                (at.inner_ip + 3, 0, Reason::NotPlain),
                (at.inner_ip + 14, 8, Reason::InnerOtherSource),
            ]
        } else {
            // Options, another version, lengths; inside: options, a fragment, hop limit, lengths,
            // source.
            [
                (at.ip + 6, 0, Reason::NotTunnel),
                (at.ip, 0x40, Reason::NotTunnel),
                (at.ip + 5, 0, Reason::NotPlain),
                (at.inner_ip + 6, 0, Reason::OtherTransport),
                (at.inner_ip + 6, 44, Reason::Fragment),
                (at.inner_ip + 7, 1, Reason::NotPlain),
                (at.inner_ip + 5, 0, Reason::NotPlain),
                (at.inner_ip + 15, 8, Reason::InnerOtherSource),
            ]
        };
        for (at, value, reason) in differing {
            with(at, value, reason);
        }
        for len in at.inner_ip..good.len() {
            assert_eq!(bench.run(FromUnderlay, &good[..len]).action, TC_ACT_UNSPEC, "{len} bytes");
        }
    }

    fn merged_datagrams_are_the_tunnel_devices<A>(bench) {
        let packet = from_peer(Packet { payload: 400, ..udp(A::NET) });
        teach::<A>(bench, &packet, &packet, Egress::POD);
        let bytes = tunnelled(A::NET, &packet);
        bench.run_with(FromUnderlay, &bytes, 100).passed(Reason::Merged, &bytes);
    }

    /// Its devices would have to cut them, because the packets still say that they are of a tunnel.
    fn merged_packets_into_a_pod_that_forwards_are_the_kernels<A>(bench) {
        let packet = from_peer(Packet { payload: 400, ..tcp(A::NET) });
        let key = teach::<A>(bench, &packet, &packet, Egress::POD);
        let forwards = FlowAction { takes_merged: 0, ..read::<A>(bench, &key).action };
        write(bench, key, usable(&key, forwards));
        let bytes = tunnelled(A::NET, &packet);
        bench.run_with(FromUnderlay, &bytes, 100).passed(Reason::Merged, &bytes);
        assert_eq!(replayed(bench, &bytes), delivered(packet).bytes(), "a single one");
    }

    fn packets_with_another_dscp_or_ttl_are_the_kernels<A>(bench) {
        let packet = from_peer(tcp(A::NET));
        teach::<A>(bench, &packet, &packet, Egress::POD);
        for other in [Packet { tos: packet.tos ^ 0x08, ..packet }, Packet { ttl: 63, ..packet }] {
            left(bench, &tunnelled(A::NET, &other), Reason::FieldsDiffer);
        }
    }

    fn without_an_agent_flows_are_replayed_for_seconds_only<A>(bench) {
        let packet = from_peer(tcp(A::NET));
        teach::<A>(bench, &packet, &packet, Egress::POD);
        bench
            .maps
            .config
            .write_heartbeat(clock::now_ns() - REPLAY_LIMIT_NS - 1_000_000_000)
            .expect("CONFIG");
        left(bench, &tunnelled(A::NET, &packet), Reason::AgentLate);
    }

    fn packets_larger_than_the_pod_takes_are_the_kernels<A>(bench) {
        let packet = from_peer(tcp(A::NET));
        let key = key::<A>(&packet);
        let mtu = u16::try_from(packet.bytes().len() - 15).expect("small");
        let action = FlowAction { mtu, ..action(bench, &packet, &packet, Egress::POD) };
        write(bench, key, usable(&key, action));
        left(bench, &tunnelled(A::NET, &packet), Reason::TooBig);
    }

    fn a_flow_that_does_not_lead_into_a_pod_is_the_kernels<A>(bench) {
        let packet = from_peer(tcp(A::NET));
        teach::<A>(bench, &packet, &packet, Egress::TUNNEL);
        left(bench, &tunnelled(A::NET, &packet), Reason::FlowUnknown);
    }

    fn closing_ends_the_flow<A>(bench) {
        let packet = from_peer(tcp(A::NET));
        let key = teach::<A>(bench, &packet, &packet, Egress::POD);
        left(bench, &tunnelled(A::NET, &Packet { flags: 0x11, ..packet }), Reason::TcpControl);
        assert!(is_ended(&read(bench, &key), &key));
        left(bench, &tunnelled(A::NET, &packet), Reason::FlowClosed);
    }

    fn a_peer_that_left_is_not_believed<A>(bench) {
        let packet = from_peer(tcp(A::NET));
        teach::<A>(bench, &packet, &packet, Egress::POD);
        bench.peers(A::NET).remove(PEER_INDEX).expect("a peer map");
        left(bench, &tunnelled(A::NET, &packet), Reason::InnerOtherSource);
    }
}
