//! `from_pod` in mode `fast`.

use std::net::Ipv4Addr;

use flannel_agent::datapath::clock;
use flannel_common::{
    end::End,
    fast::{FastConfig, PodEntry},
    flow::{Body, Exit},
    mode::Mode,
    outer::{Varying, build_v4},
    peer::{PeerEntry, Word},
    program::Program::FromPod,
    reason::Reason,
    stamp::Stamp,
    tick::tick,
};

use super::{
    OTHER_VETH, UNKNOWN, body, is_ended, key, on_fast_bench,
    packet::{Packet, tcp, udp},
    passes, read, stamp_of_another, teach, usable,
};
use crate::{
    bench::{Bench, Outcome, TC_ACT_REDIRECT},
    packets::{self, LO, PEER_INDEX},
};

const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

#[track_caller]
fn replayed(bench: &mut Bench, packet: &Packet) -> Outcome {
    let outcome = bench.run(FromPod, &packet.bytes());
    assert_eq!((outcome.reasons.as_slice(), outcome.action), ([Reason::Replayed].as_slice(), TC_ACT_REDIRECT));
    outcome
}

/// The tunnel packet around a frame whose Ethernet header the tunnel replaces; identification and port are as found.
fn tunnelled(frame: &[u8], found: &[u8]) -> Vec<u8> {
    let varying = Varying {
        frame_len: u32::try_from(frame.len()).expect("small"),
        inner_tos: frame[15],
        id: u16::from_be_bytes([found[18], found[19]]),
        source_port: u16::from_be_bytes([found[34], found[35]]),
    };
    [build_v4(&packets::family(), &packets::peer(), &varying).as_slice(), &frame[14..]].concat()
}

#[test]
fn into_the_tunnel_as_routed() {
    on_fast_bench(|bench| {
        for packet in [tcp(), udp(), Packet { payload: 0, ..udp() }, Packet { without_checksum: true, ..udp() }] {
            let key = teach(bench, &packet, &packet, Exit::TUNNEL);
            let outcome = replayed(bench, &packet);
            let expected = tunnelled(&packet.routed().bytes(), &outcome.packet);
            assert_eq!(outcome.packet, expected, "{packet:?}");
            assert_eq!(read(bench, &key).packets, 1);
        }
    });
}

#[test]
fn into_the_tunnel_translated() {
    on_fast_bench(|bench| {
        for packet in [tcp(), udp(), Packet { payload: 0, ..udp() }, Packet { without_checksum: true, ..udp() }] {
            let sent = Packet { destination: SERVICE, ports: [40000, 80], ..packet };
            for to in [packet, Packet { source: SERVICE, ports: [1, 2], ..packet }] {
                teach(bench, &sent, &to, Exit::TUNNEL);
                let outcome = replayed(bench, &sent);
                assert_eq!(outcome.packet, tunnelled(&to.routed().bytes(), &outcome.packet), "{sent:?} as {to:?}");
            }
        }
    });
}

#[test]
fn into_another_pod_of_the_node() {
    on_fast_bench(|bench| {
        for packet in [tcp(), udp()] {
            let sent = Packet { destination: SERVICE, ports: [40000, 80], ..packet };
            for from in [packet, sent] {
                teach(bench, &from, &packet, Exit::POD);
                let delivered = Packet { to: super::POD_MAC, from: super::BRIDGE_MAC, ..packet.routed() };
                assert_eq!(replayed(bench, &from).packet, delivered.bytes(), "{from:?}");
            }
        }
    });
}

#[test]
fn bridged_packets_keep_their_ttl() {
    on_fast_bench(|bench| {
        let key = key(&tcp());
        let body = Body { ttl_step: 0, ..body(bench, &tcp(), &tcp(), Exit::POD) };
        bench.maps.flows.write(key, usable(&key, body)).expect("FLOWS");
        let delivered = Packet { to: super::POD_MAC, from: super::BRIDGE_MAC, ..tcp() };
        assert_eq!(replayed(bench, &tcp()).packet, delivered.bytes());
    });
}

#[test]
fn unknown_flows_are_noted_now_and_then() {
    on_fast_bench(|bench| {
        let reasons: Vec<_> = (0..256).map(|_| bench.run(FromPod, &tcp().bytes()).reasons[0]).collect();
        for reason in UNKNOWN {
            assert!(reasons.contains(&reason), "never {reason:?}");
        }
        assert!(reasons.iter().all(|reason| UNKNOWN.contains(reason)), "{reasons:?}");
        let noted = reasons.iter().filter(|reason| **reason == Reason::Noted).count();
        assert!((8..96).contains(&noted), "{noted} of 256, one in eight is meant");
    });
}

#[test]
fn another_pods_packets_are_another_flow() {
    on_fast_bench(|bench| {
        let body = body(bench, &tcp(), &tcp(), Exit::TUNNEL);
        let other = End { device: OTHER_VETH, ..key(&tcp()) };
        bench.maps.flows.write(other, usable(&other, body)).expect("FLOWS");
        passes(bench, FromPod, &tcp().bytes(), &UNKNOWN);
    });
}

