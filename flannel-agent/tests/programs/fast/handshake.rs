//! Handshakes: SYN-ACKs are recorded, and packets of flows that are expected behind them; flows on
//! probation are replayed, and pay for their place in the table at their first refresh.

use aya::{
    Pod,
    maps::{Array, Map, MapData},
};
use flannel_common::{
    abi::{
        fast::{FastConfig, PodEntry},
        maps::{PROBATION, PROBATION6},
        program::Program::{FromPod, FromTunnel},
        reason::Reason,
    },
    flow::{Egress, Flow},
    flow::{expiry::Expiry, flow_key::FlowKey, probation::ProbationSlot},
};

use super::{
    LO, POD_MAC, Words, action, both, hints, key,
    packet::{Packet, tcp},
    passes, usable,
};
use crate::bench::Bench;

/// Times a packet is repeated: one of an unknown flow would be recorded some of them.
const MANY: u32 = 512;
/// More than a sender has tokens for.
const TOO_MANY: u32 = 100_000;

fn answer<A: Words>() -> Packet {
    Packet {
        flags: 0x12,
        payload: 0,
        ..tcp(A::NET)
    }
}

fn slots<A: Words>(bench: &Bench) -> Array<MapData, ProbationSlot<A>>
where
    FlowKey<A>: Pod,
    Flow<A>: Pod,
{
    let name = if A::NET.our_pod.is_ipv4() {
        PROBATION
    } else {
        PROBATION6
    };
    let map = MapData::from_pin(bench.pins().map(name))
        .and_then(Map::from_map_data)
        .expect("a pinned map");
    Array::try_from(map).expect("an array")
}

/// Puts a flow of this packet, which leaves as `egress`, on probation.
fn put_on_probation<A: Words>(
    bench: &mut Bench,
    packet: &Packet,
    egress: Egress,
    seen: Option<Expiry>,
) where
    FlowKey<A>: Pod,
    Flow<A>: Pod,
{
    let key = key::<A>(packet);
    let mut flow = usable(&key, action(bench, packet, packet, egress));
    flow.seen = seen.unwrap_or(flow.seen);
    flow.confirm();
    flow.put_on_probation();
    let slot = ProbationSlot {
        flow,
        key,
        reserved: 0,
    };
    slots::<A>(bench)
        .set(ProbationSlot::of(&key), slot, 0)
        .expect("a slot");
    hints::<A>(bench).note_on_probation(&key).expect("a hint");
}

both! {
    fn every_answer_to_a_syn_is_recorded_and_none_costs_a_token<A>(bench) {
        let frame = answer::<A>().bytes();
        assert_eq!(bench.repeat(FromPod, &frame, TOO_MANY), [Reason::Handshake]);
        assert_eq!(
            bench.repeat(FromTunnel, &frame, TOO_MANY),
            [Reason::Handshake]
        );
        for flags in [0x02, 0x06, 0x13, 0x16, 0x11, 0x14] {
            let other = Packet {
                flags,
                ..answer::<A>()
            }
            .bytes();
            assert_eq!(
                bench.repeat(FromPod, &other, MANY),
                [Reason::TcpControl],
                "flags {flags:#x}"
            );
            assert_eq!(
                bench.repeat(FromTunnel, &other, MANY),
                [Reason::TcpControl],
                "flags {flags:#x}"
            );
        }
    }

    fn answers_are_not_recorded_where_nothing_is_learned<A>(bench) {
        let frame = answer::<A>().bytes();
        let fast = bench.maps.fast.get().expect("FAST");
        bench
            .maps
            .fast
            .set(FastConfig {
                flags: FastConfig::UDP | FastConfig::FROM_UNDERLAY,
                ..fast
            })
            .expect("FAST");
        assert_eq!(bench.repeat(FromPod, &frame, MANY), [Reason::TcpControl]);
        bench
            .maps
            .fast
            .set(FastConfig {
                flags: FastConfig::TCP | FastConfig::TCP_LIBERAL,
                ..fast
            })
            .expect("FAST");
        assert_eq!(bench.repeat(FromPod, &frame, MANY), [Reason::Handshake]);
        assert_eq!(
            bench.repeat(FromTunnel, &frame, MANY),
            [Reason::TcpControl],
            "filters are on \
            the underlay"
        );
        bench.helper_ports(&[8080]);
        assert_eq!(bench.repeat(FromPod, &frame, MANY), [Reason::TcpControl]);
        bench.helper_ports(&[]);
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
        assert_eq!(bench.repeat(FromPod, &frame, MANY), [Reason::TcpControl]);
    }

    fn a_syn_and_its_answer_alone_take_no_place<A>(bench) {
        for flags in [0x02, 0x12, 0x04] {
            bench.repeat(FromPod, &Packet { flags, ..answer::<A>() }.bytes(), MANY);
        }
        assert_eq!(A::flows(&mut bench.maps).entries().count(), 0);
        let empty = ProbationSlot::<A>::default();
        assert!(slots::<A>(bench).iter().all(|slot| slot.expect("a slot") == empty));
    }

    fn an_expected_packet_is_recorded_whatever_chance_and_tokens_say<A>(bench) {
        let packet = tcp(A::NET);
        put_on_probation::<A>(bench, &packet, Egress::TUNNEL, Some(Expiry::NONE));
        assert_eq!(bench.repeat(FromPod, &packet.bytes(), TOO_MANY), [Reason::Handshake]);
        assert_eq!(bench.repeat(FromTunnel, &packet.bytes(), TOO_MANY), [Reason::Handshake]);
    }

    fn a_flow_on_probation_is_replayed_and_counted<A>(bench) {
        let packet = tcp(A::NET);
        put_on_probation::<A>(bench, &packet, Egress::TUNNEL, None);
        for count in 1..4 {
            assert_eq!(
                bench.run(FromPod, &packet.bytes()).reasons,
                [Reason::Replayed]
            );
            let slot = slots::<A>(bench)
                .get(&ProbationSlot::of(&key::<A>(&packet)), 0)
                .expect("a slot");
            assert_eq!(
                (slot.flow.used(), slot.flow.is_on_probation()),
                (count, true)
            );
        }
        let another = Packet {
            ports: [40001, 8080],
            ..packet
        };
        passes(bench, FromPod, &another.bytes(), &super::UNKNOWN);
    }

    fn a_refresh_takes_a_token_of_who_is_on_probation<A>(bench) {
        let packet = tcp(A::NET);
        let late = Expiry::until(1, 1);
        put_on_probation::<A>(bench, &packet, Egress::TUNNEL, Some(late));
        assert_eq!(
            bench.repeat(FromPod, &packet.bytes(), TOO_MANY),
            [Reason::Refreshing, Reason::TooManyFlows]
        );
    }

    fn opening_and_closing_end_a_flow_on_probation<A>(bench) {
        let packet = tcp(A::NET);
        for (flags, after) in [
            (0x02, Reason::Handshake),
            (0x11, Reason::FlowClosed),
            (0x04, Reason::FlowClosed),
        ] {
            put_on_probation::<A>(bench, &packet, Egress::TUNNEL, None);
            put_on_probation::<A>(bench, &packet.reversed(), Egress::TUNNEL, None);
            passes(
                bench,
                FromPod,
                &Packet { flags, ..packet }.bytes(),
                &[Reason::TcpControl],
            );
            for ended in [packet, packet.reversed()] {
                passes(bench, FromPod, &ended.bytes(), &[after]);
            }
        }
    }
}
