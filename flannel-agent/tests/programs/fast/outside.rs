//! Hosts outside the pod networks, with `FastConfig::OUTSIDE`: `from_underlay` takes from them what
//! is of known flows, `from_pod` sends to them where the FIB leads.

use flannel_common::{
    abi::{
        fast::FastConfig,
        program::Program::{FromPod, FromUnderlay, ToUnderlay},
        reason::Reason,
    },
    flow::{Egress, FlowAction},
    packet::inner::FrameAddresses,
};

use super::{
    BRIDGE_MAC, POD_MAC, Words, action, both, is_ended, key,
    packet::{Packet, kinds, tcp},
    passes, read, teach, usable, write,
};
use crate::{
    bench::{Bench, TC_ACT_REDIRECT},
    packets::{LO, OUR_MAC, PEER_MAC},
};

fn set(bench: &mut Bench, change: impl FnOnce(u32) -> u32) {
    let fast = bench.maps.fast.get().expect("FAST");
    bench
        .maps
        .fast
        .set(FastConfig {
            flags: change(fast.flags),
            ..fast
        })
        .expect("FAST");
}

/// The packet to a host outside.
fn outward<A: Words>(packet: Packet) -> Packet {
    Packet {
        destination: A::NET.outside[0],
        ..packet
    }
}

/// The packet of that host, on our link.
fn inward<A: Words>(packet: Packet) -> Packet {
    Packet {
        to: flannel_common::packet::addr::Mac([0; 6]),
        from: PEER_MAC,
        ..outward::<A>(packet).reversed()
    }
}

both! {
    fn known_flows_of_hosts_outside_enter_pods<A>(bench) {
        set(bench, |flags| flags | FastConfig::OUTSIDE);
        let packets: Vec<_> = kinds(A::NET).into_iter().map(inward::<A>).collect();
        for packet in &packets {
            passes(bench, FromUnderlay, &packet.bytes(), &[Reason::NotTunnel]);
        }
        for packet in packets {
            teach::<A>(bench, &packet, &packet, Egress::POD);
            let outcome = bench.run(FromUnderlay, &packet.bytes());
            assert_eq!(
                (outcome.reasons.as_slice(), outcome.action),
                ([Reason::Replayed].as_slice(), TC_ACT_REDIRECT)
            );
            let expected = Packet {
                to: POD_MAC,
                from: BRIDGE_MAC,
                ..packet.routed()
            };
            assert_eq!(outcome.packet, expected.bytes(), "{packet:?}");
        }
    }

    fn without_the_scope_or_leave_hosts_outside_are_the_kernels<A>(bench) {
        let packet = inward::<A>(tcp(A::NET));
        teach::<A>(bench, &packet, &packet, Egress::POD);
        passes(bench, FromUnderlay, &packet.bytes(), &[Reason::NotTunnel]);
        set(bench, |flags| {
            (flags | FastConfig::OUTSIDE) & !FastConfig::FROM_UNDERLAY
        });
        passes(bench, FromUnderlay, &packet.bytes(), &[Reason::NotTunnel]);
        set(bench, |flags| flags | FastConfig::FROM_UNDERLAY);
        let for_others = Packet {
            to: POD_MAC,
            ..packet
        };
        passes(
            bench,
            FromUnderlay,
            &for_others.bytes(),
            &[Reason::NotTunnel],
        );
        passes(
            bench,
            FromUnderlay,
            &Packet {
                source: A::NET.unleased,
                ..packet
            }
            .bytes(),
            &[Reason::NotTunnel],
        );
    }

    /// Of all that hosts outside send, only what answers a SYN is recorded without a flow.
    fn handshakes_of_hosts_outside_are_recorded<A>(bench) {
        set(bench, |flags| flags | FastConfig::OUTSIDE);
        let packet = inward::<A>(tcp(A::NET));
        let with = |flags| Packet { flags, ..packet }.bytes();
        assert_eq!(bench.run(FromUnderlay, &with(0x12)).reasons, [Reason::Handshake]);
        let key = teach::<A>(bench, &packet, &packet, Egress::POD);
        passes(bench, FromUnderlay, &with(0x11), &[Reason::NotTunnel]);
        assert!(is_ended(&read(bench, &key), &key), "FIN");
    }

    /// Packets in a test run come from nowhere, as the host's own do.
    fn the_hosts_own_packets_teach_nothing<A>(bench) {
        set(bench, |flags| flags | FastConfig::OUTSIDE);
        passes(bench, ToUnderlay, &outward::<A>(tcp(A::NET)).bytes(), &[Reason::NotTunnel]);
    }

    fn where_no_route_leads_packets_to_the_outside_are_the_kernels<A>(bench) {
        set(bench, |flags| flags | FastConfig::OUTSIDE);
        let packet = outward::<A>(tcp(A::NET));
        let exit = FrameAddresses::new(PEER_MAC, OUR_MAC);
        for egress_data in [LO, 0, 99] {
            let action = FlowAction {
                exit,
                egress_data,
                ..action(bench, &packet, &packet, Egress::OUTSIDE)
            };
            let key = key::<A>(&packet);
            write(bench, key, usable(&key, action));
            passes(bench, FromPod, &packet.bytes(), &[Reason::OtherRoute]);
        }
    }
}