#[test]
fn what_is_not_as_seen_is_the_kernels() {
    on_fast_bench(|bench| {
        teach(bench, &tcp(), &tcp(), Exit::TUNNEL);
        for byte in 0..12 {
            let mut frame = tcp().bytes();
            frame[byte] ^= 0x10;
            passes(bench, FromPod, &frame, &[Reason::FrameDiffers]);
        }
        passes(bench, FromPod, &Packet { ttl: 1, ..tcp() }.bytes(), &[Reason::NotPlain]);
        let mut options = tcp().bytes();
        options[14] = 0x46;
        passes(bench, FromPod, &options, &[Reason::NotPlain]);
        let mut fragment = tcp().bytes();
        fragment[20] = 0x20;
        passes(bench, FromPod, &fragment, &[Reason::NotPlain]);
        passes(bench, FromPod, &Packet { protocol: 1, ..tcp() }.bytes(), &[Reason::NotPlain]);
        let mut padded = tcp().bytes();
        padded.push(0);
        passes(bench, FromPod, &padded, &[Reason::NotPlain]);
        let mut arp = packets::ethernet(super::BRIDGE_MAC, super::POD_MAC, 0x0806);
        arp.extend([0; 28]);
        passes(bench, FromPod, &arp, &[Reason::OtherProtocol]);
    });
}

#[test]
fn a_flow_is_used_while_it_and_its_way_back_were_seen_of_late() {
    on_fast_bench(|bench| {
        let key = teach(bench, &tcp(), &tcp(), Exit::TUNNEL);
        let good = read(bench, &key);
        let now = tick(clock::now_ns());
        let check = good.body.check(&key);
        let (late, closed) = (Stamp::until(check, now), Stamp::closed(check, now + 2000));
        let bodies = [
            (super::Flow4 { seen: late, ..good }, Reason::Refreshing),
            (super::Flow4 { seen: stamp_of_another(), ..good }, Reason::Refreshing),
            (super::Flow4 { mirror: late, ..good }, Reason::OneSided),
            (super::Flow4 { mirror: stamp_of_another(), ..good }, Reason::OneSided),
            (super::Flow4 { seen: closed, ..good }, Reason::FlowClosed),
        ];
        for (flow, reason) in bodies {
            bench.maps.flows.write(key, flow).expect("FLOWS");
            passes(bench, FromPod, &tcp().bytes(), &[reason]);
        }
        bench.maps.flows.write(key, good).expect("FLOWS");
        replayed(bench, &tcp());
        bench.maps.mode.bump().expect("MODE");
        passes(bench, FromPod, &tcp().bytes(), &[Reason::Refreshing]);
    });
}

#[test]
fn a_value_that_is_not_this_keys_is_not_believed() {
    on_fast_bench(|bench| {
        let key = teach(bench, &tcp(), &tcp(), Exit::TUNNEL);
        let mut torn = read(bench, &key);
        torn.body.out.destination = [u32::from_ne_bytes([10, 244, 7, 66])];
        bench.maps.flows.write(key, torn).expect("FLOWS");
        passes(bench, FromPod, &tcp().bytes(), &[Reason::Refreshing]);
    });
}

#[test]
fn udp_that_conntrack_knows_goes_one_way() {
    on_fast_bench(|bench| {
        let key = key(&udp());
        let body = Body { needs_mirror: 0, ..body(bench, &udp(), &udp(), Exit::TUNNEL) };
        bench.maps.flows.write(key, super::Flow4 { mirror: Stamp::NONE, ..usable(&key, body) }).expect("FLOWS");
        replayed(bench, &udp());
    });
}

#[test]
fn opening_and_closing_ends_both_directions() {
    on_fast_bench(|bench| {
        for flags in [0x02, 0x11, 0x04] {
            let there = teach(bench, &tcp(), &tcp(), Exit::TUNNEL);
            let back = teach(bench, &tcp().reversed(), &tcp().reversed(), Exit::TUNNEL);
            passes(bench, FromPod, &Packet { flags, ..tcp() }.bytes(), &[Reason::TcpControl]);
            for key in [there, back] {
                assert!(is_ended(&read(bench, &key), &key), "flags {flags:#x}");
            }
            let after = if flags == 0x02 { Reason::Refreshing } else { Reason::FlowClosed };
            passes(bench, FromPod, &tcp().bytes(), &[after]);
        }
        // A tombstone goes with the next connection.
        passes(bench, FromPod, &Packet { flags: 0x02, ..tcp() }.bytes(), &[Reason::TcpControl]);
        passes(bench, FromPod, &tcp().bytes(), &[Reason::Refreshing]);
    });
}

#[test]
fn a_packet_goes_out_only_as_to_tunnel_would_send_it() {
    on_fast_bench(|bench| {
        teach(bench, &tcp(), &tcp(), Exit::TUNNEL);
        bench.peer(packets::peer(), Word::PLAIN);
        passes(bench, FromPod, &tcp().bytes(), &[Reason::PathUnseen]);
        bench.vouch(50);
        passes(bench, FromPod, &tcp().bytes(), &[Reason::TooBig]);
        bench.vouch(1000);
        replayed(bench, &tcp());
        bench.peer(PeerEntry { mtu: 189, ..packets::peer() }, Word::PLAIN);
        bench.vouch(1000);
        passes(bench, FromPod, &tcp().bytes(), &[Reason::TooBig]);
        bench.peer(packets::peer(), 0);
        passes(bench, FromPod, &tcp().bytes(), &[Reason::PeerNotPlain]);
        bench.maps.peers.remove(PEER_INDEX).expect("PEERS");
        passes(bench, FromPod, &tcp().bytes(), &[Reason::NoPeer]);
    });
}

#[test]
fn packets_larger_than_the_way_out_takes_are_the_kernels() {
    on_fast_bench(|bench| {
        let key = key(&tcp());
        // 40 bytes of headers and 100 of payload.
        for (mtu, fits) in [(140, true), (139, false)] {
            let body = Body { mtu, ..body(bench, &tcp(), &tcp(), Exit::POD) };
            bench.maps.flows.write(key, usable(&key, body)).expect("FLOWS");
            if fits {
                replayed(bench, &tcp());
            } else {
                passes(bench, FromPod, &tcp().bytes(), &[Reason::TooBig]);
            }
        }
        let body = Body { mtu: 1000, ..body(bench, &tcp(), &tcp(), Exit::POD) };
        bench.maps.flows.write(key, usable(&key, body)).expect("FLOWS");
        let large = Packet { payload: 1200, ..tcp() }.bytes();
        bench.run_with(FromPod, &large, 961).passed(Reason::TooBig, &large);
        assert_eq!(bench.run_with(FromPod, &large, 960).reasons, [Reason::Replayed]);
    });
}

#[test]
fn what_the_kernel_refuses_is_put_back_as_it_was() {
    on_fast_bench(|bench| {
        // A test run has no GSO type, so room is refused after the packet was translated.
        let sent = Packet { destination: SERVICE, ports: [40000, 80], ..tcp() };
        teach(bench, &sent, &tcp(), Exit::TUNNEL);
        let frame = sent.bytes();
        bench.run_with(FromPod, &frame, 50).passed(Reason::RoomRefused, &frame);
    });
}

#[test]
fn what_is_not_to_be_learned_is_not_noted() {
    on_fast_bench(|bench| {
        let seen = |bench: &mut Bench, packet: &Packet, reason: Reason| {
            for _ in 0..128 {
                let found = bench.run(FromPod, &packet.bytes()).reasons[0];
                assert!([Reason::FlowUnknown, reason].contains(&found), "{found:?}");
            }
        };
        let mut config = bench.maps.config.get().expect("CONFIG");
        config.fast.flags = FastConfig::UDP;
        bench.maps.config.write(config, clock::now_ns()).expect("CONFIG");
        seen(bench, &tcp(), Reason::NotLearned);
        assert!((0..256).any(|_| bench.run(FromPod, &udp().bytes()).reasons == [Reason::Noted]));
        bench.helper_ports(&[21, 8080]);
        seen(bench, &udp(), Reason::NotLearned);
        seen(bench, &udp().reversed(), Reason::NotLearned);
        bench.helper_ports(&[]);
        let pod = PodEntry { mac: super::POD_MAC, flags: PodEntry::RECEIVES, mtu: 1450 };
        bench.maps.pods.write(LO, pod).expect("PODS");
        passes(bench, FromPod, &udp().bytes(), &[Reason::NotLearned]);
        bench.maps.pods.remove(LO).expect("PODS");
        passes(bench, FromPod, &udp().bytes(), &[Reason::NotLearned]);
    });
}

#[test]
fn who_makes_flows_too_fast_is_not_followed() {
    on_fast_bench(|bench| {
        let reasons = bench.repeat(FromPod, &udp().bytes(), 100_000);
        assert_eq!(reasons, [Reason::Noted, Reason::FlowUnknown, Reason::TooManyFlows]);
    });
}

#[test]
fn other_modes_leave_everything() {
    on_fast_bench(|bench| {
        teach(bench, &tcp(), &tcp(), Exit::TUNNEL);
        for mode in [Mode::Kernel, Mode::Encap] {
            bench.maps.mode.set(mode, None).expect("MODE");
            passes(bench, FromPod, &tcp().bytes(), &[Reason::ModeKernel]);
        }
        bench.maps.mode.set(Mode::Fast, None).expect("MODE");
        bench.maps.config.invalidate().expect("CONFIG");
        passes(bench, FromPod, &tcp().bytes(), &[Reason::NotConfigured]);
    });
}
